"""The loop: choose an id, append it, ask for the next logits; until every row is done. With guesses (`lookup.py`), several
at a time.

In: a `Stepper` that has read the prompts, and a `RowState` per row. Out: tokens as they are chosen, and answers at the end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from regard.engine.beam import beam_search
from regard.engine.fast import FastDecoder
from regard.engine.lookup import Lookup
from regard.engine.rank import Floats
from regard.engine.sample import RowState, StopStrings, next_ids, top_logprobs
from regard.engine.settings import Settings
from regard.engine.stepper import Stepper, first_logits
from regard.errors import GenerationError
from regard.text.tokenizer import Tokenizer


@dataclass
class Token:
    """One generated token: which answer it belongs to, and how likely the model itself found it."""

    row: int
    id: int
    logprob: float
    text: str = ""  # what it adds to the text, once whole characters are there
    alternatives: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Answer:
    """What came of one row: `finished` is "stop" (an end token or a stop string) or "length"."""

    text: str
    ids: list[int]
    logprobs: list[float]
    finished: str
    score: float | None = None  # beam search: the sum of log-probabilities under its length penalty


class Writer:
    """Turns one row's ids into text, piece by piece, and watches for stop strings."""

    def __init__(self, tokenizer: Tokenizer | None, settings: Settings) -> None:
        self.stream = tokenizer.stream() if tokenizer else None
        self.stops = StopStrings(settings.stop)
        self.text, self.ids, self.logprobs = "", list[int](), list[float]()

    def push(self, id: int, logprob: float, end: bool) -> str:
        """The text that may now be shown. An end token is kept among the ids but says nothing."""
        self.ids.append(id)
        self.logprobs.append(logprob)
        if self.stream is None or end:
            return ""
        return self._show(self.stops.push(self.stream.push(id))[0])

    def take(self, row: RowState, id: int, logprob: float) -> str:
        """What the token that a row has just chosen lets be shown. A stop string ends the row."""
        text = self.push(id, logprob, id in row.settings.eos_token_id)
        if self.stops.stopped:
            row.finished = "stop"
        return text + self.close() if row.done else text

    def close(self) -> str:
        """What was held back for want of the rest of a character or of a stop string."""
        if self.stream is None or self.stops.stopped:
            return ""
        shown, stopped = self.stops.push(self.stream.flush())
        return self._show(shown + ("" if stopped else self.stops.close()))

    def _show(self, text: str) -> str:
        self.text += text
        return text


def generate(
    stepper: Stepper,
    rows: Sequence[RowState],
    prompt_of: Sequence[int],
    tokenizer: Tokenizer | None = None,
    alternatives: int = 0,
) -> Iterator[Token | Answer]:
    """Tokens of all rows as they come, then one `Answer` per row, in order.

    `prompt_of[i]` is the stepper's row that row i continues: a prompt is read once for all of its samples.
    """
    guessing = any(row.settings.prompt_lookup for row in rows)
    if guessing and not isinstance(stepper, FastDecoder):
        raise GenerationError("prompt_lookup needs the native engine, but PyTorch computes here: leave it out.")
    desk = Desk(rows, tokenizer, alternatives)
    alive = [i for i, row in enumerate(rows) if not row.done]
    if alive:
        yield from desk.choose(first_logits(stepper, [prompt_of[i] for i in alive]), alive)
        if guessing and isinstance(stepper, FastDecoder):
            yield from _by_guesses(stepper, desk, alive)
        else:
            yield from _one_by_one(stepper, desk, alive)
    for writer, row in zip(desk.writers, rows, strict=True):
        yield Answer(writer.text, writer.ids, writer.logprobs, row.finished or "length")


class Desk:
    """Where ids are chosen and become text: all rows of a request."""

    def __init__(self, rows: Sequence[RowState], tokenizer: Tokenizer | None, alternatives: int) -> None:
        self.rows, self.alternatives = rows, alternatives
        self.writers = [Writer(tokenizer, row.settings) for row in rows]

    def choose(self, logits: Floats, which: Sequence[int]) -> list[Token]:
        """The next tokens of the rows `which`, whose logits these are."""
        others = top_logprobs(logits, self.alternatives) if self.alternatives else None
        ids, logprobs = next_ids(logits, [self.rows[i] for i in which])
        tokens = []
        for j, (i, id, logprob) in enumerate(zip(which, ids.tolist(), logprobs.tolist(), strict=True)):
            text = self.writers[i].take(self.rows[i], id, logprob)
            listed = list(zip(others[0][j].tolist(), others[1][j].tolist(), strict=True)) if others else []
            tokens.append(Token(i, id, logprob, text, listed))
        return tokens

    def left(self, stepper: Stepper, alive: list[int]) -> list[int]:
        """Where in `alive` the rows stand that are not done; the stepper keeps only these."""
        left = [j for j, i in enumerate(alive) if not self.rows[i].done]
        if 0 < len(left) < len(alive):
            stepper.pick(left)
        return left


def _one_by_one(stepper: Stepper, desk: Desk, alive: list[int]) -> Iterator[Token]:
    while left := desk.left(stepper, alive):
        alive = [alive[j] for j in left]
        yield from desk.choose(stepper.step([desk.rows[i].ids[-1] for i in alive]), alive)


def _by_guesses(stepper: FastDecoder, desk: Desk, alive: list[int]) -> Iterator[Token]:
    """The same tokens; a row takes as many at a time as were guessed right, and one more."""
    rows, lookups = desk.rows, [Lookup(row.settings.prompt_lookup) for row in desk.rows]
    while left := desk.left(stepper, alive):
        alive = [alive[j] for j in left]
        guesses = [lookups[i].guess(rows[i].ids, stepper.longest - len(rows[i].ids)) for i in alive]
        read = stepper.read([[rows[i].ids[-1], *guess] for i, guess in zip(alive, guesses, strict=True)])
        for i, guess, logits in zip(alive, guesses, read, strict=True):
            taken = 0
            for place, guessed in zip(logits, [*guess, None], strict=True):
                (token,) = desk.choose(place[None], [i])
                yield token
                if rows[i].done or token.id != guessed:
                    break
                taken += 1
            lookups[i].learn(len(guess), taken)
        stepper.cut([len(rows[i].ids) - 1 for i in alive])  # the newest id of a row has not been read


def search(stepper: Stepper, rows: Sequence[RowState], tokenizer: Tokenizer | None = None) -> list[list[Answer]]:
    """Beam search: for each row its `n` best answers, best first."""
    answers = []
    for row, beams in zip(rows, beam_search(stepper, rows), strict=True):
        kept = []
        for beam in beams[: row.settings.n]:
            writer = Writer(tokenizer, row.settings)
            for id in beam.ids:
                writer.push(id, 0.0, id in row.settings.eos_token_id)
            writer.close()
            kept.append(Answer(writer.text, list(beam.ids), list(beam.logprobs), beam.finished, beam.score))
        answers.append(kept)
    return answers
