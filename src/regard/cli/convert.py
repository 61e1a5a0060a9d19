"""`regard convert`: save a model in another file format, quantized or not."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import Dtype, ModelName, check_writable, load_model, progress
from regard.errors import RegardError


class Format(StrEnum):
    hf = "hf"
    gguf = "gguf"
    blocks = "blocks"


class Quantize(StrEnum):
    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    q8 = "q8"
    q8_0 = "q8_0"
    q4 = "q4"
    q4_0 = "q4_0"
    q4_1 = "q4_1"


def command(
    model: ModelName,
    out: Annotated[Path, typer.Argument(help="A directory, or a file ending in .gguf.", metavar="OUT")],
    format: Annotated[
        Format | None, typer.Option(help="By default as OUT and --quantize suggest.", metavar="hf|gguf|blocks")
    ] = None,
    quantize: Annotated[
        Quantize | None,
        typer.Option(help="f32 (the default), f16, bf16, q8 (q8_0), q4 (q4_0) or q4_1.", metavar="KIND"),
    ] = None,
    measure: Annotated[
        Path | None, typer.Option(help="A text to measure the cost of quantization on.", metavar="FILE")
    ] = None,
    dtype: Dtype = None,
) -> None:
    """Convert a model to Hugging Face's layout or GGUF. `transformers` opens the one and llama.cpp the
    other. A directory with --quantize is in this package's own format (blocks), which has all families and is opened
    by regard only. The cost of quantization is measured, printed and stored in the file. A directory with other files
    than a model's is not overwritten.

    regard convert smollm2 smollm2-hf
    regard convert path/to/gpt2 gpt2.gguf --quantize q8
    regard convert path/to/bart bart-q4 --quantize q4 --measure letters.txt
    """
    chosen = format or default_format(out, quantize)
    check_request(out, chosen, quantize, dtype, measured=measure is not None)
    text = None if measure is None else read_text(measure)
    check_writable(out, directory=True)
    loaded = load_model(model)
    cost = None
    if quantize not in (None, Quantize.f32) and loaded.opened.tokenizer is not None:
        with progress("Measuring", "tokens"):
            cost = loaded.rounding_cost(str(quantize), text, measure.name if measure else "")
    with progress(f"Writing {out}", "bytes"):
        path = loaded.save(out, str(chosen), quantize=quantize and str(quantize), dtype=dtype, cost=cost)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    print(f"{path}: {size / 1e6:,.1f} MB in {len(files)} file{'' if len(files) == 1 else 's'}.")
    if cost is not None:
        print(f"{cost}.")


def default_format(out: Path, quantize: Quantize | None) -> Format:
    if out.suffix == ".gguf":
        return Format.gguf
    return Format.hf if quantize is None else Format.blocks


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RegardError(f"{path} is not UTF-8 text, so nothing can be measured on it; give another file.") from None


def check_request(out: Path, format: Format, quantize: Quantize | None, dtype: str | None, *, measured: bool) -> None:
    """Before the model is loaded, refuse options that contradict each other, and to overwrite what is not a model."""
    from regard.api.device import choose_dtype

    if choose_dtype(dtype) != "float32" and format is not Format.hf:
        raise RegardError("--dtype is for Hugging Face's layout; for other formats give --quantize instead.")
    if format is Format.hf and quantize is not None:
        raise RegardError("Hugging Face's layout cannot be quantized here: leave --format or --quantize out.")
    if measured and quantize in (None, Quantize.f32):
        raise RegardError("--measure needs --quantize: without it nothing is quantized, so there is no cost.")
    if format is not Format.gguf and out.suffix == ".gguf":
        raise RegardError(f"{out} is the name of a GGUF file: leave --format out, or give a directory.")
    if out.suffix == ".gguf" and out.exists() and not is_gguf(out):
        raise RegardError(f"{out} exists and is not a GGUF file, so it is not overwritten; choose another name.")
    if out.suffix != ".gguf" and out.exists():
        if not out.is_dir():
            raise RegardError(f"{out} exists and is not a directory; choose another name.")
        if any(out.iterdir()) and not (out / "config.json").is_file() and not any(map(is_gguf, out.glob("*.gguf"))):
            raise RegardError(f"{out} contains other files than a model's; choose a new or an empty directory.")


def is_gguf(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"
