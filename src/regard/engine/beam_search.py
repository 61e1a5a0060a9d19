"""Beam search: keep the k best unfinished sequences (beams) at every decode step, and the k best finished ones.

Scores are sums of log-probabilities; a finished sequence's is divided by its length (the end token included) to the power
of `length_penalty`. Sequences and scores are those of Hugging Face's `generate` on equal logits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.engine.decoder import Decoder, prefill_rows
from regard.engine.sampling import RowState, adjust
from regard.engine.settings import Settings
from regard.engine.top_k import Floats, Ids, log_totals, ranked

NEVER = -1.0e9  # the score of a beam that does not exist


@dataclass(frozen=True)
class Beam:
    """A finished beam."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # the model's own, before any setting changed the scores
    score: float
    finished: str  # "stop" or "length"


class Search:
    """The running and finished beams of one prompt."""

    def __init__(self, row: RowState) -> None:
        self.settings: Settings = row.settings
        self.k = row.settings.num_beams
        self.running = [row] + [row.fork() for _ in range(self.k - 1)]
        self.logprobs: list[tuple[float, ...]] = [()] * self.k  # of each running beam's tokens so far
        self.scores = [0.0] + [NEVER] * (self.k - 1)  # at first all beams are the same: only one counts
        self.over = row.done
        self.finished = [Beam((), (), 0.0, row.finished)] * self.k if row.finished else []  # max_new_tokens=0

    @property
    def width(self) -> int:
        """Candidates to rank: enough that k unfinished ones are among them even if every end token ranks high."""
        return max(2, 1 + len(self.settings.eos_token_id)) * self.k

    def advance(self, candidates: list[tuple[float, int, int, float]]) -> list[int]:
        """Continue with the best candidates (score, beam, id, the id's own log-probability); returns each new beam's
        parent."""
        going = list[tuple[float, int, int, float]]()
        ended = list[Beam]()
        for rank, (score, beam, id, own) in enumerate(candidates):
            row = self.running[beam]
            end, full = id in self.settings.eos_token_id, row.step + 1 == row.limit
            if not (end or full):
                going.append((score, beam, id, own))
            elif rank < self.k and score > NEVER / 2:  # as in transformers, only the first k may finish
                ids = (*row.ids[row.prompt_length :], id)
                final = score / len(ids) ** self.settings.length_penalty
                ended.append(Beam(ids, (*self.logprobs[beam], own), final, "stop" if end else "length"))
        self._keep(ended)
        if not going:
            self.over = True
            return []
        going = going[: self.k]
        parents = [beam for _, beam, _, _ in going]
        self.logprobs = [(*self.logprobs[beam], own) for _, beam, _, own in going]
        self.scores = [score for score, _, _, _ in going]
        self.running = [self.running[beam].fork() for beam in parents]
        for row, (_, _, id, _) in zip(self.running, going, strict=True):
            row.push(id)
        self.over = self._hopeless()
        return parents

    def _keep(self, ended: list[Beam]) -> None:
        if not (self.settings.early_stopping is True and len(self.finished) == self.k):
            self.finished = sorted([*self.finished, *ended], key=lambda b: -b.score)[: self.k]

    def _hopeless(self) -> bool:
        """Whether no running beam can become better than the worst finished one, or early_stopping ends the search."""
        if len(self.finished) < self.k:
            return False
        if self.settings.early_stopping is True:
            return True
        row, penalty = self.running[0], self.settings.length_penalty
        longest = self.settings.early_stopping == "never" and penalty > 0 and row.limit is not None
        length = row.limit if longest else row.step
        assert length is not None
        return self.scores[0] / length**penalty <= self.finished[-1].score


def beam_search(decoder: Decoder, rows: Sequence[RowState]) -> list[list[Beam]]:
    """For each prompt its finished beams, best first."""
    searches = [Search(row) for row in rows]
    active = [s for s in searches if not s.over]
    logits = None
    if active:
        logits = prefill_rows(decoder, [i for i, s in enumerate(searches) if not s.over for _ in range(s.k)])
    while active and logits is not None:
        picked, ids, first = list[int](), list[int](), 0
        width = min(max(s.width for s in active), logits.shape[-1])  # no prompt needs more of any beam
        best, tokens, own = best_of_beams(logits, [row for s in active for row in s.running], width)
        for s in active:
            block = slice(first, first + len(s.running))
            parents = s.advance(best_continuations(s, best[block], tokens[block], own[block]))
            if not s.over:
                picked += [first + beam for beam in parents]
                ids += [row.ids[-1] for row in s.running]
            first = block.stop
        active = [s for s in active if not s.over]
        if active:
            decoder.pick(picked)
            logits = decoder.step(ids)
    return [s.finished for s in searches]


def best_of_beams(logits: Floats, rows: Sequence[RowState], width: int) -> tuple[Floats, Ids, Floats]:
    """Each beam's best tokens: their scores, the tokens, their own log-probabilities. The logits may be overwritten."""
    totals = log_totals(logits)
    if all(only_bans(row) for row in rows):  # a beam's order is that of its logits: only the best need become scores
        best, tokens = ranked(adjust(logits, rows, copy=False), width)
        return best - totals, tokens, best - totals
    scores = adjust(logits - totals, rows, copy=False)
    if rows[0].settings.renormalize_logits:
        scores -= log_totals(scores)
    best, tokens = ranked(scores, width)
    return best, tokens, np.take_along_axis(logits, tokens, -1) - totals


def only_bans(row: RowState) -> bool:
    """Whether the row's settings only ban tokens and change no other score."""
    s = row.settings
    changed = s.logit_bias or s.presence_penalty or s.frequency_penalty or s.repetition_penalty != 1
    return not (changed or s.renormalize_logits or row.forced())


def best_continuations(s: Search, best: Floats, ids: Ids, own: Floats) -> list[tuple[float, int, int, float]]:
    """The best candidates (score, beam, id, own log-probability) over all beams of one prompt, best first, from each
    beam's best tokens."""
    total = best + np.array(s.scores, np.float32)[:, None]  # (beams, width)
    scores, where = (x[0] for x in ranked(total.reshape(1, -1), min(s.width, total.size)))
    beams = where // total.shape[-1]
    listed = zip(*(x.tolist() for x in (scores, beams, ids.flatten()[where], own.flatten()[where])), strict=True)
    return [candidate for candidate in listed if candidate[0] > -math.inf]
