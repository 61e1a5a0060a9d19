"""GGUF files: read as the `gguf` package writes them, written as it reads them."""

import os
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from regard.errors import CheckpointError, NotFound
from regard.store.gguf import read_gguf
from regard.store.gguf_write import Typed, write_gguf
from regard.store.named_tensors import Planned

METADATA = {
    "general.architecture": "llama",
    "general.name": "naïve 🤖 model",
    "a.bool": True,
    "a.small": 7,
    "a.negative": -7,
    "a.large": 1 << 40,
    "a.largest": (1 << 64) - 1,
    "a.float": 1e-5,
    "a.strings": ["<s>", "", "Ġthe", "日本"],
    "a.integers": [1, -2, 3],
    "a.floats": [0.5, -1.0, 3],
    "a.bools": [True, False],
    "a.bytes": Typed("uint8", [0, 255]),
    "a.double": Typed("float64", 0.1),
    "a.empty": [],
    "a.long": Typed("int64", 3),
}


def plan(name: str, x: torch.Tensor, format: str) -> Planned:
    return Planned(name, tuple(x.shape), format, lambda: x)


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    make = torch.Generator().manual_seed(0)
    return {
        "token_embd.weight": torch.randn(5, 64, generator=make),
        "norm.weight": torch.randn(7, generator=make),
        "cube": torch.randn(2, 3, 32, generator=make),
        "odd": torch.randn(3, 5, generator=make).bfloat16(),
    }


@pytest.fixture
def written(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    formats = ["Q8_0", "F32", "Q4_1", "BF16"]
    plans = [plan(name, x, format) for (name, x), format in zip(tensors.items(), formats, strict=True)]
    write_gguf(tmp_path / "model.gguf", METADATA, plans)
    return tmp_path / "model.gguf"


def test_what_is_written_is_read_back(written: Path, tensors: dict[str, torch.Tensor]) -> None:
    file = read_gguf(written)
    assert file.version == 3
    assert file.names == tuple(tensors)
    plain = {key: value.value if isinstance(value, Typed) else value for key, value in METADATA.items()}
    assert file.metadata == {**plain, "a.float": float(np.float32(1e-5))}
    assert [type(value) for value in file.metadata.values()] == [type(value) for value in plain.values()]
    assert {name: file.shape(name) for name in file.names} == {name: tuple(x.shape) for name, x in tensors.items()}
    assert torch.equal(file.tensor("norm.weight"), tensors["norm.weight"])
    assert torch.equal(file.tensor("odd", torch.bfloat16), tensors["odd"])
    assert (file.tensor("token_embd.weight") - tensors["token_embd.weight"]).abs().max() < 0.02
    assert file.tensor("cube").shape == (2, 3, 32)


def test_the_reference_reader_sees_the_same(written: Path) -> None:
    ours, theirs = read_gguf(written), gguf.GGUFReader(written)
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert (info.format, info.offset, info.nbytes) == (tensor.tensor_type.name, tensor.data_offset, tensor.n_bytes)
        assert ours.raw(tensor.name).tobytes() == tensor.data.tobytes()
        want = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours.tensor(tensor.name).numpy(), want.reshape(info.shape))
    kinds = {key: [kind.name for kind in field.types] for key, field in theirs.fields.items() if key.startswith("a.")}
    assert kinds == {
        "a.bool": ["BOOL"],
        "a.small": ["UINT32"],
        "a.negative": ["INT32"],
        "a.large": ["INT64"],
        "a.largest": ["UINT64"],
        "a.float": ["FLOAT32"],
        "a.strings": ["ARRAY", "STRING"],
        "a.integers": ["ARRAY", "INT32"],
        "a.floats": ["ARRAY", "FLOAT32"],
        "a.bools": ["ARRAY", "BOOL"],
        "a.bytes": ["ARRAY", "UINT8"],
        "a.double": ["FLOAT64"],
        "a.empty": ["ARRAY"],
        "a.long": ["INT64"],
    }
    assert theirs.fields["a.strings"].contents() == METADATA["a.strings"]


def reference_file(path: Path, alignment: int | None = None) -> dict[str, np.ndarray]:
    """A file from the reference writer, with tensors in formats we read but do not write."""
    writer = gguf.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_uint16("a.u16", 65535)
    writer.add_int8("a.i8", -5)
    writer.add_float64("a.f64", 0.1)
    writer.add_array("tokenizer.ggml.tokens", ["a", "é", "\u2581b"])
    x = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    raw = np.random.default_rng(1).integers(0, 60, (2, 2 * 210), dtype=np.uint8)
    writer.add_tensor("plain", x)
    writer.add_tensor("short", x[0, :3].astype(np.float16))
    writer.add_tensor(
        "five", gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q5_1), raw_dtype=gguf.GGMLQuantizationType.Q5_1
    )
    writer.add_tensor("six", raw, raw_dtype=gguf.GGMLQuantizationType.Q6_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        "plain": x,
        "short": x[0, :3].astype(np.float16).astype(np.float32),
        "five": gguf.dequantize(gguf.quantize(x, gguf.GGMLQuantizationType.Q5_1), gguf.GGMLQuantizationType.Q5_1),
        "six": gguf.dequantize(raw, gguf.GGMLQuantizationType.Q6_K),
    }


