"""Sampling: from logits to the next id, by temperature, top_k, top_p, min_p, typical_p, penalties, bans; and stop strings.

In: the logits (B, n_vocab) of the newest position and one `RowState` per row. Out: an id per row and its
log-probability. Rows share nothing: each has its own settings, history and random numbers, so that a row's answer does
not depend on the batch it is in, and rows may join and leave the batch between steps.

What happens to a row of logits, in the order of Hugging Face's `generate`, so that equal logits give its distribution:

1. `adjust` makes scores: logit_bias is added; repetition_penalty p divides the positive and multiplies the negative
   scores of every id in prompt or answer; presence_penalty + frequency_penalty · count is subtracted for every id in
   the answer (OpenAI's, which Hugging Face lacks); repeated n-grams, bad words and too early ends are banned (-∞);
   a forced token is made the only one; suppressed tokens are banned.
2. temperature 0: the highest score, of equal ones the lowest id. Else a sample, after the cuts top_k (keeps all that
   tie with the k-th), top_p (keeps the token that crosses p), min_p and typical_p, each on what the former left.

**The sample, defined to the bit**, so that any other implementation can draw the same token from the same scores:

- Order: tokens are sorted by falling score, equal scores by rising id.
- Weight: w = floor(2⁴⁰ · exp((score - highest score) / temperature)) in float64. Sums of these integers are exact
  whatever the order of adding, and a token is left out by rounding only if it is 2⁴⁰ times less likely than the best.
- Cuts: with `before` the sum of the weights before a token and W the weight of all that top_k left, top_p keeps it where
  before < top_p · W, min_p where w ≥ min_p · 2⁴⁰. typical_p takes what these leave by rising |-log p - entropy| until
  its share of their weight is reached, and all that tie with the last one taken.
- Draw: with W the weight of all tokens kept and u the row's random 64 bits for this step, r = floor(u · W / 2⁶⁴); the
  token is the first whose weight added to all before it exceeds r.
- Random bits: u = mix(key + (step + 1) · γ) and key = mix(mix(seed) + sample), modulo 2⁶⁴, with the output function mix
  and the constant γ of SplitMix64 (Steele, Lea, Flood 2014); step counts the answer's tokens, sample the n answers.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.engine.settings import Settings
from regard.engine.top_k import Floats, Ids, log_totals, ranked
from regard.errors import GenerationError
from regard.splitmix64 import GAMMA, mix

_ONE = 2**40  # the weight of the best token
_POOL = 256  # candidates ranked first when the settings do not say how many are needed


def random_bits(seed: int, sample: int, step: int) -> int:
    """64 random bits that depend on these three numbers and on nothing else."""
    bits: int = mix(mix(mix(seed) + sample) + (step + 1) * GAMMA)
    return bits


class RowState:
    """The sampling state of one sequence: its settings, its ids, and the counts that penalties and bans need.

    `prompt` is what the decoder prefills: the prompt's ids, or an encoder-decoder's start token. `limit` is the number
    of new tokens after which the row is finished, if there is one. `finished` says why a row is finished: "stop" for an
    end token (or a stop string, which the caller detects), or "length".
    """

    def __init__(self, settings: Settings, prompt: Sequence[int], *, sample: int = 0, limit: int | None = None) -> None:
        self.settings = settings.seeded()
        self.sample = sample
        self.limit = limit
        self.ids = list(prompt)
        self.prompt_length = len(self.ids)
        self.finished: Literal["stop", "length"] | None = "length" if limit == 0 else None
        self.seen = dict.fromkeys(self.ids)  # each id of prompt and answer once, in order
        self.counts: dict[int, int] = {}  # how often each id occurs in the answer
        self._followers: dict[tuple[int, ...], tuple[int, ...]] = {}  # n - 1 ids → the ids that came after them
        self._bad_words = _by_beginning(settings)
        for length in range(1, self.prompt_length + 1):
            self._note_ngram(length)

    @property
    def step(self) -> int:
        """The number of tokens in the answer so far."""
        return len(self.ids) - self.prompt_length

    @property
    def done(self) -> bool:
        return self.finished is not None

    def push(self, id: int) -> None:
        """Append a chosen id to the answer."""
        self.ids.append(id)
        self.seen[id] = None
        self.counts[id] = self.counts.get(id, 0) + 1
        self._note_ngram(len(self.ids))
        if id in self.settings.eos_token_id:
            self.finished = "stop"
        elif self.step == self.limit:
            self.finished = "length"

    def fork(self, sample: int | None = None) -> "RowState":
        """An independent row with the same history: another sample of the prompt, or a beam that splits."""
        twin = object.__new__(RowState)
        twin.__dict__ = dict(self.__dict__)
        twin.ids, twin.seen, twin.counts = list(self.ids), dict(self.seen), dict(self.counts)
        twin._followers = dict(self._followers)
        twin.sample = self.sample if sample is None else sample
        return twin

    def draw(self, total: int) -> int:
        """This step's random whole number from 0 up to but not including `total`."""
        assert self.settings.seed is not None
        return random_bits(self.settings.seed, self.sample, self.step) * total >> 64

    def banned(self) -> list[int]:
        """Ids that would repeat an n-gram, complete a bad word or end the answer too early."""
        size, settings = self.settings.no_repeat_ngram_size, self.settings
        banned: list[int] = []
        if 0 < size <= len(self.ids):
            banned += self._followers.get(tuple(self.ids[len(self.ids) - size + 1 :]), ())
        for length, words in self._bad_words.items():
            if length <= len(self.ids):
                banned += words.get(tuple(self.ids[len(self.ids) - length :]), ())
        if self.step < settings.min_new_tokens or len(self.ids) < settings.min_length:
            banned += settings.eos_token_id
        return banned

    def forced(self) -> tuple[int, ...]:
        """The only ids allowed now: a forced end token at the last step, or a forced first token after the start token."""
        if self.limit is not None and self.step == self.limit - 1 and self.settings.forced_eos_token_id:
            return self.settings.forced_eos_token_id
        first = self.settings.forced_bos_token_id
        return (first,) if first is not None and len(self.ids) == 1 else ()

    def suppressed(self) -> tuple[int, ...]:
        """Ids that are always banned, and those banned at the answer's first token (the one after a forced one, if any)."""
        begin = 1 if self.prompt_length <= 1 and self.settings.forced_bos_token_id is not None else 0
        return self.settings.suppress_tokens + (self.settings.begin_suppress_tokens if self.step == begin else ())

    def _note_ngram(self, length: int) -> None:
        """Enter the n-gram that ends the first `length` ids into the table."""
        size = self.settings.no_repeat_ngram_size
        if 0 < size <= length:
            *beginning, last = self.ids[length - size : length]
            self._followers[tuple(beginning)] = (*self._followers.get(tuple(beginning), ()), last)


