"""Weights by name → files that other tools open: Hugging Face's layout, or one GGUF file; or a quantized directory for
models that GGUF has no architecture for (`blocks.py`).

Everything is written under a temporary name and renamed, so saving over the files a model was loaded from is safe.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import ConfigError, TokenizerError
from regard.model.registry import Family
from regard.model.spec import Spec
from regard.model.weight_map import Form, Table, saved_names
from regard.store.atomic_write import write_json_atomically
from regard.store.blocks import ARCHITECTURE, FILE, own_table
from regard.store.gguf_write import write_gguf
from regard.store.named_tensors import Planned
from regard.store.number_formats import FORMATS
from regard.store.open_model import POOLING_TYPES, Pooling
from regard.store.quantize import NAMES, is_quantized
from regard.store.safetensors_write import save_checkpoint
from regard.text.gguf_vocab import gguf_vocab
from regard.text.tokenizer import Tokenizer

Weights = Mapping[str, Any]  # every parameter under each of its names: numpy arrays or PyTorch tensors
FLOATS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32}  # general.file_type


@dataclass(frozen=True)
class ModelFiles:
    """Everything that is saved of a model: weights, configuration, tokenizer and settings."""

    weights: Weights
    spec: Spec
    family: Family
    config: Mapping[str, Any]
    tokenizer: Tokenizer | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)  # of generation_config.json
    pooling: Pooling = field(default_factory=Pooling)


def number_format(name: str | None) -> str:
    """The number format that `quantize` asks for: "q8" and "q8_0" are the same; None is float32."""
    format = "F32" if name is None else NAMES.get(name, name.upper())
    if format not in FILE_TYPES:
        raise ConfigError(f"GGUF is written as {', '.join(FILE_TYPES)}, not {name!r}.")
    return format


def planned(
    table: Table, weights: Weights, spec: Spec, format_of: Callable[[str, tuple[int, ...]], str]
) -> list[Planned]:
    """Every tensor of the file, each made only when it is written."""

    def plan(name: str, ours: tuple[str, ...], form: Form) -> Planned:
        shape = tuple(form.shape([weights[each].shape for each in ours]))
        return Planned(name, shape, format_of(name, shape), lambda: form.save([plain(weights[each]) for each in ours]))

    return [plan(*named) for named in saved_names(table, weights, spec.tied)]


def plain(weight: Any) -> Any:
    """A weight detached from autograd, in CPU memory."""
    return weight if isinstance(weight, np.ndarray) else weight.detach().cpu()


def save_directory(directory: Path, model: ModelFiles, dtype: str | None = None) -> None:
    """Save in Hugging Face's layout. dtype: float32, float16 or bfloat16; by default that of the weights."""
    directory.mkdir(parents=True, exist_ok=True)
    dtype = dtype or str(next(iter(model.weights.values())).dtype).removeprefix("torch.")
    format = FLOATS[dtype]
    table = model.family.table(model.config, model.spec)
    save_checkpoint(directory, planned(table, model.weights, model.spec, lambda name, shape: format))
    (directory / FILE).unlink(missing_ok=True)  # of a quantized model saved here before
    save_other_files(directory, model, dtype)


def save_blocks(directory: Path, model: ModelFiles, format: str, remarks: Mapping[str, object]) -> None:
    """As `save_directory`, with quantized matrices: any family, but only this package opens it."""
    directory.mkdir(parents=True, exist_ok=True)
    table = own_table(model.weights)
    metadata = {"general.architecture": ARCHITECTURE, "general.file_type": FILE_TYPES[format], **remarks}

    def format_of(name: str, shape: tuple[int, ...]) -> str:
        return format if is_quantized(name, shape, format) else "F32"

    write_gguf(directory / FILE, metadata, planned(table, model.weights, model.spec, format_of))
    for old in directory.glob("*.safetensors*"):
        old.unlink()
    save_other_files(directory, model, "float32")


def save_other_files(directory: Path, model: ModelFiles, dtype: str) -> None:
    """Save tokenizer, generation settings, pooling and, last, config.json."""
    if model.tokenizer is not None:
        model.tokenizer.save(directory)
    if model.generation:
        write_json_atomically(directory / "generation_config.json", dict(model.generation))
    if model.pooling.stated:
        save_pooling(directory, model.spec, model.pooling)
    saved = {key: value for key, value in model.config.items() if key not in ("torch_dtype", "quantization_config")}
    write_json_atomically(directory / "config.json", {**saved, "dtype": dtype})


def save_pooling(directory: Path, spec: Spec, pooling: Pooling) -> None:
    """Save the pooling settings in the files of sentence-transformers."""
    (directory / "1_Pooling").mkdir(exist_ok=True)
    keys = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    settings = {"word_embedding_dimension": spec.d, **{key: mode == pooling.mode for mode, key in keys.items()}}
    write_json_atomically(directory / "1_Pooling" / "config.json", settings)
    kind = "sentence_transformers.models"
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"}]
    modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}.Pooling"})
    if pooling.normalise:
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{kind}.Normalize"})
    write_json_atomically(directory / "modules.json", modules)
    if pooling.max_tokens:
        write_json_atomically(directory / "sentence_bert_config.json", {"max_seq_length": pooling.max_tokens})


def save_gguf(path: Path, model: ModelFiles, format: str = "F32", remarks: Mapping[str, object] | None = None) -> Path:
    """Save one GGUF file, tokenizer included. Matrices are stored as `format`, the rest as float32; `remarks`: metadata."""
    spec, gguf = model.spec, model.family.gguf
    if gguf is None:
        raise ConfigError(
            f"GGUF has no architecture for {model.config['model_type']}; write a directory instead, in Hugging Face's "
            "layout or, quantized, in this package's own."
        )
    if model.tokenizer is None:
        raise TokenizerError("A GGUF file holds its tokenizer, and this model has none; save in Hugging Face's layout.")
    name = path.stem
    if path.suffix != ".gguf":
        path = path / "model.gguf"
    metadata = {
        **gguf.metadata(model.config, spec),
        "general.name": name,
        "general.file_type": FILE_TYPES[format],
        "general.quantization_version": 2,
        **gguf_vocab(model.tokenizer, spec.n_vocab),
        **(remarks or {}),
    }
    if spec.kind == "encoder":
        mode = model.pooling.mode
        if mode not in POOLING_TYPES:
            raise ConfigError(f"GGUF knows no pooling by {mode}; save in Hugging Face's layout.")
        metadata[f"{metadata['general.architecture']}.pooling_type"] = POOLING_TYPES[mode]
    table = gguf.table(model.config, spec)
    tensors = planned(
        table, model.weights, spec, lambda name, shape: format if is_matrix(name, shape, format) else "F32"
    )
    for key, constant in gguf.constants(spec).items():
        tensors.append(Planned(key, tuple(constant.shape), "F32", lambda constant=constant: constant))  # type: ignore[misc]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gguf(path, metadata, tensors)
    return path


def is_matrix(name: str, shape: tuple[int, ...], format: str) -> bool:
    """Whether a tensor is quantized: positions, segments, norms and biases never are."""
    small = name.startswith(("position_embd", "token_types")) or len(shape) < 2
    return not small and shape[-1] % FORMATS[format].block_elements == 0
