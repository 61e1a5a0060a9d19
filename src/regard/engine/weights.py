"""Where the native engine's numbers come from: a network's parameters, or a file's tensors as they lie there.

Both answer the same questions by the network's own names: a matrix as rows of bytes in some number format, a vector as
float32. A GGUF file's Q8_0, Q4_0 and Q4_1 blocks are handed on unchanged, so the engine computes with the file's own
integers; K-quants and five bits are turned into such blocks (`store.quant.repack` says how near).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.engine.native.library import FORMATS
from regard.model.spec import Spec
from regard.model.weightmap import Move
from regard.store.gguf import GGUF, TensorInfo
from regard.store.open import Opened, plan_network
from regard.store.quant import REPACKED, named_format, repack

log = logging.getLogger("regard")

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


@dataclass(frozen=True)
class Stored:
    """A matrix: row i is the bytes `rows[i]`, `columns` numbers in `format`."""

    format: str
    rows: NDArray[np.uint8]  # (n, bytes of a row)
    columns: int


class Weights(Protocol):
    def one_name(self, name: str) -> str:
        """Tied parameters are one: the name under which they are known."""
        ...

    def form(self, name: str) -> tuple[str, int, int]:
        """A matrix' number format, rows and columns, before it is read."""
        ...

    def matrix(self, name: str, format: str) -> Stored:
        """Its rows, as they are stored or in F32."""
        ...

    def vector(self, name: str) -> NDArray[np.float32] | None:
        """None if the network has no such parameter."""
        ...


class NetworkWeights:
    """Of a network; matrices that were rounded to a coarser format come as that format's own blocks."""

    def __init__(self, net: nn.Module, spec: Spec, rounded: Mapping[str, Stored] | None = None) -> None:
        self.parameters = dict(net.named_parameters(remove_duplicate=False))
        self.first = {other: group[0] for group in spec.tied for other in group}
        self.rounded = rounded or {}

    def one_name(self, name: str) -> str:
        return self.first.get(name, name)

    def form(self, name: str) -> tuple[str, int, int]:
        W, stored = self.parameters[name], self.rounded.get(self.one_name(name))
        return stored.format if stored else DTYPES[W.dtype], W.shape[0], W.shape[1]

    def matrix(self, name: str, format: str) -> Stored:
        stored = self.rounded.get(self.one_name(name))
        if stored and stored.format == format:
            return stored
        W = self.parameters[name].detach()
        W = (W if DTYPES[W.dtype] == format else W.float()).contiguous()
        return Stored(format, W.view(torch.uint8).numpy(), W.shape[1])

    def vector(self, name: str) -> NDArray[np.float32] | None:
        p = self.parameters.get(name)
        return None if p is None else p.detach().float().contiguous().numpy()


def computed_as(format: str) -> str:
    """The number format in which the kernels compute with a file's."""
    return format if format in FORMATS else REPACKED[format][0] if format in REPACKED else "F32"


class FileWeights:
    """Of an open GGUF file, without a network: what the kernels know stays as it is, other blocks become the nearest that
    they know, and other numbers float32."""

    def __init__(self, opened: Opened) -> None:
        assert isinstance(opened.file, GGUF)
        net, plan = plan_network(opened)
        self.file = opened.file
        self.shapes = {name: p.shape for name, p in net.named_parameters(remove_duplicate=False)}
        self.moves: dict[str, Move] = {name: move for move in plan.moves for name in move.ours}
        self.suspicious: set[str] = set()
        self.repacked: set[str] = set()  # formats
        self.zero = set(opened.table.zero) & set(self.shapes)
        self.first = {
            other: next(name for name in group if name in self.moves) for group in opened.spec.tied for other in group
        }

    def one_name(self, name: str) -> str:
        return self.first.get(name, name)

    def form(self, name: str) -> tuple[str, int, int]:
        stored = self.file.info(self.moves[self.one_name(name)].theirs).format
        rows, columns = self.shapes[name]
        return computed_as(stored), rows, columns

    def matrix(self, name: str, format: str) -> Stored:
        name = self.one_name(name)
        move = self.moves[name]
        info = self.file.info(move.theirs)
        shapes = [self.shapes[ours] for ours in move.ours]
        if format == "F32" != info.format:
            theirs = self.file.tensor(move.theirs)
        else:
            theirs = torch.from_numpy(self._blocks(info))
            shapes = [torch.Size((shape[0], theirs.shape[1])) for shape in shapes]
        ours = move.form.load(theirs, shapes)[move.ours.index(name)].contiguous()
        stored = Stored(format, ours.view(torch.uint8).numpy(), self.shapes[name][1])
        self._check(move.theirs, stored)
        return stored

    def _blocks(self, info: TensorInfo) -> NDArray[np.uint8]:
        """Rows of bytes, in the format that is computed with."""
        raw = self.file.raw(info.name).reshape(info.shape[0], -1)
        if info.format not in REPACKED:
            return raw
        self.repacked.add(info.format)
        return repack(raw, info.format)

    def _check(self, name: str, stored: Stored) -> None:
        """Note a tensor with NaN or infinite numbers; of integers in blocks, the scales tell."""
        form = named_format(stored.format)
        blocks = stored.rows.reshape(-1).view(form.layout)
        scales = blocks if form.layout.names is None else np.stack([blocks[n] for n in form.layout.names if n in "dm"])
        finite = (scales & 0x7F80) != 0x7F80 if form.name == "BF16" else np.isfinite(scales)
        if not finite.all():
            self.suspicious.add(name)

    def warn(self) -> None:
        """Say what was noted."""
        if self.repacked - {"Q5_0"}:  # which loses nothing
            told = " and ".join(f"{name} as {REPACKED[name][0]}" for name in sorted(self.repacked))
            log.warning("%s: computed with %s, not exactly the same; dtype='float32' is exact", self.file.path, told)
        if self.suspicious:
            named = ", ".join(sorted(self.suspicious)[:3])
            log.warning("%s: %d tensors hold NaN or infinite weights (%s)", self.file.path, len(self.suspicious), named)

    def vector(self, name: str) -> NDArray[np.float32] | None:
        name = self.one_name(name)
        if name not in self.moves:
            return np.zeros(tuple(self.shapes[name]), np.float32) if name in self.zero else None
        move = self.moves[name]
        loaded = move.form.load(self.file.tensor(move.theirs), [self.shapes[ours] for ours in move.ours])
        vector: NDArray[np.float32] = loaded[move.ours.index(name)].contiguous().numpy()
        if not np.isfinite(vector).all():
            self.suspicious.add(move.theirs)
        return vector
