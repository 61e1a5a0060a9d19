"""Prompt lookup: draft tokens from earlier occurrences of the last ids."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regard.engine.prompt_lookup import FIRST, LONGEST, SHORTEST, PromptLookup


def test_drafts_what_followed_an_earlier_occurrence():
    assert PromptLookup(3).draft([0, 1, 2, 3, 4, 5, 9, 0, 1, 2], 10) == [3, 4, 5]
    assert PromptLookup(3).draft([0, 1, 2, 3, 4, 5, 9, 0, 1, 2], 2) == [3, 4]
    assert PromptLookup(3).draft([0, 1, 2, 3, 4, 5, 9, 1, 2], 10) == []  # two ids are too little


def test_the_longest_then_the_latest_match_counts():
    assert PromptLookup(1).draft([4, 1, 2, 3, 7, 0, 1, 2, 3, 8, 4, 1, 2, 3], 5) == [7]
    assert PromptLookup(1).draft([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], 5) == [8]


def test_a_loop_is_continued():
    lookup = PromptLookup(8)
    lookup.width = 8
    assert lookup.draft([4, 5, 6, 4, 5, 6, 4, 5], 8) == [6, 4, 5, 6, 4, 5, 6, 4]


def test_the_draft_length_follows_how_many_were_accepted():
    lookup = PromptLookup(16)
    assert lookup.width == FIRST
    lookup.adapt(3, 3)
    assert lookup.width == 6
    lookup.adapt(6, 2)
    assert lookup.width == 3
    lookup.adapt(3, 0)
    assert lookup.width == 1
    lookup.adapt(0, 0)  # without a draft nothing changes
    assert lookup.width == 1
    for _ in range(9):
        lookup.adapt(lookup.width, lookup.width)
    assert lookup.width == 16


@given(ids=st.lists(st.integers(0, 3), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=5))
@settings(max_examples=50, deadline=None)
def test_drafts_of_a_growing_sequence_equal_those_of_a_fresh_lookup(ids, cuts):
    grown = PromptLookup(3)
    for cut in sorted(cuts):
        grown.draft(ids[:cut], 3)
    assert grown.draft(ids, 3) == PromptLookup(3).draft(ids, 3) == by_definition(ids)


def by_definition(ids):
    for size in range(LONGEST, SHORTEST - 1, -1):
        ends = [end for end in range(size, len(ids)) if ids[end - size : end] == ids[len(ids) - size :]]
        if ends and size <= len(ids):
            whole = list(ids)
            for i in range(3):
                whole.append(whole[ends[-1] + i])
            return whole[len(ids) :]
    return []
