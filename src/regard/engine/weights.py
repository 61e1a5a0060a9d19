"""`Weights`: where the native engine gets its weights from, a file's tensors as stored or a network's (pack_network.py).

Both are accessed by the network's own parameter names: a matrix as rows of bytes in some number format, a vector as
float32. A GGUF file's Q8_0, Q4_0 and Q4_1 blocks are used unchanged, so the engine computes with the file's own integers;
K-quants and 5-bit blocks are converted to such blocks (`store.number_formats.repack` says how closely).

Most checkpoints were saved in 16 bits and are computed in 32. A matrix whose numbers all fit into 16 bits is packed in 16:
not a bit of any result changes, and half as much memory is read for every token.
"""

import logging
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regard.engine.native.library import FORMATS
from regard.model.shapes import shapes
from regard.model.weight_map import Move
from regard.store.number_formats import REPACKED, named_format, repack
from regard.store.open_model import Opened, plan_weights

log = logging.getLogger("regard")
PLAIN = {"F32": "<u4", "F16": "<u2", "BF16": "<u2"}  # formats without blocks → integer type of the same size
STRIP = 1 << 20  # numbers that are examined at a time


@dataclass(frozen=True)
class Stored:
    """A matrix: row i is the bytes `rows[i]`, `columns` numbers in `format`."""

    format: str
    rows: NDArray[np.uint8]  # (n, bytes of a row)
    columns: int
    name: str = ""  # in its file
    mapped: bool = False  # in a memory map of its file

    @property
    def finite(self) -> bool:
        """Whether it has neither NaN nor infinite numbers; for quantized blocks the scales are checked."""
        form = named_format(self.format)
        blocks = np.ascontiguousarray(self.rows).reshape(-1).view(form.layout)
        numbers = [blocks] if form.layout.names is None else [blocks[n] for n in form.layout.names if n in "dm"]
        return all(((x & 0x7F80) != 0x7F80 if form.name == "BF16" else np.isfinite(x)).all() for x in numbers)


class Weights(Protocol):
    """A network's weights by parameter name."""

    def canonical_name(self, name: str) -> str:
        """The one name of a parameter that is tied to others, else the name itself."""
        ...

    def form(self, name: str) -> tuple[str, int, int]:
        """A matrix's number format, rows and columns, before it is loaded."""
        ...

    def matrix(self, name: str, format: str) -> Stored:
        """A matrix's rows, in its stored format or in F32."""
        ...

    def vector(self, name: str) -> NDArray[np.float32] | None:
        """A vector (or a table) in float32; None if the network has no such parameter."""
        ...


def computed_as(format: str) -> str:
    """The number format in which the kernels compute with a file's number format."""
    return format if format in FORMATS else REPACKED[format][0] if format in REPACKED else "F32"


def narrowest(X: NDArray[np.float32]) -> str:
    """The 16-bit number format that represents every number exactly, or F32."""
    bits, used = X.reshape(-1).view(np.uint32), 0  # used: which bits are not 0 everywhere
    for start in range(0, len(bits), STRIP):
        used |= int(np.bitwise_or.reduce(bits[start : start + STRIP]))
        if used & 0x1FFF:  # of 23 bits after the point bfloat16 has the first 7 and float16 the first 10
            return "F32"
    if not used & 0xFFFF:
        return "BF16"
    with np.errstate(over="ignore"):
        return "F16" if np.array_equal(X.astype(np.float16).astype(np.float32), X) else "F32"


def narrowed(X: NDArray[np.float32], format: str) -> NDArray:
    """The same numbers in the format that `narrowest` returned."""
    if format == "BF16":
        return (X.view(np.uint32) >> 16).astype(np.uint16)
    return X.astype(np.float16) if format == "F16" else X


class FileWeights:
    """`Weights` of an open file, without building the network: formats that the kernels support stay as stored, other
    blocks are repacked into the nearest supported ones, and other numbers become float32."""

    def __init__(self, opened: Opened) -> None:
        self.plan = plan_weights(opened)
        self.file, self.path = opened.file, opened.path
        self.shapes = shapes(opened.spec)
        self.moves: dict[str, Move] = {name: move for move in self.plan.moves for name in move.ours}
        self.suspicious: set[str] = set()
        self.repacked: set[str] = set()  # formats
        self.narrow: dict[str, str] = {}  # of tensors in F32
        self.zero = set(opened.table.zero) & set(self.shapes)
        self.first = {
            other: next(name for name in group if name in self.moves) for group in opened.spec.tied for other in group
        }

    @property
    def formats(self) -> set[str]:
        return {self.file.format(move.theirs) for move in self.plan.moves}

    def canonical_name(self, name: str) -> str:
        return self.first.get(name, name)

    def form(self, name: str) -> tuple[str, int, int]:
        theirs = self.moves[self.canonical_name(name)].theirs
        stored, (rows, columns) = self.file.format(theirs), self.shapes[name]
        if stored == "F32" and theirs not in self.narrow:
            self.narrow[theirs] = narrowest(self.file.raw(theirs).view(np.float32))
        return self.narrow.get(theirs) or computed_as(stored), rows, columns

    def matrix(self, name: str, format: str) -> Stored:
        name = self.canonical_name(name)
        move, ours = self.moves[name], [self.shapes[other] for other in self.moves[name].ours]
        theirs, here = self._numbers(move.theirs, format), move.ours.index(name)
        if format not in PLAIN:  # rows of blocks
            ours = [(shape[0], theirs.shape[1]) for shape in ours]
        rows = np.ascontiguousarray(move.form.load(theirs, ours)[here]).view(np.uint8)
        return Stored(format, rows, self.shapes[name][1], move.theirs, self.file.maps(rows))

    def _numbers(self, theirs: str, format: str) -> NDArray:
        """A tensor in the requested format; without conversion if the file stores it in that format."""
        stored, shape = self.file.format(theirs), self.file.shape(theirs)
        if format not in PLAIN:
            raw = self.file.raw(theirs).reshape(shape[0], -1)
            if stored == format:
                return raw
            self.repacked.add(stored)
            return repack(raw, stored)
        if stored == format:
            return self.file.raw(theirs).view(PLAIN[format]).reshape(shape)
        return narrowed(self.file.array(theirs), format)

    def warn(self, suspicious: set[str]) -> None:
        """Log warnings about repacked formats and about tensors with NaN or infinite numbers, vectors and matrices."""
        suspicious = self.suspicious | suspicious
        if self.repacked - {"Q5_0"}:  # which loses nothing
            listed = " and ".join(f"{name} as {REPACKED[name][0]}" for name in sorted(self.repacked))
            log.warning("%s: computed with %s, not exactly the same; dtype='float32' is exact", self.path, listed)
        if suspicious:
            named = ", ".join(sorted(suspicious)[:3])
            log.warning("%s: %d tensors hold NaN or infinite weights (%s)", self.path, len(suspicious), named)

    def vector(self, name: str) -> NDArray[np.float32] | None:
        name = self.canonical_name(name)
        if name not in self.moves:
            return np.zeros(self.shapes[name], np.float32) if name in self.zero else None
        move = self.moves[name]
        loaded = move.form.load(self.file.array(move.theirs), [self.shapes[ours] for ours in move.ours])
        vector: NDArray[np.float32] = np.ascontiguousarray(loaded[move.ours.index(name)])
        if not np.isfinite(vector).all():
            self.suspicious.add(move.theirs)
        return vector