def _by_beginning(settings: Settings) -> dict[int, dict[tuple[int, ...], list[int]]]:
    """Bad words as: length of the prefix → prefix → last ids. A word that is just an end token is ignored."""
    table: dict[int, dict[tuple[int, ...], list[int]]] = {}
    for *beginning, last in settings.bad_words_ids:
        if beginning or last not in settings.eos_token_id:
            table.setdefault(len(beginning), {}).setdefault(tuple(beginning), []).append(last)
    return table


def start(settings: Settings, prompt: Sequence[int], limit: int | None = None) -> list[RowState]:
    """The `n` rows of one request; they share one seed, which is set in their settings."""
    first = RowState(settings, prompt, limit=limit)
    return [first] + [first.fork(sample) for sample in range(1, settings.n)]


def next_ids(logits: Floats, rows: Sequence[RowState]) -> tuple[Ids, Floats]:
    """Choose one id per row and push it: ids (B,) and their log-probabilities (B,) under the model's own distribution.

    If every token of a row is banned, this raises before any row is changed, so the caller can then go row by row.
    """
    scores = adjust(logits, rows)
    _refuse_hopeless(scores)
    hot = _hot(rows)
    ids = _sample(scores, rows) if len(hot) == len(rows) else scores.argmax(-1)
    if 0 < len(hot) < len(rows):
        ids[hot] = _sample(scores[hot], [rows[i] for i in hot])
    for row, id in zip(rows, ids.tolist(), strict=True):
        row.push(id)
    return ids, logprobs(logits, ids[:, None])[:, 0]


def logprobs(logits: Floats, ids: Ids) -> Floats:
    """log softmax(logits) at ids (B, m): the model's own log-probabilities, before any setting changed the scores."""
    return np.take_along_axis(logits, ids, -1) - log_totals(logits)


def top_logprobs(logits: Floats, count: int) -> tuple[Ids, Floats]:
    """The `count` most likely ids of each row, best first, and their log-probabilities: both (B, count)."""
    _, ids = ranked(logits, min(count, logits.shape[-1]))
    return ids, logprobs(logits, ids)


def distribution(logits: Floats, rows: Sequence[RowState]) -> NDArray[np.float64]:
    """The probabilities (B, n_vocab), in float64, with which `next_ids` chooses each token."""
    scores = adjust(logits, rows)
    _refuse_hopeless(scores)
    P = np.zeros(scores.shape)
    P[np.arange(len(rows)), scores.argmax(-1)] = 1
    if hot := _hot(rows):
        ids, weights, total, _ = _Cuts(scores[hot], [rows[i] for i in hot]).pool(scores.shape[-1])
        P[np.array(hot)[:, None], ids] = weights / total
    return P


