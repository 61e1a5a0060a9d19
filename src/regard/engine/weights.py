"""Where the native engine's numbers come from: a file's tensors as they lie there, or a network's parameters
(of_network.py).

Both answer the same questions by the network's own names: a matrix as rows of bytes in some number format, a vector as
float32. A GGUF file's Q8_0, Q4_0 and Q4_1 blocks are handed on unchanged, so the engine computes with the file's own
integers; K-quants and five bits are turned into such blocks (`store.quant.repack` says how near).
"""

import logging
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.engine.native.library import FORMATS
from regard.model.shapes import shapes
from regard.model.weightmap import Move
from regard.store.gguf import GGUF, TensorInfo
from regard.store.open import Opened, plan_weights
from regard.store.quant import REPACKED, named_format, repack

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Stored:
    """A matrix: row i is the bytes `rows[i]`, `columns` numbers in `format`."""

    format: str
    rows: NDArray[np.uint8]  # (n, bytes of a row)
    columns: int
    name: str = ""  # in its file
    mapped: bool = False  # lies in a map of its file

    @property
    def finite(self) -> bool:
        """Whether it holds neither NaN nor infinite numbers; of integers in blocks, the scales tell."""
        form = named_format(self.format)
        blocks = np.ascontiguousarray(self.rows).reshape(-1).view(form.layout)
        numbers = [blocks] if form.layout.names is None else [blocks[n] for n in form.layout.names if n in "dm"]
        return all(((x & 0x7F80) != 0x7F80 if form.name == "BF16" else np.isfinite(x)).all() for x in numbers)


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


def computed_as(format: str) -> str:
    """The number format in which the kernels compute with a file's."""
    return format if format in FORMATS else REPACKED[format][0] if format in REPACKED else "F32"


class FileWeights:
    """Of an open GGUF file, without a network: what the kernels know stays as it is, other blocks become the nearest that
    they know, and other numbers float32."""

    def __init__(self, opened: Opened) -> None:
        assert isinstance(opened.file, GGUF)
        plan = plan_weights(opened)
        self.file = opened.file
        self.shapes = shapes(opened.spec)
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
        shapes: list[tuple[int, ...]] = [self.shapes[ours] for ours in move.ours]
        if format == "F32" != info.format:
            theirs: NDArray = self.file.array(move.theirs)
        else:
            theirs = self._blocks(info)
            shapes = [(shape[0], theirs.shape[1]) for shape in shapes]
        ours = np.ascontiguousarray(move.form.load(theirs, shapes)[move.ours.index(name)])
        rows = ours.view(np.uint8)
        return Stored(format, rows, self.shapes[name][1], move.theirs, self.file.maps(rows))

    def _blocks(self, info: TensorInfo) -> NDArray[np.uint8]:
        """Rows of bytes, in the format that is computed with."""
        raw = self.file.raw(info.name).reshape(info.shape[0], -1)
        if info.format not in REPACKED:
            return raw
        self.repacked.add(info.format)
        return repack(raw, info.format)

    def warn(self, suspicious: set[str]) -> None:
        """Say what was noted, here of vectors and in packing of matrices."""
        suspicious = self.suspicious | suspicious
        if self.repacked - {"Q5_0"}:  # which loses nothing
            told = " and ".join(f"{name} as {REPACKED[name][0]}" for name in sorted(self.repacked))
            log.warning("%s: computed with %s, not exactly the same; dtype='float32' is exact", self.file.path, told)
        if suspicious:
            named = ", ".join(sorted(suspicious)[:3])
            log.warning("%s: %d tensors hold NaN or infinite weights (%s)", self.file.path, len(suspicious), named)

    def vector(self, name: str) -> NDArray[np.float32] | None:
        name = self.one_name(name)
        if name not in self.moves:
            return np.zeros(self.shapes[name], np.float32) if name in self.zero else None
        move = self.moves[name]
        loaded = move.form.load(self.file.array(move.theirs), [self.shapes[ours] for ours in move.ours])
        vector: NDArray[np.float32] = np.ascontiguousarray(loaded[move.ours.index(name)])
        if not np.isfinite(vector).all():
            self.suspicious.add(move.theirs)
        return vector
