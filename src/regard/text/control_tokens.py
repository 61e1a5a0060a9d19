"""Special (control) tokens, and tokenizers that encode their spellings as ordinary text, against prompt injection.

In: a `tokenizers.Tokenizer`. Out: twins of it (copies that share its model) with other added tokens. A user may type `</s>`
or `<|im_start|>`: in user text it must be four or twelve characters, never a special token. Only *special* added tokens are
control tokens; other added tokens (domain words, say) are vocabulary and match everywhere.
"""

import json
from collections.abc import Iterable, Mapping

import tokenizers

from regard.errors import TokenizerError

Raw = tokenizers.Tokenizer

SPECIAL_ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")


def special_tokens(raw: Raw) -> dict[int, tokenizers.AddedToken]:
    """The special tokens by id."""
    return {i: token for i, token in raw.get_added_tokens_decoder().items() if token.special}


def text_twin(raw: Raw) -> Raw:
    """The same tokenizer, except that no text can spell a control token (the unknown token excepted)."""
    twin = _with_added(raw, raw.get_added_tokens_decoder().items())
    if (
        twin.get_added_tokens_decoder() != raw.get_added_tokens_decoder()
    ):  # ids with gaps: only a full copy preserves them
        twin = Raw.from_str(raw.to_str())
    twin.encode_special_tokens = True
    return _renamed_twin(raw) if _spells_control(twin) else twin


def renaming_twin(plain: Raw, names: Mapping[str, str]) -> tuple[Raw, dict[int | None, int]]:
    """A twin in which the added token `x` is spelled `names[x]` and nothing else, and how its ids map back.

    Tokens of `plain` that are special and not in `names` have no spelling at all.
    """
    spellable = {
        i: token for i, token in plain.get_added_tokens_decoder().items() if token.content in names or not token.special
    }
    renamed = [(i, _respelled(token, names.get(token.content, token.content))) for i, token in spellable.items()]
    twin = _with_added(plain, renamed)
    back = {twin.token_to_id(token.content): i for i, token in renamed}
    if any(plain.model.id_to_token(new or 0) not in (None, plain.id_to_token(old)) for new, old in back.items()):
        raise TokenizerError("The tokenizer's ids have gaps, so its control tokens cannot be distinguished from text.")
    return twin, back


def _with_added(raw: Raw, added: Iterable[tuple[int, tokenizers.AddedToken]]) -> Raw:
    """A tokenizer around `raw`'s model and stages (shared, not copied) with these added tokens, in id order."""
    twin = Raw(raw.model)
    for stage in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (part := getattr(raw, stage)) is not None:  # the library does not take None
            setattr(twin, stage, part)
    twin.add_tokens([token for _, token in sorted(added, key=lambda pair: pair[0])])
    return twin


def _respelled(token: tokenizers.AddedToken, content: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized and content == token.content,
        special=False,
    )


def _spells_control(twin: Raw) -> bool:
    """Whether the model itself, without added-token matching, encodes a spelling as its control token.

    Whole-word and unigram models do, when control tokens are in their vocabulary.
    """
    special = special_tokens(twin)
    control = set(special) - {twin.token_to_id(_unknown(twin) or "")}
    return any(
        control.intersection(twin.encode(before + token.content, add_special_tokens=False).ids)
        for token in special.values()
        for before in ("", "a", " ")
    )


def _unknown(raw: Raw) -> str | None:
    unknown = getattr(raw.model, "unk_token", None)  # a unigram model has an unk_id instead
    return unknown if isinstance(unknown, str) else None


def _renamed_twin(raw: Raw) -> Raw:
    """A copy whose model has its control tokens under random names that no text can contain."""
    import secrets

    data = json.loads(raw.to_str())
    model = data["model"]
    secret = secrets.token_hex(16)
    hidden = {token.content for token in special_tokens(raw).values()} - {model.get("unk_token")}
    in_model = hidden.intersection(raw.get_vocab(with_added_tokens=False))
    if isinstance(model["vocab"], list):  # unigram: [piece, score] pairs in id order
        model["vocab"] = [[f"{p}\0{secret}" if p in in_model else p, score] for p, score in model["vocab"]]
    else:
        model["vocab"] = {f"{p}\0{secret}" if p in in_model else p: i for p, i in model["vocab"].items()}
    if "merges" in model:
        model["merges"] = [m for m in model["merges"] if not in_model.intersection((*m, "".join(m)))]
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in in_model]
    twin = Raw.from_str(json.dumps(data))
    twin.encode_special_tokens = True
    return twin
