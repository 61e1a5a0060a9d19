"""Prompt lookup, a form of speculative decoding (Leviathan et al., 2022): where a sequence repeats itself, several draft
tokens are checked in one forward pass instead of one token per decode step.

In: the ids so far. Out: draft ids, those that followed the last few ids at an earlier occurrence. Each token is still
chosen by the same rule from the logits of its own position, and a draft is cut where another token was chosen. Since the
native engine's logits do not depend, to the last bit, on how a sequence is cut into pieces, the generated text is the same
as without it.
"""

from collections.abc import Sequence

LONGEST, SHORTEST = 6, 3  # ids of the n-gram that must have occurred before: after two, drafts are too often wrong
FIRST = 3  # ids of the first draft, before it is known how many are accepted


class PromptLookup:
    """Drafts for one row, at most `max_draft` ids each."""

    def __init__(self, max_draft: int) -> None:
        self.max_draft, self.width = max_draft, min(max_draft, FIRST)
        self._follows: dict[tuple[int, ...], int] = {}  # n-gram → the index after its last occurrence
        self._noted = 0

    def draft(self, ids: Sequence[int], limit: int) -> list[int]:
        """Ids that may follow `ids`: at most `limit`, perhaps none. A repeating loop is continued round and round."""
        for end in range(self._noted + 1, len(ids)):
            for size in range(SHORTEST, min(LONGEST, end) + 1):
                self._follows[tuple(ids[end - size : end])] = end
        self._noted = max(self._noted, len(ids) - 1)
        for size in range(min(LONGEST, len(ids)), SHORTEST - 1, -1):
            if (at := self._follows.get(tuple(ids[len(ids) - size :]))) is not None:
                period = len(ids) - at
                return [ids[at + i % period] for i in range(min(self.width, limit))]
        return []

    def adapt(self, drafted: int, accepted: int) -> None:
        """Choose the next draft's length: twice as long if all were accepted, else one more than were accepted."""
        if drafted:
            self.width = min(self.max_draft, 2 * accepted if accepted == drafted else accepted + 1)
