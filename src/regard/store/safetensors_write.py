"""Named tensors → a safetensors checkpoint in Hugging Face's layout: one file, or shards and their index.

In: tensors, or plans to make them. Out: files that are renamed into place together; one tensor is in memory at a time.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import CheckpointError, quoted
from regard.store.atomic_write import move_into_place, staging
from regard.store.named_tensors import Planned
from regard.store.number_formats import quantize
from regard.store.safetensors import DTYPES, INDEX, SINGLE, SIZES, dtypes

SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def save_checkpoint(
    directory: Path | str,
    tensors: Mapping[str, Any | Callable[[], Any]] | Iterable[Planned],
    *,
    max_shard_bytes: int = 5_000_000_000,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the tensors into `directory`, and remove files of an earlier save that are no longer part of it.

    Tensors may be given as they are, or as functions that make them when they are written (and once before, for
    their shape), or `Planned`, which makes them once. One is in memory at a time. All files are on the disk
    before the first is renamed, so saving over the checkpoint that the tensors are memory-mapped from is safe. `metadata`
    is text for every file's header; by default the `format` that transformers looks for.
    """
    directory = Path(directory)
    plans = [_planned(*pair) for pair in tensors.items()] if isinstance(tensors, Mapping) else list(tensors)
    _check(directory, plans)
    shards = _shards(plans, max_shard_bytes)
    files = _file_names(len(shards))
    with staging(directory) as stage:
        for file, shard in zip(files, shards, strict=True):
            write_file(stage / file, shard, {"format": "pt"} if metadata is None else metadata)
        if len(shards) > 1:
            (stage / INDEX).write_bytes(_index(files, shards))
            files.append(INDEX)
        if any((directory / file).exists() for file in files if file != SINGLE):
            (directory / INDEX).unlink(missing_ok=True)  # so that old and new shards are never opened as one checkpoint
        move_into_place(stage, directory, files)
        for path in directory.iterdir():
            if path.name not in files and (path.name in {SINGLE, INDEX} or SHARD.fullmatch(path.name)):
                path.unlink()


def _planned(name: str, source: Any) -> Planned:
    """A plan to write a tensor, PyTorch's or numpy's, in the dtype it has."""
    tensor = source() if callable(source) else source
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise CheckpointError(f"Tensor {quoted(name)} has dtype {tensor.dtype}, which safetensors files cannot hold.")
    make = source if callable(source) else lambda: source
    return Planned(name, tuple(tensor.shape), DTYPES[dtype], make)


def _check(directory: Path, plans: list[Planned]) -> None:
    names = set()
    for plan in plans:
        subject = f"{directory} cannot be saved to: tensor {quoted(plan.name)}"
        if plan.name in names or plan.name == "__metadata__":
            raise CheckpointError(f"{subject} has a name that is taken.")
        if plan.format not in SIZES:
            raise CheckpointError(f"{subject} is to be {plan.format}, which is none of {', '.join(SIZES)}.")
        names.add(plan.name)


def _nbytes(plan: Planned) -> int:
    return math.prod(plan.shape) * SIZES[plan.format]


def _shards(plans: list[Planned], max_bytes: int) -> list[list[Planned]]:
    """Divide the tensors into shards of at most `max_bytes`; a larger tensor gets its own shard."""
    shards: list[list[Planned]] = [[]]
    filled = 0
    for plan in plans:
        if shards[-1] and filled + _nbytes(plan) > max_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(plan)
        filled += _nbytes(plan)
    return shards


def _file_names(count: int) -> list[str]:
    return [SINGLE] if count == 1 else [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]


def _index(files: list[str], shards: list[list[Planned]]) -> bytes:
    weight_map = {plan.name: file for file, shard in zip(files, shards, strict=True) for plan in shard}
    total = sum(_nbytes(plan) for shard in shards for plan in shard)
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2)
    return f"{text}\n".encode()


def write_file(path: Path, plans: list[Planned], metadata: Mapping[str, str]) -> None:
    """Write one file: header length u64, header padded to 8 bytes, tensors; wider numbers first, so all are aligned."""
    plans = sorted(plans, key=lambda plan: -SIZES[plan.format])
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for plan in plans:
        offsets = [at, at + _nbytes(plan)]
        header[plan.name] = {"dtype": plan.format, "shape": list(plan.shape), "data_offsets": offsets}
        at = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for plan in plans:
            file.write(_numbers(plan))


def _numbers(plan: Planned) -> memoryview:
    made = plan.make()
    if tuple(made.shape) != tuple(plan.shape):
        raise CheckpointError(
            f"Tensor {quoted(plan.name)} was planned with shape {tuple(plan.shape)}, made with {tuple(made.shape)}."
        )
    if isinstance(made, np.ndarray):
        if made.dtype == np.float32 and plan.format in ("F16", "BF16"):
            try:
                return quantize(made, plan.format).reshape(-1).data
            except CheckpointError as problem:
                raise CheckpointError(f"Tensor {quoted(plan.name)} cannot be written: {problem}.") from None
        assert DTYPES[str(made.dtype)] == plan.format
        return np.ascontiguousarray(made).reshape(-1).view(np.uint8).data
    import torch

    flat = made.detach().to("cpu", dtypes()[plan.format]).contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