@pytest.mark.parametrize("alignment", [None, 8, 256])
@pytest.mark.parametrize("version", [2, 3])
def test_files_of_the_reference_writer_are_read(tmp_path: Path, alignment: int | None, version: int) -> None:
    path = tmp_path / "reference.gguf"
    want = reference_file(path, alignment)
    data = bytearray(path.read_bytes())
    data[4] = version
    path.write_bytes(data)
    file = read_gguf(path)
    assert file.version == version
    assert file.metadata["a.u16"] == 65535
    assert file.metadata["a.i8"] == -5
    assert file.metadata["a.f64"] == 0.1
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "é", "\u2581b"]
    assert file.metadata.get("general.alignment") == alignment
    for name, x in want.items():
        np.testing.assert_array_equal(file.tensor(name).numpy(), x)


def test_numbers_that_lie_unaligned_are_read(tmp_path: Path) -> None:
    want = reference_file(tmp_path / "reference.gguf", alignment=1)
    file = read_gguf(tmp_path / "reference.gguf")
    for name, x in want.items():
        np.testing.assert_array_equal(file.tensor(name).numpy(), x)


def test_raw_bytes_are_mapped_and_private(written: Path, tensors: dict[str, torch.Tensor]) -> None:
    before = written.read_bytes()
    file = read_gguf(written)
    assert np.shares_memory(file.raw("norm.weight"), file.raw("norm.weight"))
    assert not np.shares_memory(file.raw("norm.weight"), file.tensor("norm.weight").numpy())
    file.raw("norm.weight")[:] = 0
    file.tensor("norm.weight").zero_()
    assert written.read_bytes() == before
    assert torch.equal(read_gguf(written).tensor("norm.weight"), tensors["norm.weight"])


def test_a_file_that_is_cut_short_while_it_is_open_is_refused(written: Path) -> None:
    file = read_gguf(written)
    file.release()
    os.truncate(written, 200)
    for look in (lambda: file.tensor("norm.weight"), lambda: file.raw("norm.weight"), file.check):
        with pytest.raises(CheckpointError, match="written to since it was opened"):
            look()


def test_a_file_may_be_written_over_itself(written: Path, tensors: dict[str, torch.Tensor]) -> None:
    file = read_gguf(written)

    def doubled(name: str) -> torch.Tensor:
        return file.tensor(name) * 2

    plans = [Planned(n, file.shape(n), "F32", partial(doubled, n)) for n in reversed(file.names)]
    write_gguf(written, file.metadata, plans)
    assert torch.equal(file.tensor("norm.weight"), tensors["norm.weight"])
    assert torch.equal(read_gguf(written).tensor("norm.weight"), tensors["norm.weight"] * 2)
    assert [path.name for path in written.parent.iterdir()] == ["model.gguf"]


def test_one_tensor_is_in_memory_at_a_time(tmp_path: Path) -> None:
    made: list[weakref.ref[torch.Tensor]] = []

    def make() -> torch.Tensor:
        assert all(tensor() is None for tensor in made)
        tensor = torch.full((4, 32), float(len(made)))
        made.append(weakref.ref(tensor))
        return tensor

    write_gguf(tmp_path / "x.gguf", {}, [Planned(f"t{i}", (4, 32), "F16", make) for i in range(3)])
    assert [read_gguf(tmp_path / "x.gguf").tensor(f"t{i}")[0, 0].item() for i in range(3)] == [0, 1, 2]


