"""The tokenizer: text ⇄ ids, over the `tokenizers` library.

In: a `tokenizers.Tokenizer` and its settings. Out: the `Tokenizer` class that the rest of the package uses. It adds to the
library: text that spells a special (control) token stays text, ids outside the vocabulary and invalid Unicode are refused,
and decoding can be streamed (`stream`).
"""

import json
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from regard.errors import TokenizerError, TooLong, quoted
from regard.text.control_tokens import SPECIAL_ROLES, special_tokens, text_twin
from regard.text.long_text import LONG, Pipeline, pipeline_of
from regard.text.reading import guarded
from regard.text.stream_decoder import StreamDecoder, clean_up, decoder_steps, is_byte_piece, piece_bytes
from regard.text.tokenizer_files import read_directory


class Tokenizer:
    """Text ⇄ ids.

    `ids` are the ids that have a token, if known already; `specials` maps roles ("bos", "eos", …) to token
    spellings; `chat_templates` maps names to Jinja templates, usually one named "default"; `where` names this
    tokenizer in error messages, normally its file.

    By default a text that spells a control token (`<|im_end|>`, `[SEP]`) is encoded as the characters it is made of;
    `allow_control=True` encodes such spellings as special tokens.
    """

    def __init__(
        self,
        raw: tokenizers.Tokenizer,
        *,
        ids: Collection[int] | None = None,
        specials: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, str] | None = None,
        model_max_length: int | None = None,
        clean_up_spaces: bool = False,
        where: str = "the tokenizer",
    ):
        raw.no_truncation()
        raw.no_padding()
        raw.encode_special_tokens = False
        self.raw = raw
        self.where = where
        self.specials = dict(specials or {})
        self.chat_templates = dict(chat_templates or {})
        self.model_max_length = model_max_length
        ids = self.vocab.values() if ids is None else ids
        self.n_tokens, self.n_vocab = len(ids), max(ids, default=-1) + 1
        self.special_ids = frozenset(special_tokens(raw))
        self._clean = clean_up_spaces and self.kind != "bpe"  # in BPE a space before punctuation was in the text
        for role, token in self.specials.items():
            if raw.token_to_id(token) is None:
                raise TokenizerError(f"{where} names {quoted(token)} as its {role} token, but no token is spelled so.")
        self._plain = guarded(where, lambda: text_twin(raw))
        # so that a broken post-processor fails here, not in the middle of a run
        for i in guarded(where, lambda: raw.encode("a").ids + raw.encode("a", "a").ids):
            if raw.id_to_token(i) is None:
                raise TokenizerError(f"{where} puts the id {i} around texts, but none of its tokens has that id.")

    # ── properties ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def kind(self) -> str:
        """`bpe`, `wordpiece`, `unigram` or `wordlevel`."""
        return type(self.raw.model).__name__.lower()

    @property
    def vocab(self) -> dict[str, int]:
        """Token → id, in a new dictionary each time: the library has the vocabulary, a second copy takes megabytes."""
        return self.raw.get_vocab(with_added_tokens=True)

    def without_token(self, n_rows: int) -> tuple[int, ...]:
        """The ids below `n_rows` that no token has."""
        if self.n_tokens == self.n_vocab == n_rows:
            return ()
        return tuple(sorted(set(range(n_rows)).difference(self.vocab.values())))

    def _special_id(self, role: str) -> int | None:
        return self.raw.token_to_id(self.specials[role]) if role in self.specials else None

    @property
    def bos_id(self) -> int | None:
        return self._special_id("bos")

    @property
    def eos_id(self) -> int | None:
        return self._special_id("eos")

    @property
    def unk_id(self) -> int | None:
        return self._special_id("unk")

    @property
    def pad_id(self) -> int | None:
        return self._special_id("pad")

    @property
    def sep_id(self) -> int | None:
        return self._special_id("sep")

    @property
    def cls_id(self) -> int | None:
        return self._special_id("cls")

    @property
    def mask_id(self) -> int | None:
        return self._special_id("mask")

    @property
    def chat_template(self) -> str | None:
        return self.chat_templates.get("default")

    @property
    def plain(self) -> tokenizers.Tokenizer:
        """The twin tokenizer that encodes every special token's spelling as text."""
        return self._plain

    @property
    def cleans_up(self) -> bool:
        """Whether decoding removes the spaces before punctuation."""
        return self._clean

    def check_vocab(self, n_rows: int) -> None:
        """Refuse a vocabulary that does not fit an embedding of `n_rows` rows."""
        if self.n_vocab > n_rows:
            token = self.raw.id_to_token(self.n_vocab - 1)
            raise TokenizerError(
                f"{self.where} gives {quoted(token)} the id {self.n_vocab - 1}, but the model's embedding has only "
                f"{n_rows} rows; use the tokenizer the model was trained with, or enlarge the embedding."
            )

    # ── text → ids ──────────────────────────────────────────────────────────────────────────────────────────────

    def encode(
        self, text: str, *, add_special: bool = True, allow_control: bool = False, most: int | None = None
    ) -> list[int]:
        """A text's ids. A long text with more than `most` ids is refused (`TooLong`) as soon as that is certain."""
        encoder = self.raw if allow_control else self._plain
        return self.encode_by(encoder, lambda: self._long_texts(allow_control), self._unicode(text), add_special, most)

    def encode_by(
        self,
        encoder: tokenizers.Tokenizer,
        long_texts: Callable[[], Pipeline],
        text: str,
        add_special: bool,
        most: int | None,
    ) -> list[int]:
        """The ids by a twin of this tokenizer (see control_tokens.py).

        long_texts: called for a long text only, since its bounds are computed from the whole vocabulary (0.1 s). Long texts
        are encoded by `encode_batch_fast`, which releases the GIL; `encode` does not.
        """
        if len(text) <= LONG:
            return guarded(self.where, lambda: encoder.encode(text, add_special_tokens=add_special)).ids
        pipeline = long_texts()
        if most is not None and pipeline.has_more(text, most):
            raise _too_long(most)
        if add_special and self._added_ids is None:
            (encoding,) = guarded(self.where, lambda: encoder.encode_batch_fast([text], add_special_tokens=True))
            return encoding.ids
        before, after = self._added_ids if add_special and self._added_ids else ([], [])
        ids = list(before)
        for piece in pipeline.pieces(text):
            encoded = guarded(self.where, lambda: encoder.encode_batch_fast([piece], add_special_tokens=False))  # noqa: B023
            ids += encoded[0].ids
            if most is not None and len(ids) > most:
                raise _too_long(most)
        return ids + after

    def check_length(self, text: str, most: int | None, *, allow_control: bool = False) -> None:
        """Refuse (`TooLong`) a text that certainly has more than `most` tokens, without encoding it."""
        if most is not None and len(text) > LONG and self._long_texts(allow_control).has_more(text, most):
            raise _too_long(most)

    def _long_texts(self, allow_control: bool) -> Pipeline:
        return self._long_with_control if allow_control else self._long

    @cached_property
    def _long(self) -> Pipeline:
        return self.pipeline.of(self._plain)

    @cached_property
    def _long_with_control(self) -> Pipeline:
        return self.pipeline.of(self.raw)

    @cached_property
    def pipeline(self) -> Pipeline:
        """Where long texts may be split, and bounds on their number of tokens (long_text.py)."""
        return pipeline_of(self.raw)

    @cached_property
    def _added_ids(self) -> tuple[list[int], list[int]] | None:
        """The special ids added before and after every text; None if they cannot be determined by encoding a letter."""
        framed = self.raw.encode("a")
        inside = [i for i, sequence in enumerate(framed.sequence_ids) if sequence is not None]
        return (framed.ids[: inside[0]], framed.ids[inside[-1] + 1 :]) if inside else None

    def encode_open(self, text: str, most: int | None = None) -> list[int]:
        """The ids of a text to be continued: with special tokens before it, without those after it."""
        ids = self.encode(text, most=most)
        return ids[: len(ids) - (len(self._added_ids[1]) if self._added_ids else 0)]

    def encode_pair(self, a: str, b: str, *, allow_control: bool = False) -> tuple[list[int], list[int]]:
        """Ids and token types of a pair, `[CLS] a [SEP] b [SEP]` for BERT."""
        encoding = self._encode(a, b, True, allow_control)
        return encoding.ids, encoding.type_ids

    def encode_batch(
        self, texts: Sequence[str], *, add_special: bool = True, allow_control: bool = False
    ) -> list[list[int]]:
        """`encode` of many texts at once, on all cores."""
        texts = [self._unicode(text) for text in texts]
        encoder = self.raw if allow_control else self._plain
        batch = guarded(self.where, lambda: encoder.encode_batch_fast(texts, add_special_tokens=add_special))
        return [encoding.ids for encoding in batch]

    def encode_with_offsets(
        self, text: str, *, add_special: bool = True, allow_control: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids, and for each the (start, end) of its characters in the text; (0, 0) for added special tokens."""
        encoding = self._encode(text, None, add_special, allow_control)
        return encoding.ids, encoding.offsets

    def encode_words(self, words: Sequence[str], *, add_special: bool = True) -> tuple[list[int], list[int | None]]:
        """Ids of a text given as words, and for each id the index of its word (None for special tokens)."""
        words = [self._unicode(word) for word in words]
        if not self._marks_words:
            words = [f" {word}" if i else word for i, word in enumerate(words)]
        encoding = guarded(
            self.where, lambda: self._plain.encode(words, is_pretokenized=True, add_special_tokens=add_special)
        )
        return encoding.ids, encoding.word_ids

    def words(self, text: str) -> list[tuple[str, int, int]]:
        """The words and punctuation marks of a text, each with the (start, end) of its characters."""
        pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(self._unicode(text))
        return [(word, start, end) for word, (start, end) in pieces]

    @cached_property
    def _marks_words(self) -> bool:
        """Whether the pipeline itself marks the start of a word, rather than relying on a space in the text."""
        words = self._plain.encode(["a", "a"], is_pretokenized=True, add_special_tokens=False)
        return words.ids == self.encode("a a", add_special=False)

    def _encode(self, text: str, pair: str | None, add_special: bool, allow_control: bool) -> tokenizers.Encoding:
        text = self._unicode(text)
        pair = None if pair is None else self._unicode(pair)
        encoder = self.raw if allow_control else self._plain
        if len(text) + len(pair or "") <= LONG:
            return guarded(self.where, lambda: encoder.encode(text, pair, add_special_tokens=add_special))
        given = text if pair is None else (text, pair)
        (encoding,) = guarded(self.where, lambda: encoder.encode_batch([given], add_special_tokens=add_special))
        return encoding

    def _unicode(self, text: str) -> str:
        if not isinstance(text, str):
            raise TokenizerError(f"Only text can be encoded, and this is {type(text).__name__}.")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise TokenizerError(
                    f"The text has a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}, "
                    "which is not a character; decode the bytes it came from as UTF-8."
                ) from None
        return text

    # ── ids → text ──────────────────────────────────────────────────────────────────────────────────────────────

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        checked = [self._checked(i) for i in ids]
        if len(checked) <= LONG:
            text = guarded(self.where, lambda: self.raw.decode(checked, skip_special_tokens=skip_special))
        else:  # releases the GIL
            (text,) = guarded(self.where, lambda: self.raw.decode_batch([checked], skip_special_tokens=skip_special))
        return clean_up(text) if self._clean else text

    def stream(self, *, skip_special: bool = True) -> StreamDecoder:
        """A streaming decoder: its pieces, joined, equal `decode` of all ids."""
        return StreamDecoder(self.raw, self._checked, self.special_ids if skip_special else (), self._clean)

    def token(self, token_id: int) -> str:
        """The token as spelled in the vocabulary."""
        return self.raw.id_to_token(self._checked(token_id)) or ""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token in readable form: spaces as spaces, bytes of an incomplete character as `\\xe2`."""
        return [self._readable(self.token(i)) if i not in self.special_ids else self.token(i) for i in ids]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of a token, which may be part of a character."""
        piece = self.token(token_id)
        return piece.encode() if token_id in self.special_ids else self._bytes(piece)

    def _readable(self, piece: str) -> str:
        return self._bytes(piece).decode(errors="backslashreplace")

    def _bytes(self, piece: str) -> bytes:
        if "ByteLevel" in self._decoder_kinds:
            return piece_bytes(piece)
        if "ByteFallback" in self._decoder_kinds and is_byte_piece(piece):
            return bytes.fromhex(piece[3:5])
        return piece.replace("▁", " ").encode()

    @cached_property
    def _decoder_kinds(self) -> frozenset[str]:
        return frozenset(step["type"] for step in decoder_steps(self.raw))

    def _checked(self, token_id: int) -> int:
        try:
            index = operator.index(token_id)
        except TypeError:
            raise TokenizerError(f"A token id is a whole number, and {quoted(token_id)} is not.") from None
        if not 0 <= index < self.n_vocab or self.raw.id_to_token(index) is None:
            raise TokenizerError(f"{self.where} has no token {index}; its ids go from 0 to {self.n_vocab - 1}.")
        return index

    # ── files ───────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write tokenizer.json and tokenizer_config.json, for `load_tokenizer` and `transformers`."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / "tokenizer.json", self.raw.to_str(pretty=True))
        _replace(folder / "tokenizer_config.json", json.dumps(self._config(), indent=2, ensure_ascii=False) + "\n")

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
        config |= {f"{role}_token": self.specials[role] for role in SPECIAL_ROLES if role in self.specials}
        config["clean_up_tokenization_spaces"] = self._clean
        if self.model_max_length is not None:
            config["model_max_length"] = self.model_max_length
        if "cls" in self.specials and 1 in self.raw.encode("a", "a").type_ids:
            config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        if list(self.chat_templates) == ["default"]:
            config["chat_template"] = self.chat_templates["default"]
        elif self.chat_templates:
            config["chat_template"] = [{"name": n, "template": t} for n, t in self.chat_templates.items()]
        return config


def load_tokenizer(directory: str | os.PathLike[str], config: Mapping[str, Any] | None = None) -> Tokenizer:
    """The tokenizer of a model directory, with the same ids as in `transformers`. config: its config.json, if read."""
    found = read_directory(Path(directory), config)
    return Tokenizer(
        found.raw,
        specials=found.specials,
        chat_templates=found.chat_templates,
        model_max_length=found.model_max_length,
        clean_up_spaces=found.clean_up_spaces,
        where=found.where,
    )


def _too_long(most: int) -> TooLong:
    return TooLong(f"The text has more than {most:,} tokens, which is all that fit: shorten it.")


def _replace(path: Path, text: str) -> None:
    """Write a file atomically."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
