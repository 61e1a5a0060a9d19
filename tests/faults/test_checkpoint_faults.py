"""Safetensors checkpoints that are damaged, contradictory or of a kind never opened: refused, by file and tensor."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import CheckpointError, NotFound, RegardError
from regard.store.safetensors import INDEX, MAX_HEADER_BYTES, MAX_TENSORS, SINGLE, open_checkpoint
from regard.store.safetensors_write import save_checkpoint


def described(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def packed(header: object, data: bytes = bytes(8), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


PAIR = {"a": described(), "b": described(offsets=(8, 16))}
FAULTS = {
    "nothing": (b"", "file of 0 bytes claims a header of 0"),
    "seven bytes": (bytes(7), "file of 7 bytes claims"),
    "no header": (bytes(8), "is not valid JSON"),
    "a pickle in disguise": (b"\x80\x02}q\x00X\x05\x00\x00\x00", "claims a header of"),
    "header beyond the file": (packed({"a": described()}, length=10**6), "claims a header of 1000000"),
    "header length absurd": (packed({}, length=2**64 - 1), "claims a header of 18446744073709551615"),
    "header too large": (packed(b"{}" + b" " * MAX_HEADER_BYTES), f"at most {MAX_HEADER_BYTES} are read"),
    "header not an object": (packed([1]), "holds a list instead of an object"),
    "header not JSON": (packed(b'{"a": '), "is not valid JSON"),
    "header not UTF-8": (packed(b'{"\xff": 1}'), "is not UTF-8"),
    "header nested deep": (packed(b'{"a":' * 200 + b"1" + b"}" * 200), "nested more than 64 deep"),
    "tensor twice": (packed(b'{"a": {}, "a": {}}'), "the key 'a' is given twice"),
    "name half a character": (
        packed(b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
        "half a character in its name",
    ),
    "metadata not text": (packed({"__metadata__": {"a": 1}}, b""), "__metadata__ is not text"),
    "metadata a list": (packed({"__metadata__": []}, b""), "__metadata__ is not text"),
    "tensor a number": (packed({"a": 1}), "tensor 'a' is not described"),
    "dtype missing": (packed({"a": {"shape": [2], "data_offsets": [0, 8]}}), "tensor 'a' is not described"),
    "more said than asked": (packed({"a": described() | {"x": 1}}), "tensor 'a' is not described"),
    "dtype unknown": (packed({"a": described("F12")}), "tensor 'a' has dtype 'F12'"),
    "dtype a list": (packed({"a": described([])}), r"tensor 'a' has dtype \[\]"),
    "shape negative": (packed({"a": described(shape=[-2])}), r"tensor 'a' has shape \[-2\]"),
    "shape of floats": (packed({"a": described(shape=[2.0])}), r"tensor 'a' has shape \[2.0\]"),
    "shape of truths": (packed({"a": described(shape=[True, 2])}), r"tensor 'a' has shape \[True, 2\]"),
    "shape a word": (packed({"a": described(shape="2")}), "tensor 'a' has shape '2'"),
    "shape of many dimensions": (packed({"a": described(shape=[2**62] * 100_000)}), "tensor 'a' has shape"),
    "shape overflows": (packed({"a": described(shape=[2**62, 4])}), "tensor 'a' of shape"),
    "size contradicts": (packed({"a": described(shape=[3])}), "takes 12 bytes, but its data_offsets span 8"),
    "dtype contradicts": (packed({"a": described("F16")}), "takes 4 bytes, but its data_offsets span 8"),
    "offsets backwards": (packed({"a": described(offsets=[8, 0])}), r"data_offsets \[8, 0\]"),
    "offsets alone": (packed({"a": described(offsets=[8])}), r"data_offsets \[8\]"),
    "offsets negative": (packed({"a": described(offsets=[-8, 0])}), r"data_offsets \[-8, 0\]"),
    "overlap": (packed(PAIR | {"c": described(offsets=(4, 12))}, bytes(16)), "tensor 'c' overlaps"),
    "the same bytes twice": (packed({"a": described(), "b": described()}), "tensor 'b' overlaps"),
    "hole": (packed({"a": described(), "b": described(offsets=(12, 20))}, bytes(20)), "'b' begins 4 bytes after"),
    "hole at the start": (packed({"a": described(offsets=(8, 16))}, bytes(16)), "'a' begins 8 bytes after"),
    "trailing": (packed({"a": described()}, bytes(9)), "the last 1 bytes belong to no tensor"),
    "truncated data": (packed(PAIR, bytes(15)), "tensor 'b' ends 1 bytes after the file does"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_refused_by_name(tmp_path: Path, fault: str) -> None:
    data, says = FAULTS[fault]
    (tmp_path / SINGLE).write_bytes(data)
    start = time.thread_time()
    with pytest.raises(CheckpointError, match=says) as refusal:
        open_checkpoint(tmp_path)
    assert time.thread_time() - start < 1
    assert SINGLE in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500 + len(str(tmp_path))


def test_an_absurd_header_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / SINGLE).write_bytes(packed({"a": described()}, length=2**40))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError):
            open_checkpoint(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("count", "says"), [(1_000_000, "the header takes"), (MAX_TENSORS + 1, "tensors, and at most")]
)
def test_a_crowded_header_is_refused_quickly(tmp_path: Path, count: int, says: str) -> None:
    entry = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    entries = b",".join([entry % i for i in range(count)])
    (tmp_path / SINGLE).write_bytes(packed(b"{" + entries + b"}", b""))
    start = time.thread_time()
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(tmp_path)
    assert time.thread_time() - start < 1


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("valid")
    save_checkpoint(directory, {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)})
    return (directory / SINGLE).read_bytes()


def test_truncated_at_every_byte(tmp_path: Path, valid: bytes) -> None:
    for cut in range(len(valid)):
        path = tmp_path / f"{cut}.safetensors"
        path.write_bytes(valid[:cut])
        with pytest.raises(CheckpointError, match=rf"{cut}\.safetensors"):
            open_checkpoint(path)


edits = st.tuples(
    st.sampled_from(["byte", "digit", "word", "cut", "repeat"]),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
)


def edited(data: bytes, kind: str, first: float, second: float) -> bytes:
    at, other = int(first * len(data)), int(second * len(data))
    if kind == "byte":
        return data[:at] + bytes([int(second * 256)]) + data[at + 1 :]
    if kind == "digit":
        return data[:at] + b"0123456789"[int(second * 10) :][:1] + data[at + 1 :]
    if kind == "word":
        return data[:at] + int(second * 2**64).to_bytes(8, "little") + data[at + 8 :]
    low, high = sorted((at, other))
    return data[:low] + data[high:] if kind == "cut" else data[:high] + data[low:]


@settings(max_examples=50, deadline=None)
@given(changes=st.lists(edits, min_size=1, max_size=3))
def test_any_damage_opens_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, valid: bytes, changes: list[tuple[str, float, float]]
) -> None:
    data = valid
    for change in changes:
        data = edited(data, *change)
    path = tmp_path_factory.mktemp("damaged") / "x.safetensors"
    path.write_bytes(data)
    start = time.thread_time()
    try:
        checkpoint = open_checkpoint(path)
    except RegardError as refusal:
        said = str(refusal)
    else:
        said = "x.safetensors opened"
        for name in checkpoint.names:
            assert tuple(checkpoint.tensor(name).shape) == checkpoint.shape(name)
    assert "x.safetensors" in said
    assert time.thread_time() - start < 1


FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path, {"a": torch.zeros(2), "b": torch.ones(2)}, max_shard_bytes=8)
    return tmp_path


@pytest.mark.parametrize(
    ("weight_map", "says"),
    [
        ({"a": FIRST, "b": FIRST}, f"tensor 'b' is put in '{FIRST}', but it is in no file"),
        ({"a": SECOND, "b": FIRST}, f"tensor 'a' is put in '{SECOND}', but it is in '{FIRST}'"),
        ({"a": FIRST, "b": SECOND, "c": SECOND}, f"tensor 'c' is put in '{SECOND}', but it is in no file"),
        ({"a": FIRST, "b": "model-00003-of-00002.safetensors"}, "tensor 'b' is put in .* which is missing"),
        ({"a": FIRST, "b": "../" + SECOND}, "tensor 'b' is put in .* not a file next to it"),
        ({"a": FIRST, "b": "..\\" + SECOND}, "not a file next to it"),
        ({"a": FIRST, "b": "/etc/passwd"}, "not a file next to it"),
        ({"a": FIRST, "b": "pytorch_model.bin"}, "not a file next to it"),
        ({"a": FIRST, "b": "\0.safetensors"}, "not a file next to it"),
        ({"a": FIRST, "b": "x" * 5000 + ".safetensors"}, "which is missing"),
        ({"a": 1}, "no weight_map"),
        ({}, "no weight_map"),
        ([], "no weight_map"),
        (None, "no weight_map"),
    ],
)
def test_an_index_that_disagrees_is_refused(sharded: Path, weight_map: Any, says: str) -> None:
    (sharded / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=says) as refusal:
        open_checkpoint(sharded)
    assert INDEX in str(refusal.value)


def test_an_index_may_cover_less_than_the_directory_holds(sharded: Path) -> None:
    """The file that it leaves out is no part of the checkpoint."""
    assert open_checkpoint(sharded).names == ("a", "b")
    (sharded / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"a": FIRST}}))
    assert open_checkpoint(sharded).names == ("a",)


def test_a_file_the_index_does_not_name_is_no_part_of_the_checkpoint(sharded: Path) -> None:
    (sharded / INDEX).write_text(json.dumps({"weight_map": {"a": FIRST}}))
    assert open_checkpoint(sharded).names == ("a",)


def test_a_shard_with_a_tensor_the_index_does_not_know_is_refused(sharded: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "other", {"b": torch.ones(2), "extra": torch.ones(2)})
    (tmp_path / "other" / SINGLE).replace(sharded / SECOND)
    with pytest.raises(CheckpointError, match=f"tensor 'extra' is put in no file, but it is in '{SECOND}'"):
        open_checkpoint(sharded)


def test_a_tensor_in_two_shards_is_refused(sharded: Path, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "other", {"b": torch.ones(2), "a": torch.ones(2)})
    (tmp_path / "other" / SINGLE).replace(sharded / SECOND)
    with pytest.raises(CheckpointError, match=f"Tensor 'a' is both in .*{FIRST} and in .*{SECOND}"):
        open_checkpoint(sharded)


def test_shards_without_an_index_are_refused(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    with pytest.raises(CheckpointError, match=f"shards need their {INDEX}"):
        open_checkpoint(sharded)


def test_an_index_that_is_not_json_is_refused(sharded: Path) -> None:
    (sharded / INDEX).write_text("{")
    with pytest.raises(CheckpointError, match=f"{INDEX}, the index of shards, is not valid JSON"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "last.ckpt", "weights.BIN", "m.pkl"])
@pytest.mark.parametrize("whole_directory", [True, False])
def test_pickles_are_never_opened(tmp_path: Path, name: str, whole_directory: bool) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"cbuiltins\nexec\n(S'raise SystemExit'\ntR.")
    with pytest.raises(CheckpointError, match=r"nothing is ever unpickled .*save_pretrained\(\"new\"\)") as refusal:
        open_checkpoint(tmp_path if whole_directory else tmp_path / name)
    assert name in str(refusal.value)


def test_safetensors_beside_a_pickle_are_opened_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, {"a": torch.ones(2)})
    (tmp_path / "pytorch_model.bin").write_bytes(b"never")
    monkeypatch.setattr(torch, "load", lambda *_: pytest.fail("a pickle was opened"))
    assert open_checkpoint(tmp_path).names == ("a",)


def test_one_file_under_another_name_is_pointed_to(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(packed({"a": described()}))
    with pytest.raises(CheckpointError, match=r"holds 'weights\.safetensors' .* open that file itself"):
        open_checkpoint(tmp_path)
    assert open_checkpoint(tmp_path / "weights.safetensors").shape("a") == (2,)


def test_a_directory_in_the_place_of_the_file_is_no_file(tmp_path: Path) -> None:
    (tmp_path / SINGLE).mkdir()
    with pytest.raises((CheckpointError, NotFound)):
        open_checkpoint(tmp_path)
