"""What is chosen of scores is what the definitions choose: greedy, samples, beams, the largest of anything."""

import pytest

import chosen


@pytest.mark.parametrize("law", chosen.LAWS)
def test_what_is_chosen_is_what_is_defined(law: str) -> None:
    chosen.LAWS[law]()
