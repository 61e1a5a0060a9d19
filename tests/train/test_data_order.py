"""Data order: shuffles are permutations, batches cover the data within their budget, and every cursor resumes exactly."""

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.train.data_order import Batch, Batches, Cursor, Permutation, Windows


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64))
def test_a_permutation_is_a_bijection(n: int, key: int) -> None:
    permutation = Permutation(n, key)
    everything = permutation(np.arange(n))
    assert sorted(everything.tolist()) == list(range(n))
    assert [permutation[i] for i in (0, n // 2, n - 1)] == everything[[0, n // 2, n - 1]].tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(2**20, 2**62), st.integers(0, 100))
def test_a_large_permutation_stays_inside_and_apart(n: int, key: int) -> None:
    some = np.array([(n - 1) * i // 499 for i in range(500)])
    found = Permutation(n, key)(some)
    assert found.min() >= 0
    assert found.max() < n
    assert len(set(found.tolist())) == len(set(some.tolist()))


def test_permutations_do_not_change_between_versions() -> None:
    """Runs resumed with a later version must see the same order."""
    assert Permutation(10, 0, 0)(np.arange(10)).tolist() == [3, 2, 5, 0, 9, 1, 4, 8, 7, 6]
    assert Permutation(10**9, 1, 2)(np.arange(3)).tolist() == [939763022, 363438700, 139045538]


def test_permutations_look_random() -> None:
    """Positions are uniform over many keys, and neighbours do not stay neighbours."""
    n, keys = 6, 3000
    table = np.array([Permutation(n, key)(np.arange(n)) for key in range(keys)])
    for place in range(n):
        counts = np.bincount(table[:, place], minlength=n)
        assert ((counts - keys / n) ** 2 / (keys / n)).sum() < 25  # χ² with 5 degrees of freedom: p ≈ 0.0001
    assert len({tuple(row) for row in table.tolist()}) > 690  # of 720 orders, 709 would be seen by chance
    neighbours = np.diff(Permutation(10_000, 5)(np.arange(10_000)))
    assert (neighbours == 1).sum() < 10


def test_single_indices_are_checked() -> None:
    with pytest.raises(IndexError):
        Permutation(5, 1)[5]
    with pytest.raises(IndexError):
        Permutation(5, 1)[-1]


def lengths_of(n: int, longest: int = 40) -> Any:
    return np.random.default_rng(n).integers(1, longest + 1, n)


def all_of(batches: Batches, epoch: int = 0) -> list[Batch]:
    return list(batches.epoch(epoch))


KINDS: dict[str, dict[str, Any]] = {
    "fixed": {"batch_size": 7, "window": 21},
    "fixed, whole batches only": {"batch_size": 7, "window": 10, "drop_last": True},
    "budget": {"token_budget": 90, "lengths": lengths_of(100), "window": 32},
    "budget, few at a time": {"token_budget": 90, "lengths": lengths_of(100), "window": 32, "max_sentences": 4},
    "budget, lengths on demand": {"token_budget": 90, "lengths": lambda i: lengths_of(100)[i], "window": 32},
    "in order": {"batch_size": 7, "shuffle": False},
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_cursor_resumes_exactly(kind: dict[str, Any]) -> None:
    batches = Batches(100, seed=3, **kind)
    run = list(islice(batches, 3 * batches.count() + 5))
    assert {batch.after.epoch for batch in run} >= {0, 1, 2}
    for done, batch in enumerate(run[:-1], 1):
        cursor = Cursor.from_json(json.loads(json.dumps(batch.after.to_json())))
        afresh = Batches(100, seed=3, **kind)
        assert list(islice(afresh.from_cursor(cursor), len(run) - done)) == run[done:]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_epoch_has_every_example_once(kind: dict[str, Any]) -> None:
    batches = Batches(100, seed=3, **kind)
    for epoch in (0, 1):
        seen = [i for batch in all_of(batches, epoch) for i in batch.indices]
        assert len(seen) == len(set(seen)) == 100 - batches.dropped
        assert set(seen) <= set(range(100))
        assert len(all_of(batches, epoch)) == batches.count(epoch)
    assert batches.dropped == (2 if kind.get("drop_last") else 0)


def test_epochs_and_seeds_differ() -> None:
    orders = [
        tuple(i for batch in all_of(Batches(100, seed=seed, batch_size=7), epoch) for i in batch.indices)
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4
    in_order = Batches(10, seed=0, batch_size=4, shuffle=False)
    assert [batch.indices for batch in in_order.epoch()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=200),
    st.integers(50, 300),
    st.integers(1, 64),
    st.none() | st.integers(1, 5),
)
def test_batches_keep_their_budget(lengths: list[int], budget: int, window: int, most: int | None) -> None:
    array = np.array(lengths)
    batches = Batches(len(lengths), seed=1, token_budget=budget, lengths=array, window=window, max_sentences=most)
    found = [batch.indices for batch in batches.epoch()]
    assert all(indices and len(indices) * array[indices].max() <= budget for indices in found)
    assert all(len(indices) <= (most or len(lengths)) for indices in found)
    assert sorted(i for indices in found for i in indices) == list(range(len(lengths)))


def test_examples_of_similar_length_are_batched_together() -> None:
    lengths = lengths_of(5000, 100)
    batches = Batches(5000, seed=1, token_budget=2000, lengths=lengths)
    found = [batch.indices for batch in batches.epoch()]
    assert lengths.sum() / sum(len(i) * lengths[i].max() for i in found) > 0.95  # one in any order: about 0.52
    longest = np.array([lengths[indices].max() for indices in found])
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3  # short ones do not come first


def test_the_number_of_batches_can_be_estimated() -> None:
    batches = Batches(20_000, seed=1, token_budget=500, lengths=lengths_of(20_000), window=512)
    assert batches.estimate() == pytest.approx(batches.count(), rel=0.03)
    assert Batches(10, seed=0, batch_size=4).estimate() == Batches(10, seed=0, batch_size=4).count() == 3


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 60), st.sampled_from(["batch_size", "token_budget"]))
def test_ranks_divide_the_batch_of_a_single_process(world: int, n: int, how: str) -> None:
    kind: dict[str, Any] = {"batch_size": 8} if how == "batch_size" else {"token_budget": 90, "lengths": lengths_of(n)}
    alone = list(islice(Batches(n, seed=5, **kind), 12))
    ranks = [list(islice(Batches(n, seed=5, rank=r, world_size=world, **kind), 12)) for r in range(world)]
    for step, batch in enumerate(alone):
        parts = [rank[step].indices for rank in ranks]
        assert [i for part in parts for i in part] == batch.indices
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert {rank[step].after for rank in ranks} == {batch.after}


def test_what_cannot_be_batched_is_refused() -> None:
    lengths = np.array([3, 99, 5])
    with pytest.raises(DataError, match="Example 1 is 99 tokens long and does not fit a batch of 50"):
        Batches(3, seed=0, token_budget=50, lengths=lengths)
    with pytest.raises(DataError, match="Example 1 is 99 tokens long"):
        next(iter(Batches(3, seed=0, token_budget=50, lengths=lambda i: lengths[i])))
    with pytest.raises(DataError, match="3 examples, fewer than one batch of 4"):
        Batches(3, seed=0, batch_size=4, drop_last=True)
    with pytest.raises(DataError, match="No batches can be made of 0 examples"):
        Batches(0, seed=0, batch_size=4)
    with pytest.raises(ValueError, match="either a batch_size, or a token_budget"):
        Batches(3, seed=0)


@pytest.mark.parametrize("said", [{"epoch": -1}, {"epoch": 0.5}, {"epoch": True}, {"step": 1}])
def test_invalid_cursors_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="is not a position in the data"):
        Cursor.from_json(said)


def test_cursors_of_other_data_are_refused() -> None:
    assert Cursor.from_json({}) == Cursor(0, 0, 0)
    for cursor in (Cursor(0, 1, 0), Cursor(0, 0, 3)):
        with pytest.raises(DataError, match="belongs to other data"):
            next(Batches(10, seed=0, batch_size=4).from_cursor(cursor))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 500), st.integers(1, 40))
def test_windows_make_every_token_a_target_once(n_tokens: int, block_size: int) -> None:
    if n_tokens <= block_size:
        with pytest.raises(DataError, match=f"{n_tokens} tokens, too few for one block of {block_size}"):
            Windows(n_tokens, block_size)
        return
    windows = Windows(n_tokens, block_size)
    spans = [windows.span(i) for i in range(len(windows))]
    assert all(stop - start == block_size + 1 for start, stop in spans)
    targets = [i for start, stop in spans for i in range(start + 1, stop)]
    assert targets == list(range(1, n_tokens - windows.dropped))
    assert 0 <= windows.dropped < block_size
    with pytest.raises(IndexError):
        windows.span(len(windows))
