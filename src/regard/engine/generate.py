"""The generation loop: prefill, then choose an id per row, append it and run a decode step, until every row is done. With
speculative decoding (prompt_lookup.py) a step can append several tokens.

In: a `Decoder` with the prompts, and a `RowState` per row. Out: tokens as they are chosen, and answers at the end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from regard.engine.beam_search import beam_search
from regard.engine.decoder import Decoder, prefill_rows
from regard.engine.native_engine import NativeDecoder
from regard.engine.prompt_lookup import PromptLookup
from regard.engine.sampling import RowState, StopStrings, next_ids, top_logprobs
from regard.engine.settings import Settings
from regard.engine.top_k import Floats
from regard.errors import GenerationError
from regard.text.tokenizer import Tokenizer


@dataclass
class Token:
    """One generated token: which answer it belongs to, and its log-probability under the model's own distribution."""

    row: int
    id: int
    logprob: float
    text: str = ""  # what it adds to the answer; empty while a character or a possible stop string is incomplete
    alternatives: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Answer:
    """The finished answer of one row: `finished` is "stop" (an end token or a stop string) or "length"."""

    text: str
    ids: list[int]
    logprobs: list[float]
    finished: str
    score: float | None = None  # beam search: the sum of log-probabilities under its length penalty


class TextWriter:
    """Decodes one row's ids to text as they are generated, and ends it at a stop string."""

    def __init__(self, tokenizer: Tokenizer | None, settings: Settings) -> None:
        self.stream = tokenizer.stream() if tokenizer else None
        self.stops = StopStrings(settings.stop)
        self.text, self.ids, self.logprobs = "", list[int](), list[float]()

    def push(self, id: int, logprob: float, end: bool) -> str:
        """Append an id; returns the text that may now be shown. An end token is among the ids but adds no text."""
        self.ids.append(id)
        self.logprobs.append(logprob)
        if self.stream is None or end:
            return ""
        return self._show(self.stops.push(self.stream.push(id))[0])

    def take(self, row: RowState, id: int, logprob: float) -> str:
        """Append the id that a row has just chosen; returns the text that may now be shown. A stop string ends the row."""
        text = self.push(id, logprob, id in row.settings.eos_token_id)
        if self.stops.stopped:
            row.finished = "stop"
        return text + self.close() if row.done else text

    def close(self) -> str:
        """Flush the text withheld because a character or a possible stop string was incomplete."""
        if self.stream is None or self.stops.stopped:
            return ""
        shown, stopped = self.stops.push(self.stream.flush())
        return self._show(shown + ("" if stopped else self.stops.close()))

    def _show(self, text: str) -> str:
        self.text += text
        return text


def generate(
    decoder: Decoder,
    rows: Sequence[RowState],
    prompt_of: Sequence[int],
    tokenizer: Tokenizer | None = None,
    alternatives: int = 0,
) -> Iterator[Token | Answer]:
    """Tokens of all rows as they are chosen, then one `Answer` per row, in order.

    `prompt_of[i]` is the decoder's row that row i continues: a prompt is prefilled once for all of its samples.
    """
    speculative = any(row.settings.prompt_lookup for row in rows)
    if speculative and not isinstance(decoder, NativeDecoder):
        raise GenerationError("prompt_lookup needs the native engine, which is not in use here: leave it out.")
    chooser = TokenChooser(rows, tokenizer, alternatives)
    alive = [i for i, row in enumerate(rows) if not row.done]
    if alive:
        yield from chooser.choose(prefill_rows(decoder, [prompt_of[i] for i in alive]), alive)
        if speculative and isinstance(decoder, NativeDecoder):
            yield from _speculative(decoder, chooser, alive)
        else:
            yield from _one_token_per_step(decoder, chooser, alive)
    for writer, row in zip(chooser.writers, rows, strict=True):
        yield Answer(writer.text, writer.ids, writer.logprobs, row.finished or "length")


class TokenChooser:
    """Chooses the next ids of all rows of a request and decodes them to text."""

    def __init__(self, rows: Sequence[RowState], tokenizer: Tokenizer | None, alternatives: int) -> None:
        self.rows, self.alternatives = rows, alternatives
        self.writers = [TextWriter(tokenizer, row.settings) for row in rows]

    def choose(self, logits: Floats, which: Sequence[int]) -> list[Token]:
        """Choose the next token of each row in `which` from its row of logits."""
        others = top_logprobs(logits, self.alternatives) if self.alternatives else None
        ids, logprobs = next_ids(logits, [self.rows[i] for i in which])
        tokens = []
        for j, (i, id, logprob) in enumerate(zip(which, ids.tolist(), logprobs.tolist(), strict=True)):
            text = self.writers[i].take(self.rows[i], id, logprob)
            listed = list(zip(others[0][j].tolist(), others[1][j].tolist(), strict=True)) if others else []
            tokens.append(Token(i, id, logprob, text, listed))
        return tokens

    def unfinished(self, decoder: Decoder, alive: list[int]) -> list[int]:
        """The indices in `alive` of rows that are not done; the others leave the decoder's batch."""
        left = [j for j, i in enumerate(alive) if not self.rows[i].done]
        if 0 < len(left) < len(alive):
            decoder.pick(left)
        return left


def _one_token_per_step(decoder: Decoder, chooser: TokenChooser, alive: list[int]) -> Iterator[Token]:
    while left := chooser.unfinished(decoder, alive):
        alive = [alive[j] for j in left]
        yield from chooser.choose(decoder.step([chooser.rows[i].ids[-1] for i in alive]), alive)


def _speculative(decoder: NativeDecoder, chooser: TokenChooser, alive: list[int]) -> Iterator[Token]:
    """Speculative decoding with prompt lookup: the same tokens, but a row's step appends as many as were drafted right,
    and one more."""
    rows, lookups = chooser.rows, [PromptLookup(row.settings.prompt_lookup) for row in chooser.rows]
    while left := chooser.unfinished(decoder, alive):
        alive = [alive[j] for j in left]
        drafts = [lookups[i].draft(rows[i].ids, decoder.max_length - len(rows[i].ids)) for i in alive]
        computed = decoder.extend([[rows[i].ids[-1], *draft] for i, draft in zip(alive, drafts, strict=True)])
        for i, draft, logits in zip(alive, drafts, computed, strict=True):
            accepted = 0
            for at, drafted in zip(logits, [*draft, None], strict=True):
                (token,) = chooser.choose(at[None], [i])
                yield token
                if rows[i].done or token.id != drafted:
                    break
                accepted += 1
            lookups[i].adapt(len(draft), accepted)
        decoder.truncate([len(rows[i].ids) - 1 for i in alive])  # the newest id of a row is not in its KV cache yet


def search(decoder: Decoder, rows: Sequence[RowState], tokenizer: Tokenizer | None = None) -> list[list[Answer]]:
    """Beam search: for each row its `n` best answers, best first."""
    answers = []
    for row, beams in zip(rows, beam_search(decoder, rows), strict=True):
        kept = []
        for beam in beams[: row.settings.n]:
            writer = TextWriter(tokenizer, row.settings)
            for id in beam.ids:
                writer.push(id, 0.0, id in row.settings.eos_token_id)
            writer.close()
            kept.append(Answer(writer.text, list(beam.ids), list(beam.logprobs), beam.finished, beam.score))
        answers.append(kept)
    return answers
