"""What rounding a network's weights costs, measured on a text: the network beside its rounded twin, on the same ids.

A decoder: perplexity of the text, and the largest difference of logits. An encoder-decoder: the same for what the unrounded
network itself writes for each line. A masked-language model: the same at every seventh token, masked. Other heads: the
largest difference of logits. An encoder without a head: the least cosine between a line's two vectors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from regard.engine.decode import Translator
from regard.engine.encode import pool
from regard.errors import TaskError
from regard.model.spec import Spec
from regard.model.transformer import DecoderOnly, EncoderOnly, Network, Seq2Seq, class_logits
from regard.store.open import Pooling
from regard.text.tokenizer import Tokenizer

MOST = 8192  # tokens that are measured
WINDOW = 256  # tokens that a decoder reads together
WRITTEN = 64  # tokens that an encoder-decoder writes for a line
EVERY = 7  # of so many tokens, one is masked
MOST_WRITABLE = 3e38  # perplexity, in the float32 of a file's metadata
PREFIX = "regard.cost."  # of the keys in a file's metadata

Question = tuple[Callable[[Network], Tensor], list[int]]  # logits (places, n) of a network, and which ids stand there


@dataclass(frozen=True)
class Cost:
    format: str  # what was rounded to
    text: str  # what was measured on
    tokens: int
    perplexity_before: float | None = None
    perplexity: float | None = None
    largest_difference: float | None = None  # of logits
    least_cosine: float | None = None  # of vectors

    def __str__(self) -> str:
        told = []
        if self.perplexity is not None:
            told.append(f"perplexity {self.perplexity:.4g}, before {self.perplexity_before:.4g}")
        if self.largest_difference is not None:
            told.append(f"logits differ by at most {self.largest_difference:.3g}")
        if self.least_cosine is not None:
            told.append(f"vectors keep a cosine of {self.least_cosine:.5f}")
        return f"{self.format}: {'; '.join(told)} ({self.tokens:,} tokens of {self.text})"

    def metadata(self) -> dict[str, object]:
        return {PREFIX + key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> "Cost | None":
        """What a file's metadata say; None where they say nothing, or nonsense."""
        said = {key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)}
        kinds = {"format": str, "text": str, "tokens": int}
        known = set(cls.__dataclass_fields__)
        if not set(kinds) <= set(said) <= known or any(type(said[k]) is not kinds.get(k, float) for k in said):
            return None
        return cls(**said)


def rows_of(text: str, tokenizer: Tokenizer, spec: Spec) -> list[list[int]]:
    """The text as ids: windows of it for a decoder, its lines for other networks."""
    if spec.kind == "decoder":
        ids, size = tokenizer.encode(text)[:MOST], min(WINDOW, spec.context)
        rows = [ids[at : at + size] for at in range(0, len(ids), size)]
    else:
        lines = [line for line in text.splitlines() if line.strip()][:MOST]
        rows = [ids[: spec.source_context] for ids in tokenizer.encode_batch(lines)]
        while sum(map(len, rows)) > MOST:
            rows.pop()
    rows = [row for row in rows if len(row) > 1]
    if not rows:
        raise TaskError("The text to measure on is too short: it has no line of two tokens.")
    return rows


@torch.no_grad()
def measure(
    net: Network,
    twin: Network,
    rows: Sequence[list[int]],
    *,
    format: str,
    text: str,
    mask: int | None = None,
    pooling: Pooling,
) -> Cost:
    """`text` says where the rows are from; `mask` is the mask's id, where there is one."""
    tokens = sum(map(len, rows))
    if isinstance(net, EncoderOnly) and net.spec.head.kind == "none":
        pairs = [[vector(each, row, pooling) for each in (net, twin)] for row in rows]
        return Cost(format, text, tokens, least_cosine=min(float(cosine_similarity(a, b, -1)) for a, b in pairs))
    differences, surprises = list[float](), list[Tensor]()
    for row in rows:
        logits_of, there = question(net, row, mask)
        before, after = logits_of(net).double(), logits_of(twin).double()
        differences.append(float((before - after).abs().max()))
        if there:
            surprises.append(torch.stack([surprise(before, there), surprise(after, there)]))  # (2, places)
    largest = float(torch.tensor(differences, dtype=torch.float64).max())  # NaN if there is one
    if not surprises:
        return Cost(format, text, tokens, largest_difference=largest)
    before, after = torch.cat(surprises, 1).mean(1).exp().clamp_max(MOST_WRITABLE)
    return Cost(format, text, tokens, float(before), float(after), largest)


def surprise(logits: Tensor, ids: list[int]) -> Tensor:
    """-log p of each id: (places,)."""
    return -logits.log_softmax(-1).gather(-1, torch.tensor(ids, device=logits.device)[:, None])[:, 0]


def vector(net: Network, row: list[int], pooling: Pooling) -> Tensor:
    assert isinstance(net, EncoderOnly)
    return pool(net.states(as_batch(net, row)), None, pooling.mode, pooling.normalise)[0]


def question(net: Network, row: list[int], mask: int | None) -> Question:
    """What a network is asked about one row; the same question for its twin."""
    ids, head = as_batch(net, row), net.spec.head.kind
    if isinstance(net, DecoderOnly):
        return lambda n: n(ids)[0, :-1], row[1:]
    if isinstance(net, Seq2Seq) and head == "lm":
        written = write(net, row)
        target = as_batch(net, written[:-1])
        return lambda n: n(ids, target)[0], written[1:]
    if head == "mlm" and mask is not None:
        places = list(range(EVERY // 2, len(row), EVERY)) or [len(row) - 1]
        ids[0, places] = mask
        return lambda n: n(ids)[0, places], [row[place] for place in places]
    if head == "tag":
        return lambda n: n(ids)[0], []
    return lambda n: class_logits(n, ids, None), []


def write(net: Seq2Seq, row: list[int]) -> list[int]:
    """The start token and what the network greedily writes for a source."""
    written, most = [net.spec.start_id or 0], min(WRITTEN, net.spec.context - 1)
    stepper = Translator(net, [row], [written[:]], most, lay_out=False)
    logits = stepper.start()
    while True:
        written.append(int(logits[0].argmax()))
        if len(written) > most or written[-1] in net.spec.eos_ids:
            return written
        logits = stepper.step(written[-1:])


def as_batch(net: Network, ids: list[int]) -> Tensor:
    return torch.tensor([ids], device=next(net.parameters()).device)
