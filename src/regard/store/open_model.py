"""A model directory or a GGUF file → everything but the weights: spec, tokenizer, generation settings, pooling.

Nothing in a model's files can run code: configurations and headers are data, pickles are never loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import CheckpointError, ConfigError, NotFound, quoted
from regard.model.config import Config
from regard.model.registry import Family, config_of_gguf, family_of, spec_of
from regard.model.shapes import shapes
from regard.model.spec import Spec
from regard.model.weight_map import Plan, Table, plan_loading
from regard.safe_open import SMALL, read_file, read_json
from regard.store.blocks import has_blocks, open_weights, own_table
from regard.store.gguf import GGUF, Long, read_gguf
from regard.store.hub import resolve
from regard.store.named_tensors import NamedTensors
from regard.store.system_memory import available_memory

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Pooling:
    """How a sentence encoder pools token vectors into one: as its files say, else the mean, normalised to length 1."""

    mode: str = "mean"  # mean, cls or max
    normalise: bool = True
    max_tokens: int | None = None
    stated: bool = False


BF16_ERROR = 2**-8  # rounding error of a number up to 1 in bfloat16
POOLING_TYPES = {"mean": 1, "cls": 2}  # their numbers in GGUF


@dataclass
class Opened:
    """A model's files, opened: weights are not loaded yet, the tokenizer is loaded on first use."""

    path: Path
    config: dict[str, Any]
    family: Family
    spec: Spec
    file: NamedTensors
    table: Table
    read_tokenizer: "Callable[[], Tokenizer | None]"
    generation: dict[str, Any] = field(default_factory=dict)
    pooling: Pooling = field(default_factory=Pooling)

    @cached_property
    def tokenizer(self) -> "Tokenizer | None":
        return self.read_tokenizer()


def open_model(where: str | Path) -> Opened:
    """Open a model, tokenizer included, so that a damaged tokenizer is refused here."""
    opened = open_files(where)
    _ = opened.tokenizer
    return opened


def open_files(where: str | Path) -> Opened:
    """Open a model by path or name; its tokenizer is loaded on first use."""
    path = locate(resolve(where))
    if path.is_file() and path.suffix == ".gguf":
        return open_gguf(path)
    if not path.is_dir():
        raise CheckpointError(f"{path} is neither a model directory nor a .gguf file.")
    return open_directory(path)


def locate(path: Path) -> Path:
    """The model to open at a path: of a directory with one GGUF file and no config.json, that file; of a training run, its
    best checkpoint, or the latest while none has been evaluated."""
    if not path.is_dir() or (path / "config.json").exists():
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) > 1:
        raise CheckpointError(f"{path} holds {len(files)} GGUF files; name one of them, such as {files[0].name}.")
    if files:
        return files[0]
    return next((link.resolve() for link in (path / "best", path / "latest") if link.is_dir()), path)


def read_spec(where: str | Path) -> tuple[Spec, Mapping[str, Any]]:
    """The spec of a model (its config.json is enough), and the metadata of its GGUF file if it has one."""
    path = locate(resolve(where, wanted=["config.json"]))
    if path.is_file() and path.suffix == ".gguf":
        file, _, _, spec = read_gguf_model(path)
        return spec, file.metadata
    config_file = path if path.is_file() else path / "config.json"
    if not config_file.exists():
        raise NotFound(f"{path} is not a model's directory: it has neither a config.json nor one .gguf file.")
    config = read_json(config_file, "the model's configuration", ConfigError)
    stored = path.is_dir() and (has_blocks(path) or any(path.glob("*.safetensors")))
    weights = open_weights(path) if stored else None
    spec = spec_of(config, str(config_file), weights.names if weights else ())
    return spec, weights.metadata if isinstance(weights, GGUF) else {}


def open_directory(path: Path) -> Opened:
    where = str(path / "config.json")
    config = read_json(path / "config.json", "the model's configuration", ConfigError)
    file = open_weights(path)
    spec = spec_of(config, where, file.names)
    family = family_of(config["model_type"], where)
    table = own_table(shapes(spec)) if isinstance(file, GGUF) else family.table(config, spec)

    def read_tokenizer() -> "Tokenizer | None":
        if not any((path / name).exists() for name in ("tokenizer.json", "vocab.json", "vocab.txt", "encoder.json")):
            return None
        from regard.text.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(path, config)
        tokenizer.check_vocab(min(spec.n_vocab, spec.source_vocab))
        return tokenizer

    generation = path / "generation_config.json"
    return Opened(
        path,
        config,
        family,
        spec,
        file,
        table,
        read_tokenizer,
        read_json(generation, "the generation settings") if generation.exists() else legacy_generation(config),
        read_pooling(path),
    )


