"""Save a `Model`, exactly or with its matrices quantized, and measure what quantizing would cost."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.api.device import choose_dtype
from regard.engine.quality.calibration_text import PASSAGE
from regard.engine.quality.quantization_cost import QuantizationCost, measure, rows_of
from regard.errors import ConfigError
from regard.model.reference import reference
from regard.store.quantize import quantized
from regard.store.save_model import ModelFiles, number_format, save_blocks, save_directory, save_gguf

if TYPE_CHECKING:
    from regard.api.model import Model


def save(
    model: "Model", path: Path, format: str, quantize: str | None, dtype: str | None, cost: QuantizationCost | None
) -> Path:
    chosen, opened = number_format(quantize), model.opened
    remarks = cost.metadata() if cost is not None else {}
    if format not in ("hf", "gguf", "blocks"):
        raise ConfigError(f"format is {format!r}; it can be hf, gguf or blocks.")
    kind = None if dtype is None else choose_dtype(dtype)
    if format != "hf" and kind not in (None, "float32"):
        raise ConfigError(f"dtype goes with format='hf'; the number format of a {format} file is set by quantize.")
    if format == "hf" and quantize is not None:
        raise ConfigError("Hugging Face's layout holds no blocks: quantize goes with format='gguf' or 'blocks'.")
    files = ModelFiles(
        model.weights,
        model.spec,
        opened.family,
        model.config,
        opened.tokenizer,
        opened.generation,
        model.pooling,
    )
    if format == "gguf":
        return save_gguf(path, files, chosen, remarks)
    if format == "blocks":
        save_blocks(path, files, chosen, remarks)
        return path
    save_directory(path, files, kind)
    return path


def rounding_cost(model: "Model", quantize: str, text: str | None, name: str) -> QuantizationCost:
    format = number_format(quantize)
    arrays = model.arrays
    return measure(
        reference(model.spec, arrays),
        reference(model.spec, quantized(arrays, format)[0]),
        rows_of(PASSAGE if text is None else text, model.tokenizer, model.spec),
        format=format,
        text="the package's own passage" if text is None else name,
        mask=model.tokenizer.mask_id,
        pooling=model.pooling,
    )
