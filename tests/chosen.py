"""What the package chooses of scores, compared with the oracle. Each law raises an AssertionError where the two differ."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import oracle
from regard.engine import beam_search, sampling, top_k
from regard.engine.sampling import RowState
from regard.engine.settings import Settings
from regard.explain import logits

CLOSE = 1e-5  # float32


def scores() -> Iterator[np.ndarray]:
    """Rows (3, n) in float32: spread out, near each other, and such that many are equal."""
    random = np.random.default_rng(0)
    for n in (1, 2, 5, 24, 100, 1000):
        yield random.standard_normal((3, n)).astype(np.float32) * 4
        yield random.standard_normal((3, n)).astype(np.float32) * 0.01 + 30
        yield random.integers(-2, 3, (3, n)).astype(np.float32)
        yield np.zeros((3, n), np.float32)


def widths(n: int) -> list[int]:
    """How many are asked for: few, many, all; also so many that of equal ones not all fit."""
    return sorted({1, 2, 3, 7, n // 5, n - 1, n} & set(range(1, n + 1)))


def largest_come_first() -> None:
    for x in scores():
        for most in (0, *widths(x.shape[1]), x.shape[1] + 3):
            values, ids = logits.largest(x, most)
            assert ids.tolist() == [oracle.order(row)[:most] for row in x]
            assert values.tolist() == [[row[id] for id in oracle.order(row)[:most]] for row in x.tolist()]


def ranked_come_first() -> None:
    """Of tokens that tie with the last one, any may be among them."""
    for x in scores():
        for width in widths(x.shape[1]):
            values, ids = top_k.ranked(x, width)
            for row, found, at in zip(x.tolist(), values.tolist(), ids.tolist(), strict=True):
                expected = oracle.order(row)[:width]
                assert found == [row[id] for id in expected] == [row[id] for id in at]
                surely = sum(row[id] > found[-1] for id in expected)
                assert at[:surely] == expected[:surely]
                assert at[surely:] == sorted(set(at[surely:]))


def in_numpy(law: Callable[[], None]) -> Callable[[], None]:
    """As where the native library is not built."""

    def without() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(top_k, "library", lambda: None)
            law()

    return without


def sums_beneath_are_those_of_all() -> None:
    for x in scores():
        np.testing.assert_allclose(top_k.log_totals(x)[:, 0], oracle.log_sum_exp(x), rtol=CLOSE)
        np.testing.assert_allclose(logits.logsumexp(x), oracle.log_sum_exp(x), rtol=CLOSE)


def probabilities_are_shares() -> None:
    for x in scores():
        np.testing.assert_allclose(logits.softmax(x), oracle.softmax(x), rtol=CLOSE, atol=1e-30)
        expected = x - oracle.log_sum_exp(x)[:, None]
        np.testing.assert_allclose(logits.log_softmax(x), expected, rtol=CLOSE, atol=CLOSE)


def coldest_is_the_best() -> None:
    for x in scores():
        ids, own = sampling.next_ids(x, [RowState(Settings(), [0]) for _ in x])
        assert ids.tolist() == [oracle.best(row) for row in x]
        expected = [row[oracle.best(row)] - oracle.log_sum_exp(row) for row in x]
        np.testing.assert_allclose(own, expected, rtol=CLOSE, atol=CLOSE)


def reported_are_the_likeliest() -> None:
    for x in scores():
        ids, own = sampling.top_logprobs(x, 4)
        expected = [[row[id] - oracle.log_sum_exp(row) for id in oracle.order(row)[:4]] for row in x]
        np.testing.assert_allclose(own, expected, rtol=CLOSE, atol=CLOSE)
        likeliest = [[row[id] for id in oracle.order(row)[:4]] for row in x.tolist()]
        assert np.take_along_axis(x, ids, -1).tolist() == likeliest


CUTS: list[dict[str, Any]] = [
    {},
    {"top_k": 1},
    {"top_k": 6},
    {"top_p": 0.37},
    {"top_p": 0.931},
    {"min_p": 0.07},
    {"min_p": 0.73},
    {"typical_p": 0.47},
    {"typical_p": 0.913},
    {"top_k": 9, "top_p": 0.771, "min_p": 0.11},
    {"top_k": 12, "top_p": 0.913, "min_p": 0.013, "typical_p": 0.713},
]


def dice_are_loaded_as_defined() -> None:
    """The distribution that a sample is drawn from, after each cut and after several."""
    for x in scores():
        for temperature in (0.6, 1.0, 1.7):
            for cuts in CUTS:
                asked = Settings(temperature=temperature, seed=0, **cuts)
                found = sampling.distribution(x, [RowState(asked, [0]) for _ in x])
                expected = [oracle.distribution(row, temperature, **cuts) for row in x]
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6, err_msg=f"{cuts} {x.shape}")


class Chain:
    """A language of twelve tokens whose every next one depends on the two before it."""

    N = 12

    def __init__(self, seed: int) -> None:
        self.table = np.random.default_rng(seed).standard_normal((self.N, self.N, self.N)).astype(np.float32) * 2
        self.texts: list[list[int]] = [[0, 0]]

    def following(self, written: Sequence[int]) -> np.ndarray:
        *_, before, last = (0, 0, *written)
        return np.asarray(self.table[before, last])

    def prefill(self) -> np.ndarray:
        return np.stack([self.following(text) for text in self.texts])

    def step(self, ids: Sequence[int]) -> np.ndarray:
        self.texts = [[*text, id] for text, id in zip(self.texts, ids, strict=True)]
        return self.prefill()

    def pick(self, rows: Sequence[int]) -> None:
        self.texts = [self.texts[i] for i in rows]


def beams_are_the_search() -> None:
    for seed in range(4):
        for k, ends, penalty in ((2, [3], 1.0), (3, [5, 7], 0.4), (5, [], 1.0), (4, [1, 2], 2.0)):
            asked = Settings(num_beams=k, eos_token_id=tuple(ends), length_penalty=penalty)
            (found,) = beam_search.beam_search(Chain(seed), [RowState(asked, [0], limit=7)])
            expected = oracle.beam_search(Chain(seed).following, k, 7, ends, penalty)
            assert [list(each.ids) for each in found] == [text for _, text in expected]
            assert [each.score for each in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


def beams_enough_find_the_best_text() -> None:
    """With as many beams as there are tokens, nothing that two tokens say is overlooked."""
    for seed in range(4):
        (found,) = beam_search.beam_search(Chain(seed), [RowState(Settings(num_beams=Chain.N), [0], limit=2)])
        score, text = oracle.best_text(Chain(seed).following, 2, Chain.N)
        assert list(found[0].ids) == text
        assert found[0].score == pytest.approx(score / 2, abs=1e-5)


LAWS: dict[str, Callable[[], None]] = {
    "largest": largest_come_first,
    "ranked": ranked_come_first,
    "ranked in numpy": in_numpy(ranked_come_first),
    "sums": sums_beneath_are_those_of_all,
    "sums in numpy": in_numpy(sums_beneath_are_those_of_all),
    "probabilities": probabilities_are_shares,
    "greedy": coldest_is_the_best,
    "log-probabilities": reported_are_the_likeliest,
    "sampling": dice_are_loaded_as_defined,
    "sampling in numpy": in_numpy(dice_are_loaded_as_defined),
    "beams": beams_are_the_search,
    "enough beams": beams_enough_find_the_best_text,
}


def broken() -> str | None:
    """A law that does not hold."""
    for name, law in LAWS.items():
        try:
            law()
        except (AssertionError, IndexError, ValueError):  # ValueError: of shapes that do not fit
            return name
    return None
