"""A network → files that others open: Hugging Face's layout, or one GGUF file. What neither can hold rounded, in blocks of
its own (`blocks.py`).

Everything is written under a temporary name and renamed, so saving over the files a model was loaded from is safe.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import ConfigError, TokenizerError
from regard.model.registry import Family
from regard.model.spec import Spec
from regard.model.transformer import Network
from regard.model.weightmap import Form, Table, saved_names
from regard.store.blocks import ARCHITECTURE, FILE, own_table
from regard.store.gguf_write import write_gguf
from regard.store.jsonfile import write_json_atomically
from regard.store.named import Planned
from regard.store.open import POOLING_TYPES, Pooling
from regard.store.quant import FORMATS
from regard.store.rounding import NAMES, is_rounded
from regard.store.safetensors_write import save_checkpoint
from regard.text.gguf_vocab import gguf_vocab
from regard.text.tokenizer import Tokenizer

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "BF16": 32}  # general.file_type


def number_format(name: str | None) -> str:
    """The number format that `quantize` asks for: "q8" and "q8_0" are the same; None is float32."""
    format = "F32" if name is None else NAMES.get(name, name.upper())
    if format not in FILE_TYPES:
        raise ConfigError(f"GGUF is written as {', '.join(FILE_TYPES)}, not {name!r}.")
    return format


def planned(table: Table, net: Network, spec: Spec, format_of: Callable[[str, tuple[int, ...]], str]) -> list[Planned]:
    """Every tensor of the file, each made only when its turn to be written comes."""
    parameters = dict(net.named_parameters(remove_duplicate=False))

    def plan(name: str, ours: tuple[str, ...], form: Form) -> Planned:
        def make() -> Tensor:
            return form.save([parameters[each].detach().cpu() for each in ours]).contiguous()

        shape = tuple(form.shape([parameters[each].shape for each in ours]))
        return Planned(name, shape, format_of(name, shape), make)

    return [plan(*named) for named in saved_names(table, parameters, spec.tied)]


def save_directory(
    directory: Path,
    net: Network,
    spec: Spec,
    family: Family,
    config: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    generation: Mapping[str, Any],
    pooling: Pooling,
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    dtype = str(next(net.parameters()).dtype).removeprefix("torch.")
    format = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    save_checkpoint(directory, planned(family.table(config, spec), net, spec, lambda name, shape: format))
    (directory / FILE).unlink(missing_ok=True)  # of a model in blocks that was here before
    save_beside(directory, spec, config, tokenizer, generation, pooling, dtype)


def save_blocks(
    directory: Path,
    net: Network,
    spec: Spec,
    config: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    generation: Mapping[str, Any],
    pooling: Pooling,
    format: str,
    remarks: Mapping[str, object],
) -> None:
    """As `save_directory`, with the matrices in blocks: any family, but only this package opens it."""
    directory.mkdir(parents=True, exist_ok=True)
    table = own_table(name for name, _ in net.named_parameters(remove_duplicate=False))
    metadata = {"general.architecture": ARCHITECTURE, "general.file_type": FILE_TYPES[format], **remarks}

    def format_of(name: str, shape: tuple[int, ...]) -> str:
        return format if is_rounded(name, shape, format) else "F32"

    write_gguf(directory / FILE, metadata, planned(table, net, spec, format_of))
    for old in directory.glob("*.safetensors*"):
        old.unlink()
    save_beside(directory, spec, config, tokenizer, generation, pooling, "float32")


def save_beside(
    directory: Path,
    spec: Spec,
    config: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    generation: Mapping[str, Any],
    pooling: Pooling,
    dtype: str,
) -> None:
    """All files of a directory but the weights; config.json last."""
    if tokenizer is not None:
        tokenizer.save(directory)
    if generation:
        write_json_atomically(directory / "generation_config.json", dict(generation))
    if pooling.stated:
        save_pooling(directory, spec, pooling)
    kept = {key: value for key, value in config.items() if key not in ("torch_dtype", "quantization_config")}
    write_json_atomically(directory / "config.json", {**kept, "dtype": dtype})


def save_pooling(directory: Path, spec: Spec, pooling: Pooling) -> None:
    """The files by which sentence encoders say how they pool."""
    (directory / "1_Pooling").mkdir(exist_ok=True)
    keys = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    said = {"word_embedding_dimension": spec.d, **{key: mode == pooling.mode for mode, key in keys.items()}}
    write_json_atomically(directory / "1_Pooling" / "config.json", said)
    kind = "sentence_transformers.models"
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"}]
    modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}.Pooling"})
    if pooling.normalise:
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{kind}.Normalize"})
    write_json_atomically(directory / "modules.json", modules)
    if pooling.max_tokens:
        write_json_atomically(directory / "sentence_bert_config.json", {"max_seq_length": pooling.max_tokens})


def save_gguf(
    path: Path,
    net: Network,
    spec: Spec,
    family: Family,
    config: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    pooling: Pooling,
    format: str = "F32",
    remarks: Mapping[str, object] | None = None,
) -> Path:
    """One file, with the tokenizer inside. Matrices are stored as `format`, all else in float32; `remarks` are metadata."""
    if family.gguf is None:
        raise ConfigError(
            f"GGUF has no architecture for {config['model_type']}; write a directory instead, in Hugging Face's layout "
            "or, quantised, in this package's own."
        )
    if tokenizer is None:
        raise TokenizerError("A GGUF file holds its tokenizer, and this model has none; save in Hugging Face's layout.")
    name = path.stem
    if path.suffix != ".gguf":
        path = path / "model.gguf"
    metadata = {
        **family.gguf.metadata(config, spec),
        "general.name": name,
        "general.file_type": FILE_TYPES[format],
        "general.quantization_version": 2,
        **gguf_vocab(tokenizer, spec.n_vocab),
        **(remarks or {}),
    }
    if spec.kind == "encoder":
        if pooling.mode not in POOLING_TYPES:
            raise ConfigError(f"GGUF knows no pooling by {pooling.mode}; save in Hugging Face's layout.")
        metadata[f"{metadata['general.architecture']}.pooling_type"] = POOLING_TYPES[pooling.mode]
    table = family.gguf.table(config, spec)
    tensors = planned(table, net, spec, lambda name, shape: format if is_matrix(name, shape, format) else "F32")
    for key, constant in family.gguf.constants(spec).items():
        tensors.append(Planned(key, tuple(constant.shape), "F32", lambda constant=constant: constant))  # type: ignore[misc]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gguf(path, metadata, tensors)
    return path


def is_matrix(name: str, shape: tuple[int, ...], format: str) -> bool:
    """Whether a tensor is stored in the chosen format: positions, segments, norms and biases never are."""
    small = name.startswith(("position_embd", "token_types")) or len(shape) < 2
    return not small and shape[-1] % FORMATS[format].block_elements == 0
