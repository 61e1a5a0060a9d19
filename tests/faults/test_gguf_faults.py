"""GGUF files that are damaged or hostile: refused in a sentence, quickly, without a large allocation."""

import struct
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import CheckpointError, RegardError
from regard.store.gguf import MAX_ENTRIES, read_gguf


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + u32(kind) + value


def tensor(name: str | bytes = "t", sizes: Sequence[int] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + u32(len(sizes)) + b"".join(u64(size) for size in sizes) + u32(kind) + u64(offset)


def gguf(keys: Sequence[bytes] = (), tensors: Sequence[bytes] = (), data: bytes = bytes(64)) -> bytes:
    head = b"GGUF" + u32(3) + u64(len(tensors)) + u64(len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


ALIGNMENT = "general.alignment"
NESTED = u32(9) + u64(1)
FAULTS = {
    "nothing": (b"", "does not begin with the letters GGUF"),
    "another magic": (b"GGML" + gguf()[4:], "does not begin with the letters GGUF"),
    "magic alone": (b"GGUF", "the header runs past the end"),
    "version 1": (b"GGUF" + u32(1) + bytes(100), "has version 1"),
    "version 4": (b"GGUF" + u32(4) + bytes(100), "has version 4"),
    "big endian": (b"GGUF" + struct.pack(">I", 3) + bytes(100), "big-endian"),
    "tensor count beyond the file": (b"GGUF" + u32(3) + u64(1 << 60) + u64(0) + bytes(64), f"claims {1 << 60} tensors"),
    "key count beyond the file": (b"GGUF" + u32(3) + u64(0) + u64(100) + bytes(64), "claims 100 keys"),
    "more keys than allowed": (b"GGUF" + u32(3) + u64(0) + u64(MAX_ENTRIES + 1) + bytes(1 << 20), "keys, more than"),
    "key length beyond the file": (gguf([u64(50_000) + b"k"]), "key 0 runs past the end"),
    "key length absurd": (gguf([u64((1 << 64) - 1) + b"k"]), "has a name of 18446744073709551615 bytes"),
    "string length beyond the file": (gguf([key("k", 8, u64(1 << 62))]), "key 'k' runs past the end"),
    "array of numbers beyond the file": (gguf([key("k", 9, u32(5) + u64(1 << 20))]), "key 'k' runs past the end"),
    "array of strings beyond the file": (gguf([key("k", 9, u32(8) + u64(1 << 20))]), "key 'k' runs past the end"),
    "string in an array beyond the file": (
        gguf([key("k", 9, u32(8) + u64(1) + u64(1 << 63))]),
        "'k' runs past the end",
    ),
    "array count absurd": (gguf([key("k", 9, u32(0) + u64(1 << 63))]), "'k' claims 9223372036854775808 elements"),
    "arrays nested deep": (gguf([key("k", 9, NESTED * 100_000)]), "'k' is an array of arrays"),
    "unknown kind": (gguf([key("k", 13, bytes(8))]), "'k' has a value of unknown kind 13"),
    "unknown kind in an array": (gguf([key("k", 9, u32(99) + u64(0))]), "unknown kind 99"),
    "truth value 2": (gguf([key("k", 7, b"\x02")]), "neither 0 nor 1"),
    "truth value 2 in an array": (gguf([key("k", 9, u32(7) + u64(2) + b"\x01\x02")]), "neither 0 nor 1"),
    "key not UTF-8": (gguf([key(b"\xff", 4, u32(1))]), "key 0 is not UTF-8"),
    "value not UTF-8": (gguf([key("k", 8, text(b"\xff"))]), "'k' is not UTF-8"),
    "token not UTF-8": (
        gguf([key("k", 9, u32(8) + u64(2) + text("a") + text(b"\xc3"))]),
        "element 1 that is not UTF-8",
    ),
    "key twice": (gguf([key("k", 4, u32(1)), key("k", 4, u32(2))]), "key 'k' is given twice"),
    "alignment 0": (gguf([key(ALIGNMENT, 4, u32(0))]), "is 0, not a power of two"),
    "alignment 48": (gguf([key(ALIGNMENT, 4, u32(48))]), "is 48, not a power of two"),
    "alignment negative": (gguf([key(ALIGNMENT, 5, struct.pack("<i", -32))]), "is -32, not a power of two"),
    "alignment true": (gguf([key(ALIGNMENT, 7, b"\x01")]), "is True, not a power of two"),
    "alignment a word": (gguf([key(ALIGNMENT, 8, text("32"))]), "is '32', not a power of two"),
    "alignment beyond the file": (gguf([key(ALIGNMENT, 4, u32(1 << 31))], [tensor()]), "runs past the end"),
    "no dimensions": (gguf([], [tensor(sizes=())]), "tensor 't' has 0 dimensions"),
    "five dimensions": (gguf([], [tensor(sizes=(1,) * 5)]), "tensor 't' has 5 dimensions"),
    "dimensions absurd": (gguf([], [text("t") + u32(1 << 31) + bytes(40)]), "has 2147483648 dimensions"),
    "empty dimension": (gguf([], [tensor(sizes=(4, 0))]), r"an empty dimension in its shape \(0, 4\)"),
    "size overflows": (gguf([], [tensor(sizes=(1 << 32,) * 4)]), "tensor 't' of .* runs past the end"),
    "size wraps to nothing": (gguf([], [tensor(sizes=(1 << 62, 4))]), "tensor 't' of .* runs past the end"),
    "unknown number format": (gguf([], [tensor(kind=99)]), "'t' is in number format 99"),
    "removed number format": (gguf([], [tensor(kind=4)]), "'t' is in number format 4"),
    "row of half a block": (gguf([], [tensor(sizes=(16, 2), kind=8)]), "rows of 16 numbers"),
    "offset past the end": (gguf([], [tensor(offset=64)]), "'t' of 16 bytes at offset 64 runs past the end"),
    "offset absurd": (gguf([], [tensor(offset=(1 << 64) - 32)]), "runs past the end"),
    "end past the end": (gguf([], [tensor(sizes=(17,))]), "'t' of 68 bytes at offset 0 runs past the end"),
    "offset misaligned": (gguf([], [tensor(offset=4)]), "offset 4, which is not a multiple of 32"),
    "tensors overlap": (gguf([], [tensor("a", (12,)), tensor("b", offset=32)]), "tensor 'b' overlaps"),
    "tensors coincide": (gguf([], [tensor("a"), tensor("b")]), "overlaps"),
    "tensor twice": (gguf([], [tensor("a"), tensor("a", offset=32)]), "tensor 'a' is given twice"),
    "tensor name not UTF-8": (gguf([], [tensor(b"\xfe")]), "a tensor is not UTF-8"),
    "tensor name absurd": (gguf([], [u64(1 << 40) + bytes(60)]), "has a name of"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_refused_by_name(tmp_path: Path, fault: str) -> None:
    data, says = FAULTS[fault]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    start = time.thread_time()
    try:
        with pytest.raises(CheckpointError, match=says) as refusal:
            read_gguf(path)
        assert time.thread_time() - start < 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert "bad.gguf" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_long_name_does_not_make_a_long_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(gguf([key("\x1b[2J" * 10_000, 99, b"")]))
    with pytest.raises(CheckpointError) as refusal:
        read_gguf(tmp_path / "x.gguf")
    assert "\x1b" not in str(refusal.value)
    assert len(str(refusal.value)) < 400 + len(str(tmp_path))


VALID = gguf(
    [
        key("general.architecture", 8, text("llama")),
        key(ALIGNMENT, 4, u32(32)),
        key("flag", 7, b"\x01"),
        key("tokens", 9, u32(8) + u64(3) + text("a") + text("é") + text("")),
        key("scores", 9, u32(6) + u64(2) + struct.pack("<2f", 0.5, -1)),
    ],
    [tensor("plain", (3, 2)), tensor("blocks", (32, 2), 8, 32), tensor("k", (256,), 12, 128)],
    bytes(range(256)) + bytes(16),
)


def test_the_valid_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(VALID)
    file = read_gguf(tmp_path / "x.gguf")
    assert {name: file.tensor(name).shape for name in file.names} == {"plain": (2, 3), "blocks": (2, 32), "k": (256,)}
    assert file.metadata["tokens"] == ["a", "é", ""]


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    for cut in range(len(VALID)):
        path = tmp_path / f"{cut}.gguf"
        path.write_bytes(VALID[:cut])
        with pytest.raises(CheckpointError, match=rf"{cut}\.gguf is not a"):
            read_gguf(path)


positions = st.integers(0, len(VALID) - 1)
extremes = st.sampled_from([0, 1, 2, 31, 2**15, 2**31, 2**32 - 1, 2**32, 2**60, 2**63, 2**64 - 1])
edits = st.one_of(
    st.tuples(st.just("byte"), positions, st.integers(0, 255)),
    st.tuples(st.just("word"), positions, extremes),
    st.tuples(st.just("cut"), positions, positions),
    st.tuples(st.just("repeat"), positions, positions),
    st.tuples(st.just("insert"), positions, st.binary(min_size=1, max_size=12)),
)


def edited(data: bytes, kind: str, at: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return data[:at] + value + data[at:]
    if kind == "byte":
        return data[:at] + bytes([value]) + data[at + 1 :]
    if kind == "word":
        return data[:at] + u64(value) + data[at + 8 :]
    low, high = sorted((at, value))
    return data[:low] + data[high:] if kind == "cut" else data[:high] + data[low:]


@settings(max_examples=50, deadline=None)
@given(changes=st.lists(edits, min_size=1, max_size=3))
def test_any_damage_opens_or_is_refused(tmp_path_factory: pytest.TempPathFactory, changes: list) -> None:
    data = VALID
    for change in changes:
        data = edited(data, *change)
    path = tmp_path_factory.mktemp("damaged") / "x.gguf"
    path.write_bytes(data)
    start = time.thread_time()
    try:
        file = read_gguf(path)
    except RegardError as refusal:
        said = str(refusal)
    else:
        said = "x.gguf opened"
        assert sum(file.tensor(name).nbytes for name in file.names) <= 16 * len(data)
    assert "x.gguf" in said
    assert time.thread_time() - start < 1