def adjust(logits: Floats, rows: Sequence[RowState], *, copy: bool = True) -> Floats:
    """Scores (B, n_vocab): the logits (or, for beams, log-probabilities) after step 1 above."""
    scores = logits.copy() if copy else logits
    every = [row.settings for row in rows]

    def numbers(values: Iterable[float]) -> Floats:
        return np.array(list(values), np.float32)

    def entries(listed: Sequence[Collection[int]]) -> tuple[Ids, Ids] | None:
        """(row numbers, ids): an index of the listed ids of all rows; None if there are none."""
        sizes = [len(ids) for ids in listed]
        if not any(sizes):
            return None
        ids = np.fromiter(chain.from_iterable(listed), np.int64, sum(sizes))
        return np.repeat(np.arange(len(listed)), sizes), ids

    if at := entries([each.logit_bias for each in every]):
        scores[at] += numbers(chain.from_iterable(each.logit_bias.values() for each in every))
    if at := entries([row.seen if row.settings.repetition_penalty != 1 else () for row in rows]):
        S, penalty = scores[at], numbers(each.repetition_penalty for each in every)[at[0]]
        scores[at] = np.where(S < 0, S * penalty, S / penalty)
    penalised = [row.counts if row.settings.presence_penalty or row.settings.frequency_penalty else {} for row in rows]
    if at := entries(penalised):
        presence = numbers(each.presence_penalty for each in every)[at[0]]
        frequency = numbers(each.frequency_penalty for each in every)[at[0]]
        scores[at] -= presence + frequency * numbers(chain.from_iterable(counts.values() for counts in penalised))
    if at := entries([row.banned() for row in rows]):
        scores[at] = -math.inf
    for i, row in enumerate(rows):
        if forced := row.forced():
            scores[i] = -math.inf
            scores[i, list(forced)] = 0.0
    if at := entries([row.suppressed() for row in rows]):
        scores[at] = -math.inf
    return scores


def _refuse_hopeless(scores: Floats) -> None:
    """Refuse rows in which every token is banned, or whose scores are NaN or infinite."""
    for i, best in enumerate(scores.max(-1).tolist()):
        if best == -math.inf:
            raise GenerationError(
                f"Every token of row {i} is banned: loosen suppress_tokens, bad_words_ids and the like."
            )
        if not math.isfinite(best):
            raise GenerationError(f"The logits of row {i} hold {best}: the model's weights or its input are damaged.")


def _hot(rows: Sequence[RowState]) -> list[int]:
    """The numbers of the rows that sample; the others take the highest score."""
    return [i for i, row in enumerate(rows) if row.settings.temperature > 0]


def _sample(scores: Floats, rows: Sequence[RowState]) -> Ids:
    """Draw one id per row, ranking no more of the vocabulary than the draw needs."""
    cuts = _Cuts(scores, rows)
    width = cuts.first_width
    while True:
        ids, weights, total, known = cuts.pool(width)
        r = np.array([[row.draw(W)] for row, W in zip(rows, total[:, 0].tolist(), strict=True)])
        position = (weights.cumsum(-1) <= r).sum(-1, keepdims=True)
        if (known & (position < width)).all():
            return np.take_along_axis(ids, position, -1)[:, 0]
        width = min(16 * width, scores.shape[-1])


