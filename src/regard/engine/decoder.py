"""`Decoder`: what generation needs of an engine: `prefill()`, decode steps `step(ids)`, and `pick(rows)` for beams.

`ReferenceDecoder` and `ReferenceTranslator` implement it with the reference network, `NativeDecoder` and
`NativeTranslator` with the native engine. Logits are numpy arrays of float32, so that sampling and beam search are the
same for all of them.
"""

from collections.abc import Sequence
from typing import Protocol

from regard.engine.top_k import Floats


class Decoder(Protocol):
    """A batch of sequences with their KV caches."""

    def prefill(self) -> Floats:
        """Run the prompts through the network, filling the KV caches; logits after each, (B, n_vocab)."""
        ...

    def step(self, ids: Sequence[int]) -> Floats:
        """One decode step: append one id to every row; logits after it, (B, n_vocab)."""
        ...

    def pick(self, rows: Sequence[int]) -> None:
        """Keep (and repeat) these rows of the batch, in this order."""
        ...


def prefill_rows(decoder: Decoder, prompts: list[int]) -> Floats:
    """Prefill, then make row i continue prompt `prompts[i]`; logits (len(prompts), n_vocab)."""
    logits = decoder.prefill()
    if prompts == list(range(len(logits))):
        return logits
    decoder.pick(prompts)
    return logits[prompts]