def test_a_plain_tuple_and_an_array_will_do(tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", {}, [("a", (2,), "F16", lambda: np.array([0.5, 3], np.float32))])
    assert read_gguf(tmp_path / "x.gguf").tensor("a").tolist() == [0.5, 3]


def test_a_given_alignment_is_left_out(tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", {"general.alignment": 64, "k": 1}, [plan("a", torch.ones(3), "F32")])
    file = read_gguf(tmp_path / "x.gguf")
    assert file.metadata == {"k": 1}
    assert file.tensors["a"].offset % 32 == 0


def test_a_vocabulary_opens_quickly(tmp_path: Path) -> None:
    tokens = [f"token {i} é" for i in range(100_000)]
    write_gguf(tmp_path / "v.gguf", {"tokens": tokens, "scores": [0.0] * len(tokens)}, [])
    start = time.thread_time()
    file = read_gguf(tmp_path / "v.gguf")
    assert time.thread_time() - start < 0.8
    assert file.metadata["tokens"] == tokens


def test_long_arrays_are_read_again_and_written_again(tmp_path: Path) -> None:
    """They stay bytes in between, and are values for whoever looks."""
    told: dict[str, Any] = {"words": [f"{i} é" for i in range(3000)], "numbers": list(range(3000)), "few": [1, 2]}
    write_gguf(tmp_path / "a.gguf", told, [])
    read = read_gguf(tmp_path / "a.gguf").metadata
    assert (read["words"][7], read["words"][-1], len(read["numbers"])) == ("7 é", "2999 é", 3000)
    assert read == told == read
    assert read["words"] != told["words"][:-1]
    assert type(read["few"]) is list
    write_gguf(tmp_path / "b.gguf", read, [])
    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()


words = st.text(st.characters(codec="utf-8"), max_size=300)


@given(
    given=st.lists(words, max_size=40)
    | st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
)
@example(given=["a", "", "b"])
@example(given=["a", "x" * 255, "x" * 256, "b"])
@example(given=["a\0b", "\0" * 9, "c"])
@example(given=["a" * 200] * 3)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_strings_of_every_length_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]) -> None:
    """Whether they can be read all at once or must be read one by one."""
    monkeypatch.setattr("regard.store.gguf.STRINGS", 7)
    write_gguf(tmp_path / "s.gguf", {"before": 7, "s": Typed("string", given), "after": "z", "n": 5}, [])
    assert read_gguf(tmp_path / "s.gguf").metadata == {"before": 7, "s": given, "after": "z", "n": 5}


@pytest.mark.parametrize(
    ("metadata", "plans", "says"),
    [
        ({}, [plan("a", torch.ones(3), "F32"), plan("a", torch.ones(3), "F32")], "tensor 'a': two tensors"),
        ({}, [plan("x" * 64, torch.ones(3), "F32")], "longer than 63 bytes"),
        ({}, [plan("a", torch.ones(()), "F32")], "1 to 4 non-empty dimensions"),
        ({}, [plan("a", torch.ones(1, 1, 1, 1, 1), "F32")], "1 to 4 non-empty dimensions"),
        ({}, [plan("a", torch.ones(0, 2), "F32")], "1 to 4 non-empty dimensions"),
        ({}, [plan("a", torch.ones(33), "Q4_0")], "tensor 'a': rows of 33 numbers"),
        ({}, [plan("a", torch.ones(256), "Q6_K")], "read but not written"),
        ({}, [plan("a", torch.ones(2), "Q7")], "not one of F32"),
        ({}, [plan("a", torch.full((32,), torch.nan), "Q8_0")], "tensor 'a': NaN and infinity"),
        ({}, [plan("\ud800", torch.ones(2), "F32")], "cannot be written as UTF-8"),
        ({}, [Planned("a", (2,), "F32", lambda: torch.ones(3))], r"planned with shape \(2,\), made with \(3,\)"),
        ({"": 1}, [], "it has no name"),
        ({"k": None}, [], "key 'k': GGUF cannot hold values of type NoneType"),
        ({"k": ["a", 1]}, [], "values of type int, str"),
        ({"k": 1 << 64}, [], "no integer"),
        ({"k": 1e39}, [], "does not fit float32"),
        ({"k": "\udfff"}, [], "cannot be written as UTF-8"),
        ({"k": Typed("uint8", 256)}, [], "does not fit uint8"),
        ({"k": Typed("int32", [1.5])}, [], "does not fit int32"),
        ({"k": Typed("string", [1])}, [], "1 is not a string"),
        ({"k": Typed("word", 1)}, [], "'word' is not a kind"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, metadata: dict[str, object], plans: list[Planned], says: str
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"old")
    with pytest.raises(CheckpointError, match=says):
        write_gguf(path, metadata, plans)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    def full() -> torch.Tensor:
        raise OSError(28, "No space left on device")

    (tmp_path / "x.gguf").write_bytes(b"old")
    with pytest.raises(CheckpointError, match="No space left on device"):
        write_gguf(tmp_path / "x.gguf", {}, [plan("a", torch.ones(2), "F32"), Planned("b", (2,), "F32", full)])
    assert (tmp_path / "x.gguf").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_missing_things_are_named(written: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no\.gguf is not a file"):
        read_gguf(tmp_path / "no.gguf")
    with pytest.raises(NotFound, match="is not a file"):
        read_gguf(tmp_path)
    with pytest.raises(NotFound, match="holds no tensor 'nothing'"):
        read_gguf(written).raw("nothing")
