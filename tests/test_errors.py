"""What every error has in common."""

from regard.errors import LONGEST, RegardError


def test_a_sentence_that_quotes_a_file_stays_a_sentence() -> None:
    said = f"config.json has the key {'a' * 10**6!r}; remove it."
    short = str(RegardError(said))
    assert len(short) <= LONGEST
    assert short.startswith("config.json has the key 'aaa")
    assert short.endswith("aaa'; remove it.")
    assert str(RegardError("All is said.")) == "All is said."
