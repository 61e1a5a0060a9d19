"""What is guessed of a text from what stands in it already."""

from hypothesis import given, settings
from hypothesis import strategies as st

from regard.engine.lookup import FIRST, LONGEST, SHORTEST, Lookup


def test_what_followed_before_is_guessed():
    assert Lookup(3).guess([0, 1, 2, 3, 4, 5, 9, 0, 1, 2], 10) == [3, 4, 5]
    assert Lookup(3).guess([0, 1, 2, 3, 4, 5, 9, 0, 1, 2], 2) == [3, 4]
    assert Lookup(3).guess([0, 1, 2, 3, 4, 5, 9, 1, 2], 10) == []  # two ids are too little


def test_the_longest_and_then_the_latest_place_counts():
    assert Lookup(1).guess([4, 1, 2, 3, 7, 0, 1, 2, 3, 8, 4, 1, 2, 3], 5) == [7]
    assert Lookup(1).guess([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], 5) == [8]


def test_circles_go_on():
    look = Lookup(8)
    look.width = 8
    assert look.guess([4, 5, 6, 4, 5, 6, 4, 5], 8) == [6, 4, 5, 6, 4, 5, 6, 4]


def test_it_guesses_as_much_as_pays():
    look = Lookup(16)
    assert look.width == FIRST
    look.learn(3, 3)
    assert look.width == 6
    look.learn(6, 2)
    assert look.width == 3
    look.learn(3, 0)
    assert look.width == 1
    look.learn(0, 0)  # no guess, nothing learnt
    assert look.width == 1
    for _ in range(9):
        look.learn(look.width, look.width)
    assert look.width == 16


@given(ids=st.lists(st.integers(0, 3), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_text_that_grew_gives_what_a_new_one_gives(ids, cuts):
    grown = Lookup(3)
    for cut in sorted(cuts):
        grown.guess(ids[:cut], 3)
    assert grown.guess(ids, 3) == Lookup(3).guess(ids, 3) == by_definition(ids)


def by_definition(ids):
    for size in range(LONGEST, SHORTEST - 1, -1):
        ends = [end for end in range(size, len(ids)) if ids[end - size : end] == ids[len(ids) - size :]]
        if ends and size <= len(ids):
            whole = list(ids)
            for i in range(3):
                whole.append(whole[ends[-1] + i])
            return whole[len(ids) :]
    return []
