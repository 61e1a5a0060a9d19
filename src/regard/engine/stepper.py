"""What choosing tokens needs of whatever computes logits: `start()`, `step(ids)`, `pick(rows)`.

`decode.Decoder` and `decode.Translator` do it in PyTorch, `fast.FastDecoder` and `fast.FastTranslator` with the native
engine. Logits come as numpy's float32, so that everything behind this door is the same for both.
"""

from collections.abc import Sequence
from typing import Protocol

from regard.engine.rank import Floats


class Stepper(Protocol):
    def start(self) -> Floats:
        """Read the prompts; logits of what follows each, (B, n_vocab)."""
        ...

    def step(self, ids: Sequence[int]) -> Floats:
        """Append one id to every row; logits of what follows, (B, n_vocab)."""
        ...

    def pick(self, rows: Sequence[int]) -> None:
        """Keep (and repeat) these rows, in this order."""
        ...


def first_logits(stepper: Stepper, prompts: list[int]) -> Floats:
    """Read the prompts, then have row i continue prompt `prompts[i]`; logits (len(prompts), n_vocab)."""
    logits = stepper.start()
    if prompts == list(range(len(logits))):
        return logits
    stepper.pick(prompts)
    return logits[prompts]
