"""Tokenizing long texts in pieces: where a text can be split without changing its ids, and when it has too many tokens.

In: a `tokenizers.Tokenizer`. Out: the pieces of a text, and whether its bytes alone imply more than so many tokens
(`token_bounds`). Encoding in pieces stops as soon as a text has too many tokens, and needs the memory of one piece.

A text is split before a space that follows a letter or a punctuation mark, in two kinds of pipeline, in the first also
before a newline that follows a letter or a digit; in other pipelines it stays in one piece.

*Where the pre-tokenizer splits there anyway* (ByteLevel's and the other known regular expressions, BERT's and the like,
which split at spaces, and Metaspace). The text before the split and the text after it do not affect each other's tokens,
because

- the normalizers allowed here change characters one by one or by Unicode's normal forms, in which a space neither changes
  nor combines with its neighbours;
- no match of the regular expressions has a space after a non-space, nor a newline after a letter or a digit (some have one
  after punctuation, and Metaspace does not split at one: there it is not a split point); they look ahead past spaces only
  (`\\s+(?!\\S)`) and never back; a repetition of other characters ends at a space as it does at the end of the text; and
  every other character is in some match, so none is left unmatched with the space;
- a piece that begins with a space gets no further one (`add_prefix_space`, Metaspace's `prepend_scheme`); one that begins
  with a newline would, so where spaces are added newlines are not split points either.

*Where a whole text is one word to BPE* (Llama's SentencePiece: spaces become `▁`, no pre-tokenizer). If no token has a
letter followed by `▁`, no BPE merge crosses the split, and BPE works on either side independently. If the normalizer
prepends `▁` to every text, it also does to the piece after the split: there the split replaces the space.

Added tokens are matched before all this, so none that a text may spell may contain a space after a non-space, nor absorb
neighbouring spaces (lstrip, rstrip) at a split.
"""

import json
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tokenizers

from regard.text.pretokenizers import SPLITS, WORD_SPLITS
from regard.text.token_bounds import MARK, SHRINKING, Bound, bounds_of, have_more, marks_spaces

LONG = 8192  # characters: shorter texts take a few milliseconds in one piece
WINDOW = 1 << 16  # characters searched for a split point before the GIL is released
# Letters in every Unicode version and under every normal form, so that all libraries agree on them
LETTERS = "A-Za-zа-ик-яА-ИК-Я一-龥가-힣"
VISIBLE = f"!-~{LETTERS}"
ACROSS = re.compile(f"[{LETTERS}]{MARK}")
HARMLESS = {*SHRINKING, "StripAccents", "BertNormalizer"}
AT_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


@dataclass(frozen=True)
class Pipeline:
    """How a tokenizer's long texts may be split. after: sets of characters after which a space is a split point; the first
    is used, the next if an added token rules it out. dropped: whether the space belongs to no piece. lines: whether
    newlines are split points too. bounds: lower bounds on the number of tokens."""

    after: tuple[str, ...] = ()
    dropped: bool = False
    lines: bool = False
    bounds: tuple[Bound, ...] = ()

    def pieces(self, text: str) -> Iterator[str]:
        """The pieces of a text, each as short as possible above `LONG` characters."""
        begin = 0
        if self.after:
            cuts = [f" (?<=[{self.after[0]}] )" + f"(?=[{self.after[0]}])" * self.dropped]
            if self.lines and self.after[0] == VISIBLE:
                cuts.append(rf"\n(?<=[0-9{LETTERS}]\n)")
            cut, look = re.compile("|".join(cuts)), LONG
            while look < len(text):
                # a window at a time: a search holds the GIL until it ends
                if found := cut.search(text, look, look + WINDOW + self.dropped):
                    yield text[begin : found.start()]
                    begin = found.start() + self.dropped
                    look = begin + LONG
                else:
                    look += WINDOW
        yield text[begin:]

    def has_more(self, text: str, tokens: int) -> bool:
        """Whether a text certainly has more than so many tokens, by its bytes alone."""
        return have_more(self.bounds, text, tokens)

    def of(self, encoder: tokenizers.Tokenizer) -> "Pipeline":
        """The same pipeline, restricted by this encoder's added tokens."""
        added = encoder.get_added_tokens_decoder().values()
        spelled = [token for token in added if not (token.special and encoder.encode_special_tokens)]
        after = tuple(each for each in self.after if all(self._allows(each, token, encoder) for token in spelled))
        bounds = [
            bound.with_spelled(spelling for token in spelled for spelling in _spellings(token, encoder))
            for bound in self.bounds
        ]
        if any(token.lstrip or token.rstrip for token in spelled):  # absorbs all neighbouring whitespace
            bounds = [bound for bound in bounds if not bound.counts_whitespace()]
        return Pipeline(after, self.dropped, self.lines, tuple(bounds))

    def _allows(self, after: str, token: tokenizers.AddedToken, encoder: tokenizers.Tokenizer) -> bool:
        """Whether an added token neither crosses a split nor absorbs the space there."""
        spellings = _spellings(token, encoder)
        if self.dropped:  # the space is dropped, so neither it nor the letter after it may begin a token
            return not token.normalized and not token.rstrip and not re.match(rf"[\s{after}]", token.content)
        across = any(re.search(rf"\S\s|{ACROSS.pattern}", spelling) for spelling in spellings)
        takes = token.rstrip and any(re.search(f"[{after}]$", spelling) for spelling in spellings)
        depends = token.single_word and any(spelling[:1].isspace() for spelling in spellings)  # on what is before it
        return not (across or takes or depends)


