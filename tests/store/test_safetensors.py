"""Safetensors checkpoints: read as the library writes them, written as it reads them."""

import json
import os
import stat
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import CheckpointError, NotFound
from regard.store.named_tensors import Planned
from regard.store.safetensors import INDEX, SINGLE, dtypes, open_checkpoint
from regard.store.safetensors_write import save_checkpoint

TENSORS = {
    "wte.weight": torch.arange(12.0).reshape(3, 4),
    "half": torch.tensor([1.5, -2.0, float("inf")], dtype=torch.float16),
    "brain": torch.tensor([[0.1, float("nan")]], dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "mask": torch.tensor([True, False, True]),
    "nothing": torch.zeros(0, 3),
}


def assert_same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert torch.equal(got.reshape(-1).view(torch.uint8), want.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("whole_directory", [True, False])
def test_a_file_of_the_library_is_read(tmp_path: Path, whole_directory: bool) -> None:
    save_file(TENSORS, tmp_path / SINGLE, {"format": "pt"})
    checkpoint = open_checkpoint(tmp_path if whole_directory else tmp_path / SINGLE)
    assert set(checkpoint.names) == set(TENSORS)
    assert checkpoint.files == (tmp_path / SINGLE,)
    assert checkpoint.metadata == {"format": "pt"}
    for name, want in TENSORS.items():
        assert checkpoint.shape(name) == tuple(want.shape)
        assert checkpoint.dtype(name) == want.dtype
        assert_same(checkpoint.tensor(name), want)


def test_every_dtype_has_the_librarys_name(tmp_path: Path) -> None:
    save_file({name: torch.zeros(2, dtype=dtype) for name, dtype in dtypes().items()}, tmp_path / SINGLE)
    checkpoint = open_checkpoint(tmp_path)
    assert {name: checkpoint.dtype(name) for name in checkpoint.names} == dtypes()


def test_the_library_reads_what_is_saved(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, TENSORS)
    assert [path.name for path in tmp_path.iterdir()] == [SINGLE]
    loaded = load_file(tmp_path / SINGLE)
    assert loaded.keys() == TENSORS.keys()
    for name, want in TENSORS.items():
        assert_same(loaded[name], want)
        assert loaded[name].data_ptr() % want.itemsize == 0
    assert open_checkpoint(tmp_path).metadata == {"format": "pt"}


def test_one_dtype_gives_the_librarys_very_bytes(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4), "b": torch.randn(5), "c.ü": torch.randn(1)}
    save_checkpoint(tmp_path, tensors, metadata={"format": "pt"})
    save_file(tensors, tmp_path / "library.safetensors", {"format": "pt"})
    ours, theirs = (tmp_path / SINGLE).read_bytes(), (tmp_path / "library.safetensors").read_bytes()
    length = [int.from_bytes(data[:8], "little") for data in (ours, theirs)]
    assert json.loads(ours[8 : 8 + length[0]]) == json.loads(theirs[8 : 8 + length[1]])
    assert ours[8 + length[0] :] == theirs[8 + length[1] :]


def test_tensors_are_private(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, TENSORS)
    checkpoint = open_checkpoint(tmp_path)
    checkpoint.tensor("wte.weight").fill_(5)
    assert_same(checkpoint.tensor("wte.weight"), TENSORS["wte.weight"])
    checkpoint.tensor("wte.weight", mapped=True).fill_(5)
    assert checkpoint.tensor("wte.weight", mapped=True)[0, 0] == 5, "a second look copies nothing"
    assert_same(open_checkpoint(tmp_path).tensor("wte.weight"), TENSORS["wte.weight"])


def test_shards_have_hugging_faces_names_and_index(tmp_path: Path) -> None:
    tensors = {f"t{i}": torch.full((10,), float(i)) for i in range(5)}  # 40 bytes each
    save_checkpoint(tmp_path, tensors | {"large": torch.ones(100)}, max_shard_bytes=90)
    shards = [f"model-0000{i}-of-00004.safetensors" for i in range(1, 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*shards, INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"] == {"total_size": 600}
    where = {"t0": 0, "t1": 0, "t2": 1, "t3": 1, "t4": 2, "large": 3}
    assert index["weight_map"] == {name: shards[shard] for name, shard in where.items()}
    checkpoint = open_checkpoint(tmp_path)
    assert [path.name for path in checkpoint.files] == shards
    for name, want in tensors.items():
        assert_same(checkpoint.tensor(name), want)
        assert_same(load_file(tmp_path / index["weight_map"][name])[name], want)


def test_transformers_opens_shards_of_ours(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2Model

    model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=4)).eval()
    model.config.save_pretrained(tmp_path)
    save_checkpoint(tmp_path, model.state_dict(), max_shard_bytes=2000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    again = GPT2Model.from_pretrained(tmp_path)
    for name, want in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], want)


@pytest.mark.parametrize("change", [lambda file: os.truncate(file, 100), lambda file: os.utime(file, ns=(1, 1))])
@pytest.mark.parametrize("look", ["tensor", "array", "raw"])
def test_a_file_that_changes_while_it_is_open_is_refused(tmp_path: Path, change: Any, look: str) -> None:
    """Cut short, or written over in place; through a map, the first would end the process."""
    save_checkpoint(tmp_path, TENSORS)
    checkpoint = open_checkpoint(tmp_path)
    assert_same(checkpoint.tensor("wte.weight"), TENSORS["wte.weight"])
    change(tmp_path / SINGLE)
    with pytest.raises(CheckpointError, match="written to since it was opened"):
        getattr(checkpoint, look)("wte.weight")


@pytest.mark.parametrize(("first", "second"), [(40, 10**9), (10**9, 40), (40, 80), (40, 40)])
def test_saving_onto_the_mapped_checkpoint(tmp_path: Path, first: int, second: int) -> None:
    tensors = {f"t{i}": torch.full((10,), float(i)) for i in range(5)}
    save_checkpoint(tmp_path, tensors, max_shard_bytes=first)
    mapped = open_checkpoint(tmp_path)
    turned = {name: mapped.tensor(f"t{4 - i}") for i, name in enumerate(mapped.names)}
    save_checkpoint(tmp_path, turned, max_shard_bytes=second)
    again = open_checkpoint(tmp_path)
    for i in range(5):
        assert_same(mapped.tensor(f"t{i}"), tensors[f"t{i}"])
        assert_same(again.tensor(f"t{i}"), tensors[f"t{4 - i}"])
    kept = {path.name for path in again.files} | ({INDEX} if second < 200 else set())
    assert {path.name for path in tmp_path.iterdir()} == kept, "nothing of the earlier save is left"


def test_files_that_are_not_part_of_a_checkpoint_are_left_alone(tmp_path: Path) -> None:
    for name in ("config.json", "adapter.safetensors", "model-1-of-2.safetensors"):
        (tmp_path / name).write_text("{}")
    save_checkpoint(tmp_path, TENSORS)
    assert len(list(tmp_path.iterdir())) == 4


def test_views_aliases_and_planned_tensors_are_written_out(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    weight = torch.nn.Parameter(x)
    save_checkpoint(tmp_path, {"x": weight, "tied": weight, "flipped": x.T, "column": x[:, 1]})
    checkpoint = open_checkpoint(tmp_path)
    for name, want in {"x": x, "tied": x, "flipped": x.T.contiguous(), "column": torch.tensor([1.0, 4.0])}.items():
        assert_same(checkpoint.tensor(name), want)
    save_checkpoint(tmp_path, {"made": lambda: x.half()})
    assert_same(open_checkpoint(tmp_path).tensor("made"), x.half())
    save_checkpoint(tmp_path, [Planned("x", (2, 3), "BF16", lambda: x)])
    assert_same(open_checkpoint(tmp_path).tensor("x"), x.bfloat16())


def test_one_tensor_is_in_memory_at_a_time(tmp_path: Path) -> None:
    made: list[weakref.ref[torch.Tensor]] = []

    def make() -> torch.Tensor:
        assert all(tensor() is None for tensor in made)
        tensor = torch.full((4,), float(len(made)))
        made.append(weakref.ref(tensor))
        return tensor

    save_checkpoint(tmp_path, [Planned(f"t{i}", (4,), "F32", make) for i in range(3)])
    assert [open_checkpoint(tmp_path).tensor(f"t{i}")[0].item() for i in range(3)] == [0, 1, 2]


@pytest.mark.skipif(os.name == "nt", reason="file modes are POSIX")
def test_files_have_ordinary_permissions(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        save_checkpoint(tmp_path, TENSORS)
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / SINGLE).stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("plans", "says"),
    [
        ([Planned("a", (2,), "F32", lambda: torch.ones(2))] * 2, "tensor 'a' has a name that is taken"),
        ([Planned("__metadata__", (2,), "F32", lambda: torch.ones(2))], "'__metadata__' has a name that is taken"),
        ([Planned("a", (2,), "Q8_0", lambda: torch.ones(2))], "tensor 'a' is to be Q8_0"),
        ([Planned("a", (2,), "F32", lambda: torch.ones(3))], r"planned with shape \(2,\), made with \(3,\)"),
        ({"a": torch.ones(2, dtype=torch.complex128)}, "Tensor 'a' has dtype torch.complex128"),
    ],
)
def test_what_cannot_be_saved_leaves_the_old_checkpoint(tmp_path: Path, plans: list[Planned], says: str) -> None:
    save_checkpoint(tmp_path, {"old": torch.ones(1)})
    with pytest.raises(CheckpointError, match=says):
        save_checkpoint(tmp_path, plans)
    assert open_checkpoint(tmp_path).names == ("old",)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    def full() -> torch.Tensor:
        raise OSError(28, "No space left on device")

    old = {"a": torch.ones(4), "b": torch.ones(4)}
    save_checkpoint(tmp_path, old, max_shard_bytes=16)
    new = [Planned("a", (4,), "F32", lambda: torch.zeros(4)), Planned("b", (4,), "F32", full)]
    with pytest.raises(CheckpointError, match="No space left on device; choose another place or free some space"):
        save_checkpoint(tmp_path, new, max_shard_bytes=16)
    assert_same(open_checkpoint(tmp_path).tensor("a"), old["a"])
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("moved", range(3))
def test_a_save_that_stops_between_shards_is_never_a_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    tensors = {"a": torch.ones(4), "b": torch.ones(4)}
    save_checkpoint(tmp_path, tensors, max_shard_bytes=16)
    done: list[Path] = []
    really_replace = os.replace

    def replace_or_die(staged: Path, path: Path) -> None:
        if len(done) == moved:
            raise KeyboardInterrupt
        done.append(path)
        really_replace(staged, path)

    monkeypatch.setattr(os, "replace", replace_or_die)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, {name: x * 2 for name, x in tensors.items()}, max_shard_bytes=16)
    with pytest.raises(CheckpointError, match=f"shards need their {INDEX}"):
        open_checkpoint(tmp_path)


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere does not exist"):
        open_checkpoint(tmp_path / "nowhere")
    with pytest.raises(NotFound, match="holds no weights"):
        open_checkpoint(tmp_path)
    save_checkpoint(tmp_path, TENSORS)
    with pytest.raises(NotFound, match="holds no tensor 'wpe'"):
        open_checkpoint(tmp_path).tensor("wpe")
