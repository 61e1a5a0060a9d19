"""What every error has in common."""

from regard.errors import MAX_MESSAGE, RegardError, quoted


def test_a_sentence_that_quotes_a_file_stays_a_sentence() -> None:
    said = f"config.json has the key {'a' * 10**6!r}; remove it."
    short = str(RegardError(said))
    assert len(short) <= MAX_MESSAGE
    assert short.startswith("config.json has the key 'aaa")
    assert short.endswith("aaa'; remove it.")
    assert str(RegardError("All is said.")) == "All is said."


def test_what_is_quoted_shows_where_it_was_cut() -> None:
    assert quoted("a" * 80) == repr("a" * 80)
    assert quoted("a" * 81) == "'" + "a" * 79 + "…"
    assert quoted("\x1b[31m") == r"'\x1b[31m'"
    assert quoted(["a" * 200]) == "['" + "a" * 78 + "…"
