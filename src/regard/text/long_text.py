"""Long texts: where they can be cut so that the pieces' ids are the whole's, and how long one can be that fits.

In: a `tokenizers.Tokenizer`. Out: the pieces of a text, and the most characters that so many tokens can stand for. A text
in pieces is given up as soon as it has more tokens than fit, and takes the memory of one piece.

A text is cut before a space that follows a letter or a sign, in two kinds of pipeline; everything else stays in one piece.

*Where the pre-tokenizer cuts there anyway* (ByteLevel's and the other known regular expressions, BERT's and the like, which
split at spaces, and Metaspace). What is before the cut and what is after it do not touch the other's tokens, because

- the normalisers allowed here change characters one by one or by Unicode's normal forms, in which a space neither changes
  nor joins with its neighbours;
- no match of the regular expressions has a space after something else; they look ahead past spaces only
  (`\\s+(?!\\S)`) and never back; a repetition of other characters ends at a space as it does at the end of the text; and
  every other character is in some match, so none is left over with the space;
- a part that begins with a space gets no other before it (`add_prefix_space`, Metaspace's `prepend_scheme`).

*Where all of a text is one word to BPE* (Llama's SentencePiece: spaces become `▁`, no pre-tokenizer). If no token has a
letter with `▁` after it, no merge reaches over the cut, and BPE does on either side what it would do alone. If a `▁` is put
before every text, then also before the part after the cut: there the cut takes the place of the space.

Added tokens are matched before all this, so none that a text may spell can have a space after something else, nor take in
spaces beside it that the cut divides.
"""

import json
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tokenizers

from regard.text.splits import SPLITS, WORD_SPLITS
from regard.text.stream import BYTE_OF

LONG = 8192  # characters: what is shorter takes a few milliseconds in one piece
MARK = "▁"
# Letters since Unicode's first versions, so that every library calls them so, and under every normal form
LETTERS = "A-Za-zа-ик-яА-ИК-Я一-龥가-힣"
VISIBLE = f"!-~{LETTERS}"
ACROSS = re.compile(f"[{LETTERS}]{MARK}")
MOST_PARTS = 4  # of a character that Unicode composes
# Characters before normalisation for each one after it, at most
SHRINKING = {"NFC": MOST_PARTS, "NFKC": MOST_PARTS, "NFD": 1, "NFKD": 1, "Lowercase": 1}
HARMLESS = {*SHRINKING, "StripAccents", "BertNormalizer"}
AT_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
SPELLED_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


@dataclass(frozen=True)
class Pipeline:
    """after: the characters after which a text may be cut at a space; fewer, if the first set does not go with an added
    token. dropped: whether the space belongs to no piece. per_token: the characters that one token can stand for, or None
    where there is no such number (an unknown word of any length is one token to WordPiece). lost: characters that no token
    stands for, since BPE leaves out what it has no token for."""

    after: tuple[str, ...] = ()
    dropped: bool = False
    per_token: int | None = None
    lost: str = ""

    def pieces(self, text: str) -> Iterator[str]:
        """A text as it may be cut; no piece is longer than need be."""
        begin = 0
        if self.after:
            cut = re.compile(f"(?<=[{self.after[0]}]) " + f"(?=[{self.after[0]}])" * self.dropped)
            while found := cut.search(text, begin + LONG):
                yield text[begin : found.start()]
                begin = found.start() + self.dropped
        yield text[begin:]

    def has_more(self, text: str, tokens: int) -> bool:
        """Whether a text surely has more than so many tokens, judged by its characters alone."""
        most = None if self.per_token is None else tokens * self.per_token
        return most is not None and len(text) > most and len(text) - sum(map(text.count, self.lost)) > most

    def of(self, encoder: tokenizers.Tokenizer) -> "Pipeline":
        """The same with this encoder's added tokens."""
        added = encoder.get_added_tokens_decoder().values()
        spelled = [token for token in added if not (token.special and encoder.encode_special_tokens)]
        after = tuple(each for each in self.after if all(self._allows(each, token, encoder) for token in spelled))
        per_token = self.per_token
        if per_token is not None and spelled:
            per_token = max(per_token, MOST_PARTS * max(len(token.content) for token in spelled))
        endless = any(token.lstrip or token.rstrip for token in spelled)  # with all the spaces beside it
        return replace(self, after=after, per_token=None if endless else per_token)

    def _allows(self, after: str, token: tokenizers.AddedToken, encoder: tokenizers.Tokenizer) -> bool:
        """Whether an added token neither reaches over a cut nor takes in the space there."""
        spellings = {token.content}
        if token.normalized and encoder.normalizer is not None:
            spellings.add(encoder.normalizer.normalize_str(token.content))
        if self.dropped:  # the space goes, so neither it nor the letter after it may begin a token
            return not token.normalized and not token.rstrip and not re.match(rf"[\s{after}]", token.content)
        across = any(re.search(rf"\S\s|{ACROSS.pattern}", spelling) for spelling in spellings)
        takes = token.rstrip and any(re.search(f"[{after}]$", spelling) for spelling in spellings)
        depends = token.single_word and any(spelling[:1].isspace() for spelling in spellings)  # on what is before it
        return not (across or takes or depends)