class _Cuts:
    """top_k, top_p, min_p and typical_p of every row, applied to a pool: the first tokens of the order.

    All but typical_p keep a prefix of the order. So a row's cuts are known as soon as the last token of a pool is cut,
    and a row without cuts needs its pool only as far as the draw reaches: the whole vocabulary is rarely sorted.
    """

    def __init__(self, scores: Floats, rows: Sequence[RowState]) -> None:
        every, n_vocab = [row.settings for row in rows], scores.shape[-1]
        columns = np.array([[s.temperature, s.top_p, s.min_p, s.typical_p] for s in every]).T[..., None]
        self.temperature, self.top_p, self.min_p, self.typical_p = columns  # (B, 1) each
        self.top_k = np.array([[min(s.top_k, n_vocab)] for s in every])
        self.open = self.top_k == 0
        self.uncut = self.open & (self.top_p == 1) & (self.min_p == 0) & (self.typical_p == 1)
        self.first_width = min(max(s.top_k + 1 if s.top_k else _POOL for s in every), n_vocab)
        self.scores = scores
        self.highest = scores.max(-1, keepdims=True).astype(np.float64)
        self.everything = np.zeros_like(self.top_k)  # (B, 1), the weight of the whole vocabulary where top_k is off
        if self.open.any():
            self.everything = _weights(self._log_weights(scores)).sum(-1, keepdims=True)

    def pool(self, width: int) -> tuple[Ids, np.ndarray, np.ndarray, np.ndarray]:
        """The first `width` tokens: their ids (B, width); their weights (B, width), 0 for those that are cut; the weight
        (B, 1) of all tokens kept, also beyond the pool; and whether the pool was wide enough to know it (B, 1)."""
        S, ids = ranked(self.scores, width)
        X = self._log_weights(S)
        weights = _weights(X)
        keep = self.open | (np.take_along_axis(S, np.maximum(self.top_k - 1, 0), -1) <= S)
        weights *= keep
        W = np.where(self.open, self.everything, weights.sum(-1, keepdims=True))
        bound = np.where(self.top_p < 1, np.ceil(self.top_p * W).astype(np.int64), W)
        keep &= (weights.cumsum(-1) - weights < bound) & (weights >= self.min_p * _ONE)
        sure = (S[:, -1:] < S) | (width == self.scores.shape[-1])  # does not tie with a token beyond the pool
        weights *= keep & sure
        reached = (sure | ~keep).all(-1, keepdims=True)
        if (self.typical_p < 1).any():
            weights = np.where(self.typical_p < 1, _typical(X, weights, self.typical_p), weights)
        return ids, weights, np.where(reached, weights.sum(-1, keepdims=True), W), reached | self.uncut

    def _log_weights(self, scores: Floats) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):  # a temperature near 0 gives -∞ for all but the best
            return (scores.astype(np.float64) - self.highest) / self.temperature


def _weights(log_weights: NDArray[np.float64]) -> NDArray[np.int64]:
    return (np.exp(log_weights) * _ONE).astype(np.int64)


def _typical(X: np.ndarray, weights: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Keep the tokens whose surprise is nearest the expected surprise, up to `mass` (Meister et al. 2022)."""
    W = np.maximum(weights.sum(-1, keepdims=True), 1)  # the sum is 0 in a pool where no token is certain yet
    surprise = np.where(weights > 0, np.log(W / _ONE) - X, 0.0)  # (B, width), -log p
    entropy = (surprise * weights / W).sum(-1, keepdims=True)
    distance = np.where(weights > 0, np.abs(surprise - entropy), np.inf)
    nearest = distance.argsort(-1, kind="stable")
    last = (np.take_along_axis(weights, nearest, -1).cumsum(-1) < mass * W).sum(-1, keepdims=True)
    farthest = np.take_along_axis(nearest, np.minimum(last, X.shape[-1] - 1), -1)
    return weights * (distance <= np.take_along_axis(distance, farthest, -1))


class StopStrings:
    """Finds the first stop string in streamed text; no part of it is ever shown.

    First is the one that is complete first; of several complete at the same character, the longest. Text that could
    still become a stop string is withheld; `close` returns it when the text is over.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stopped = False
        self._stops = tuple(stops)
        self._shorter = [_borders(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)  # how much of each stop string the text now ends with
        self._withheld = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Append the next piece; returns the text that may now be shown, and whether a stop string has been found."""
        if self.stopped:
            return "", True
        pending, before = self._withheld + text, len(self._withheld)
        for end, character in enumerate(text, before + 1):
            if found := self._advance(character):
                self.stopped, self._withheld = True, ""
                return pending[: end - found], True
        shown = len(pending) - max(self._matched, default=0)
        self._withheld = pending[shown:]
        return pending[:shown], False

    def close(self) -> str:
        """The withheld text, when no more will be pushed."""
        withheld, self._withheld = self._withheld, ""
        return withheld

    def _advance(self, character: str) -> int:
        """Match one more character (Knuth, Morris, Pratt 1977): the length of the stop string it completes, or 0."""
        found = 0
        for i, stop in enumerate(self._stops):
            length = self._matched[i]
            while length and stop[length] != character:
                length = self._shorter[i][length - 1]
            self._matched[i] = length = length + (stop[length] == character)
            if length == len(stop):
                found = max(found, length)
        return found


def _borders(text: str) -> list[int]:
    """For each prefix of text, the length of its longest proper prefix that is also its suffix (KMP's failure table)."""
    borders = [0] * len(text)
    for i in range(1, len(text)):
        length = borders[i - 1]
        while length and text[length] != text[i]:
            length = borders[length - 1]
        borders[i] = length + (text[length] == text[i])
    return borders
