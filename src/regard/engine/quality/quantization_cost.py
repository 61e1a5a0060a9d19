"""The cost of quantizing a network's weights, measured on a text: the reference against its quantized twin.

A decoder: perplexity of the text, and the largest difference of logits. An encoder-decoder: the same for what the original
network itself generates for each line. A masked-language model: the same at every seventh token, masked. Other heads: the
largest difference of logits. An encoder without a head: the smallest cosine between a line's two vectors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.engine.encode import pool, unit
from regard.engine.reference_decoder import ReferenceTranslator
from regard.engine.top_k import Floats
from regard.errors import TaskError
from regard.model.reference import Network, Seq2Seq
from regard.model.spec import Spec
from regard.model.transformer import DecoderOnly, EncoderOnly, class_logits
from regard.store.open_model import Pooling
from regard.text.tokenizer import Tokenizer

MAX_TOKENS = 8192  # tokens that are measured
WINDOW = 256  # tokens of a decoder's forward pass
MAX_GENERATED = 64  # tokens that an encoder-decoder generates for a line
EVERY = 7  # one token in so many is masked
MAX_PERPLEXITY = 3e38  # perplexity, in the float32 of a file's metadata
PREFIX = "regard.cost."  # of the keys in a file's metadata

Probe = tuple[Callable[[Network], Floats], list[int]]  # network → logits (positions, n), and the true ids there


@dataclass(frozen=True)
class QuantizationCost:
    """The result of a measurement."""

    format: str  # number format of the quantized weights
    text: str  # name of the text it was measured on
    tokens: int
    perplexity_before: float | None = None
    perplexity: float | None = None
    largest_difference: float | None = None  # of logits
    least_cosine: float | None = None  # of vectors

    def __str__(self) -> str:
        parts = []
        if self.perplexity is not None:
            parts.append(f"perplexity {self.perplexity:.4g}, before {self.perplexity_before:.4g}")
        if self.largest_difference is not None:
            parts.append(f"logits differ by at most {self.largest_difference:.3g}")
        if self.least_cosine is not None:
            parts.append(f"vectors keep a cosine of {self.least_cosine:.5f}")
        return f"{self.format}: {'; '.join(parts)} ({self.tokens:,} tokens of {self.text})"

    def metadata(self) -> dict[str, object]:
        return {PREFIX + key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> "QuantizationCost | None":
        """The cost recorded in a file's metadata; None if there is none, or it is malformed."""
        found = {key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)}
        kinds = {"format": str, "text": str, "tokens": int}
        known = set(cls.__dataclass_fields__)
        if not set(kinds) <= set(found) <= known or any(type(found[k]) is not kinds.get(k, float) for k in found):
            return None
        return cls(**found)


def rows_of(text: str, tokenizer: Tokenizer, spec: Spec) -> list[list[int]]:
    """The text as ids: windows of it for a decoder, its lines for other networks."""
    if spec.kind == "decoder":
        ids, size = tokenizer.encode(text)[:MAX_TOKENS], min(WINDOW, spec.context)
        rows = [ids[at : at + size] for at in range(0, len(ids), size)]
    else:
        lines = [line for line in text.splitlines() if line.strip()][:MAX_TOKENS]
        rows = [ids[: spec.source_context] for ids in tokenizer.encode_batch(lines)]
        while sum(map(len, rows)) > MAX_TOKENS:
            rows.pop()
    rows = [row for row in rows if len(row) > 1]
    if not rows:
        raise TaskError("The text to measure on is too short: it has no line of two tokens.")
    return rows


def measure(
    net: Network,
    twin: Network,
    rows: Sequence[list[int]],
    *,
    format: str,
    text: str,
    mask: int | None = None,
    pooling: Pooling,
) -> QuantizationCost:
    """Compare a network with its quantized twin on the rows. text: the name of the text; mask: the mask token's id."""
    tokens = sum(map(len, rows))
    if isinstance(net, EncoderOnly) and net.spec.head.kind == "none":
        pairs = [[unit(vector(each, row, pooling)) for each in (net, twin)] for row in rows]
        return QuantizationCost(format, text, tokens, least_cosine=min(float(a @ b) for a, b in pairs))
    differences, surprises = list[float](), list[NDArray[np.float64]]()
    for row in rows:
        logits_of, there = probe(net, row, mask)
        before, after = (logits_of(each).astype(np.float64) for each in (net, twin))
        with np.errstate(invalid="ignore"):
            differences.append(float(np.abs(before - after).max()))
        if there:
            surprises.append(np.stack([surprise(before, there), surprise(after, there)]))  # (2, places)
    largest = float(np.max(differences))  # NaN if there is one
    if not surprises:
        return QuantizationCost(format, text, tokens, largest_difference=largest)
    with np.errstate(over="ignore"):
        before, after = np.exp(np.concatenate(surprises, 1).mean(1)).clip(max=MAX_PERPLEXITY)
    return QuantizationCost(format, text, tokens, float(before), float(after), largest)


def surprise(logits: NDArray[np.float64], ids: list[int]) -> NDArray[np.float64]:
    """-log p of each id: (places,)."""
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(-1, keepdims=True)
        total = np.log(np.exp(shifted).sum(-1))
    of_ids: NDArray[np.float64] = shifted[np.arange(len(ids)), ids]
    return total - of_ids


def vector(net: Network, row: list[int], pooling: Pooling) -> Floats:
    assert isinstance(net, EncoderOnly)
    return pool(net.states(np.array([row])), None, pooling.mode, pooling.normalise)[0]


def probe(net: Network, row: list[int], mask: int | None) -> Probe:
    """The logits to compare on one row, as a function of the network, and the true ids for perplexity."""
    ids, head = np.array([row]), net.spec.head.kind
    if isinstance(net, DecoderOnly):
        return lambda n: n(ids)[0, :-1], row[1:]
    if isinstance(net, Seq2Seq) and head == "lm":
        generated = greedy(net, row)
        target = np.array([generated[:-1]])
        return lambda n: n(ids, target)[0], generated[1:]
    if head == "mlm" and mask is not None:
        places = list(range(EVERY // 2, len(row), EVERY)) or [len(row) - 1]
        ids[0, places] = mask
        return lambda n: n(ids)[0, places], [row[place] for place in places]
    if head == "tag":
        return lambda n: n(ids)[0], []
    return lambda n: class_logits(n, ids, None), []


def greedy(net: Seq2Seq, row: list[int]) -> list[int]:
    """The start token and what the network generates greedily for a source."""
    generated, most = [net.spec.start_id or 0], min(MAX_GENERATED, net.spec.context - 1)
    decoder = ReferenceTranslator(net, [row], [generated[:]], most, fast_layout=False)
    logits = decoder.prefill()
    while True:
        generated.append(int(logits[0].argmax()))
        if len(generated) > most or generated[-1] in net.spec.eos_ids:
            return generated
        logits = decoder.step(generated[-1:])