def pipeline_of(raw: tokenizers.Tokenizer) -> Pipeline:
    normal, before = _steps(raw.normalizer, "normalizers"), _steps(raw.pre_tokenizer, "pretokenizers")
    kinds = [stage["type"] for stage in normal]
    model, vocab = raw.model, raw.get_vocab(with_added_tokens=False)
    if getattr(model, "dropout", None):
        return Pipeline()  # ids are drawn at random
    if not before and isinstance(model, tokenizers.models.BPE) and kinds in (["Replace"], ["Prepend", "Replace"]):
        marks = normal[-1]["pattern"] == {"String": " "} and normal[-1]["content"] == MARK
        marks = marks and normal[0].get("prepend", MARK) == MARK and MARK in vocab
        lossless = model.byte_fallback and vocab.keys() >= SPELLED_BYTES
        affixes = model.ignore_merges or model.continuing_subword_prefix or model.end_of_word_suffix
        alone = marks and not affixes and not any(ACROSS.search(token) for token in vocab)
        per_token = max(map(len, vocab)) if marks and lossless else None
        return Pipeline((LETTERS,) if alone else (), len(kinds) == 2, per_token)
    after = (VISIBLE, LETTERS) if set(kinds) <= HARMLESS and _splits_words(before) else ()
    lossless = isinstance(model, tokenizers.models.BPE) and set(kinds) <= SHRINKING.keys() and _keeps_all(before)
    missing = [byte for letter, byte in BYTE_OF.items() if letter not in vocab]
    if not lossless or not vocab or any(0x80 <= byte < 0xC0 for byte in missing):
        return Pipeline(after)
    # every character but these has a byte with a token: one beyond ASCII has bytes from 0x80 to 0xBF
    lost = "".join(chr(byte) for byte in missing if byte < 0x80)
    return Pipeline(after, False, max(map(len, vocab)) * max([1, *(SHRINKING[kind] for kind in kinds)]), lost)


def _splits_words(stages: list[dict[str, Any]]) -> bool:
    """Whether a pre-tokenizer cuts before every space that follows something else, whatever is before and after that."""
    known = WORD_SPLITS.union(*(split.regexes for split in SPLITS.values()))
    splits = [each["type"] in AT_SPACES or _regex(each) in WORD_SPLITS or _is_metaspace(each) for each in stages]
    local = [each["type"] == "Digits" or _regex(each) in known for each in stages]
    if stages and stages[-1]["type"] == "ByteLevel":  # which writes spaces in another way, so nothing may come after it
        splits[-1], local[-1] = stages[-1]["use_regex"], True
    return any(splits) and all(map(operator.or_, splits, local))


def _keeps_all(stages: list[dict[str, Any]]) -> bool:
    """Whether everything in a text reaches the model, as the bytes it is made of."""
    *before, last = stages or [{"type": None}]
    return last["type"] == "ByteLevel" and all(
        each["type"] == "Digits" or (each["type"] == "Split" and each["behavior"] != "Removed") for each in before
    )


def _regex(stage: dict[str, Any]) -> str | None:
    plain = stage["type"] == "Split" and stage["behavior"] == "Isolated" and not stage["invert"]
    return stage["pattern"].get("Regex") if plain else None


def _is_metaspace(stage: dict[str, Any]) -> bool:
    return stage["type"] == "Metaspace" and stage["replacement"] == MARK and stage["split"] is True


def _steps(stage: Any, children: str) -> list[dict[str, Any]]:
    """A pipeline's part as the list of its steps."""
    if stage is None:
        return []
    steps, flat = [json.loads(stage.__getstate__())], list[dict[str, Any]]()
    while steps:
        step = steps.pop(0)
        if step["type"] == "Sequence":
            steps[:0] = step[children]
        else:
            flat.append(step)
    return flat
