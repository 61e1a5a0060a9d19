"""Guesses at what comes next, from what stands in the text already: where a text repeats itself, several tokens are read in
one call instead of one (prompt lookup; speculative decoding is by Leviathan et al., 2022).

In: the ids so far. Out: the ids that followed the last few of them when they stood there before. Each token is still
chosen by the same rule from the logits of its own place, and a guess ends where something else was chosen. Since the native
engine's numbers do not depend, to the last bit, on how a text is cut, what is written is what would be written without.
"""

from collections.abc import Sequence

LONGEST, SHORTEST = 6, 3  # ids that must have stood there before: two are too often followed by something else
FIRST = 3  # ids guessed before it is known how well that goes


class Lookup:
    """Guesses of one row, at most `most` ids each."""

    def __init__(self, most: int) -> None:
        self.most, self.width = most, min(most, FIRST)
        self._follows: dict[
            tuple[int, ...], int
        ] = {}  # some ids → the place behind them, the last time they stood there
        self._noted = 0

    def guess(self, ids: Sequence[int], room: int) -> list[int]:
        """What may follow `ids`: no more than `room` ids, perhaps none. A text that goes round in circles goes on so."""
        for end in range(self._noted + 1, len(ids)):
            for size in range(SHORTEST, min(LONGEST, end) + 1):
                self._follows[tuple(ids[end - size : end])] = end
        self._noted = max(self._noted, len(ids) - 1)
        for size in range(min(LONGEST, len(ids)), SHORTEST - 1, -1):
            if (at := self._follows.get(tuple(ids[len(ids) - size :]))) is not None:
                period = len(ids) - at
                return [ids[at + i % period] for i in range(min(self.width, room))]
        return []

    def learn(self, guessed: int, taken: int) -> None:
        """Guess more after a guess that was right, and about as much as was right after one that was not."""
        if guessed:
            self.width = min(self.most, 2 * taken if taken == guessed else taken + 1)
