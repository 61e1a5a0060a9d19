"""Each task's preprocessor: how a row of its files becomes token ids (and labels).

This module is imported by every process that tokenises, so it imports tokenizers and nothing heavier (no PyTorch).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.errors import DataError
from regard.text.chat_template import encode_chat
from regard.text.tokenizer import Tokenizer
from regard.train.preprocess import Example, PackedTokenizer, Shortened, Skip, smallest_dtype
from regard.train.row import Layout, Row

LAYOUTS = {
    "lm": Layout(("text",)),
    "mlm": Layout(("text",), document="paragraph"),
    "classify": Layout(("text", "label")),
    "tag": Layout(("tokens", "tags")),
    "translate": Layout(("source", "target")),
    "chat": Layout(("messages",)),
}


@dataclass
class Encoding:
    """What all tasks' preprocessors share: a tokenizer that can be pickled, and the maximum length of an example."""

    packed: PackedTokenizer
    longest: int
    labels: tuple[str, ...] = ()
    whole_word: bool = False
    numbers: dict[str, int] = field(init=False)

    task: ClassVar[str] = ""
    ids: ClassVar[tuple[str, ...]] = ("ids",)  # columns of token ids
    others: Mapping[str, str] = field(init=False, default_factory=dict)  # further columns

    def __post_init__(self) -> None:
        self.numbers = {label: i for i, label in enumerate(self.labels)}

    @property
    def tokenizer(self) -> Tokenizer:
        return self.packed.tokenizer

    @property
    def columns(self) -> Mapping[str, str]:
        return {**dict.fromkeys(self.ids, smallest_dtype(self.tokenizer.n_vocab)), **self.others}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"longest": self.longest, "labels": list(self.labels), "whole_word": self.whole_word}

    @property
    def tokenizer_sha256(self) -> str:
        return self.packed.sha256

    def number(self, label: str) -> int:
        if label not in self.numbers:
            known = ", ".join(self.labels[:8]) + ("…" if len(self.labels) > 8 else "")
            raise DataError(f"the label {label!r} is not one of {known}")
        return self.numbers[label]

    def too_long(self) -> Skip:
        return Skip(f"longer than {self.longest} tokens")


class LanguageModelEncoding(Encoding):
    """Packing: texts are concatenated, each followed by the end-of-text token, and later cut into blocks; a text may have
    any length."""

    task = "lm"

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}

    def encode(self, row: Row) -> Example:
        ids = self.packed.encode_bare(row["text"])
        end = self.tokenizer.eos_id
        return {"ids": [*ids, end] if row.get("ends", True) and end is not None else ids}


class MaskedEncoding(Encoding):
    """A text in pieces of at most `longest` tokens, each in [CLS] and [SEP]; `words` has the number of each id's word."""

    task = "mlm"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.others = {"words": "int32"}

    def encode(self, row: Row) -> list[Example] | Skip:
        t = self.tokenizer
        ids, words = t.encode_words([word for word, _, _ in t.words(row["text"])], add_special=False)
        if not ids:
            return Skip("without a word")
        step = self.longest - 2
        pieces: list[Example] = []
        for first in range(0, len(ids), step):
            part = [-1 if w is None else w for w in words[first : first + step]]
            base = min((w for w in part if w >= 0), default=0)
            numbers = [w - base if w >= 0 else w for w in part]
            framed = [t.cls_id or 0, *ids[first : first + step], t.sep_id or 0]
            pieces.append({"ids": framed, "words": [-1, *numbers, -1]})
        return pieces


class ClassifyEncoding(Encoding):
    """A text, truncated if it is too long, and the number of its label."""

    task = "classify"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.others = {"label": "int32"}

    def encode(self, row: Row) -> Example | Shortened:
        ids, label = self.packed.encode(row["text"]), [self.number(row["label"])]
        if len(ids) <= self.longest:
            return {"ids": ids, "label": label}
        beginning = [*ids[: self.longest - 1], ids[-1]]  # with its end token
        return Shortened({"ids": beginning, "label": label}, f"text beyond {self.longest} tokens")


class TagEncoding(Encoding):
    """The first piece of each word has the word's tag, stored as its number + 1; 0 is no tag."""

    task = "tag"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.others = {"tags": "int32"}

    def encode(self, row: Row) -> Example | Skip:
        ids, words = self.tokenizer.encode_words(row["tokens"])
        if len(ids) > self.longest:
            return self.too_long()
        seen, tags = set[int](), list[int]()
        for word in words:
            first = word is not None and word not in seen
            tags.append(self.number(row["tags"][word]) + 1 if first and word is not None else 0)
            if word is not None:
                seen.add(word)
        return {"ids": ids, "tags": tags}


class TranslateEncoding(Encoding):
    """A source and a target text."""

    task = "translate"
    ids = ("source", "target")

    def encode(self, row: Row) -> Example | Skip:
        pair = {side: self.packed.encode(row[side]) for side in self.ids}
        return self.too_long() if max(map(len, pair.values())) > self.longest else pair


class ChatEncoding(Encoding):
    """A conversation in the tokenizer's chat template; `said` is the loss mask, 1 at the assistant's tokens."""

    task = "chat"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.others = {"said": "uint16"}

    def encode(self, row: Row) -> Example | Skip:
        messages = row["messages"]
        ids = encode_chat(self.tokenizer, messages, add_generation_prompt=False)
        if len(ids) > self.longest:
            return self.too_long()
        said = [0] * len(ids)
        for i, message in enumerate(messages):
            if message["role"] == "assistant":
                first, last = self.span(messages, i, ids)
                said[first:last] = [1] * (last - first)
        return {"ids": ids, "said": said} if any(said) else Skip("without an answer of the assistant")

    def span(self, messages: Sequence[Mapping[str, Any]], i: int, ids: list[int]) -> tuple[int, int]:
        """Which ids are message i: from after its generation prompt to the end of its turn."""
        before = encode_chat(self.tokenizer, messages[:i], add_generation_prompt=True) if i else []
        upto = encode_chat(self.tokenizer, messages[: i + 1], add_generation_prompt=False)
        if ids[: len(before)] != before or ids[: len(upto)] != upto:
            raise DataError("the chat template rewrites earlier messages, so the assistant's tokens cannot be located")
        return len(before), len(upto)


ENCODINGS: dict[str, type[Encoding]] = {
    each.task: each
    for each in (
        LanguageModelEncoding,
        MaskedEncoding,
        ClassifyEncoding,
        TagEncoding,
        TranslateEncoding,
        ChatEncoding,
    )
}