def read_gguf_model(path: Path) -> tuple[GGUF, Family, dict[str, Any], Spec]:
    file = read_gguf(path)
    family, config = config_of_gguf(file, str(path))
    return file, family, config, spec_of(config, str(path), file.names)


def open_gguf(path: Path) -> Opened:
    file, family, config, spec = read_gguf_model(path)
    assert family.gguf is not None
    table = family.gguf.table(config, spec)
    pooling = gguf_pooling(file.metadata, str(path))

    def read_tokenizer() -> "Tokenizer":
        from regard.text.gguf_vocab import tokenizer_from_gguf

        tokenizer = tokenizer_from_gguf(file.metadata, str(path))
        tokenizer.check_vocab(spec.n_vocab)
        for key in [key for key, value in file.metadata.items() if isinstance(value, Long)]:
            del file.metadata[key]  # vocabulary and merges, which the tokenizer has now
        return tokenizer

    return Opened(path, config, family, spec, file, table, read_tokenizer, legacy_generation(config), pooling)


GENERATION_KEYS = (
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id"),
    *("forced_eos_token_id", "num_beams", "length_penalty", "early_stopping", "no_repeat_ngram_size"),
    *("max_length", "min_length", "bad_words_ids"),
)


def legacy_generation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Generation settings in config.json, where they were before generation_config.json existed."""
    return {key: config[key] for key in GENERATION_KEYS if config.get(key) is not None}


def gguf_pooling(metadata: Mapping[str, Any], where: str) -> Pooling:
    key = f"{metadata['general.architecture']}.pooling_type"
    if metadata.get(key, 0) == 0:
        return Pooling()
    for mode, number in POOLING_TYPES.items():
        if metadata[key] == number:
            return Pooling(mode, stated=True)
    raise ConfigError(f"{where}: {key} is {metadata[key]!r}, but there are {POOLING_TYPES}.")


def read_pooling(path: Path) -> Pooling:
    stated = path / "1_Pooling" / "config.json"
    if not stated.exists():
        return Pooling()
    settings = read_json(stated, "the pooling settings", ConfigError)
    modes = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    chosen = [mode for mode, key in modes.items() if settings.get(key)]
    if len(chosen) != 1:
        raise ConfigError(f"{stated} asks for a pooling that is not implemented; there are mean, cls and max.")
    modules = path / "modules.json"
    normalise = modules.exists() and b"Normalize" in read_file(modules, SMALL, ConfigError)
    limit = path / "sentence_bert_config.json"
    length = Config(read_json(limit, "the sentence encoder's settings") if limit.exists() else {}, str(limit))
    longest = None if length.get("max_seq_length") is None else length.size("max_seq_length")
    return Pooling(chosen[0], normalise, longest, stated=True)


def plan_weights(opened: Opened) -> Plan:
    """Which tensor of the file fills which parameter; a mismatch is refused before any weight is loaded."""
    n_layers = sum(stack.n_layers for stack in opened.spec.stacks.values())
    if n_layers > len(opened.file.names):
        raise CheckpointError(f"{opened.path}: {len(opened.file.names)} tensors cannot fill {n_layers} layers.")
    names, shape = opened.file.names, opened.file.shape
    plan = plan_loading(opened.table, str(opened.path), names, shape, shapes(opened.spec), opened.spec.tied)
    for read, other in plan.twins:
        if not same_numbers(opened.file, read, other):
            raise CheckpointError(
                f"{opened.path}: {quoted(other)} differs from {quoted(read)}, but by the configuration they are one "
                "tensor; set tie_word_embeddings to false if they are two, or remove one of them from the file."
            )
    for name, numbers in opened.table.constants.items():
        for present in {name, name.removeprefix(opened.table.prefix)} & set(names):
            found, expected = opened.file.array(present), numbers()
            if found.shape != expected.shape or not np.allclose(found, expected, rtol=0, atol=BF16_ERROR):
                raise CheckpointError(
                    f"{opened.path}: {quoted(present)} is not the table that this architecture computes."
                )
    return plan


def same_numbers(file: NamedTensors, one: str, other: str) -> bool:
    if file.format(one) == file.format(other) and np.array_equal(file.raw(one), file.raw(other)):
        return True  # compares the mapped bytes, without a copy
    return np.array_equal(file.array(one), file.array(other), equal_nan=True)


def refuse_if_too_large(path: Path, needed: int, device: str) -> None:
    if device != "cpu":
        return
    free = available_memory()
    if free is not None and needed > free:
        raise ConfigError(
            f"{path}: the model needs {needed / 1e9:,.1f} GB of memory, but {free / 1e9:,.1f} GB are free; "
            "use a smaller model or dtype='bfloat16'."
        )
