"""A `Model` → files, exactly or with its matrices rounded; and what the rounding would cost, measured."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.engine.cost import Cost, measure, rows_of
from regard.engine.passage import PASSAGE
from regard.errors import ConfigError
from regard.store.rounding import rounded_twin
from regard.store.save import number_format, save_blocks, save_directory, save_gguf

if TYPE_CHECKING:
    from regard.api.model import Model


def save(model: "Model", path: Path, format: str, quantize: str | None, cost: Cost | None) -> Path:
    chosen, opened = number_format(quantize), model.opened
    net, spec, config, tokenizer = model.net, model.spec, model.config, opened.tokenizer
    remarks = cost.metadata() if cost is not None else {}
    if format == "gguf":
        return save_gguf(path, net, spec, opened.family, config, tokenizer, model.pooling, chosen, remarks)
    if format == "blocks":
        save_blocks(path, net, spec, config, tokenizer, opened.generation, model.pooling, chosen, remarks)
        return path
    if format != "hf":
        raise ConfigError(f"format is {format!r}; it can be hf, gguf or blocks.")
    if quantize is not None:
        raise ConfigError("Hugging Face's layout holds no blocks: quantize goes with format='gguf' or 'blocks'.")
    save_directory(path, net, spec, opened.family, config, tokenizer, opened.generation, model.pooling)
    return path


def rounding_cost(model: "Model", quantize: str, text: str | None, name: str) -> Cost:
    format = number_format(quantize)
    return measure(
        model.net,
        rounded_twin(model.net, model.spec, format),
        rows_of(PASSAGE if text is None else text, model.tokenizer, model.spec),
        format=format,
        text="the package's own passage" if text is None else name,
        mask=model.tokenizer.mask_id,
        pooling=model.pooling,
    )