def pipeline_of(raw: tokenizers.Tokenizer) -> Pipeline:
    normal, before = _steps(raw.normalizer, "normalizers"), _steps(raw.pre_tokenizer, "pretokenizers")
    kinds = [stage["type"] for stage in normal]
    model = raw.model
    if getattr(model, "dropout", None):
        return Pipeline()  # BPE dropout: ids are random
    bounds = bounds_of(raw, normal, before)
    if not before and isinstance(model, tokenizers.models.BPE) and marks_spaces(normal):
        vocab = raw.get_vocab(with_added_tokens=False)
        affixes = model.ignore_merges or model.continuing_subword_prefix or model.end_of_word_suffix
        alone = MARK in vocab and not affixes and not any(ACROSS.search(token) for token in vocab)
        return Pipeline((LETTERS,) if alone else (), len(kinds) == 2, False, bounds)
    after = (VISIBLE, LETTERS) if set(kinds) <= HARMLESS and _splits_words(before) else ()
    lines = not any(_is_metaspace(stage) or stage.get("add_prefix_space") for stage in before)
    return Pipeline(after, False, lines, bounds)


def _spellings(token: tokenizers.AddedToken, encoder: tokenizers.Tokenizer) -> set[str]:
    """The spellings of an added token in a text, before and after normalization."""
    normal = token.normalized and encoder.normalizer is not None
    return {token.content, encoder.normalizer.normalize_str(token.content)} if normal else {token.content}


def _splits_words(stages: list[dict[str, Any]]) -> bool:
    """Whether a pre-tokenizer splits before every space that follows a non-space, whatever the context."""
    known = WORD_SPLITS.union(*(split.regexes for split in SPLITS.values()))
    splits = [each["type"] in AT_SPACES or _regex(each) in WORD_SPLITS or _is_metaspace(each) for each in stages]
    local = [each["type"] == "Digits" or _regex(each) in known for each in stages]
    if stages and stages[-1]["type"] == "ByteLevel":  # which writes spaces in another way, so nothing may come after it
        splits[-1], local[-1] = stages[-1]["use_regex"], True
    return any(splits) and all(map(operator.or_, splits, local))


def _regex(stage: dict[str, Any]) -> str | None:
    plain = stage["type"] == "Split" and stage["behavior"] == "Isolated" and not stage["invert"]
    return stage["pattern"].get("Regex") if plain else None


def _is_metaspace(stage: dict[str, Any]) -> bool:
    return stage["type"] == "Metaspace" and stage["replacement"] == MARK and stage["split"] is True


def _steps(stage: Any, children: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, sequences flattened."""
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
