"""`regard convert`: one file layout into another."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import Dtype, ModelName, load_model, remark


def command(
    model: ModelName,
    out: Annotated[Path, typer.Argument(help="A directory, or a file ending in .gguf.")],
    format: Annotated[str | None, typer.Option(help="hf or gguf; else as the name of OUT says.")] = None,
    quantize: Annotated[str | None, typer.Option(help="For gguf: f16, bf16, q8_0, q4_0 or q4_1.")] = None,
    dtype: Dtype = None,
) -> None:
    """Save a model so that others open it: Hugging Face's layout, or GGUF for llama.cpp.

    [dim]regard convert smollm2 smollm2-hf[/dim]
    [dim]regard convert my-gpt2 my-gpt2.gguf --quantize q8_0[/dim]
    """
    chosen = format or ("gguf" if out.suffix == ".gguf" else "hf")
    path = load_model(model, dtype=dtype).save(out, chosen, quantize=quantize)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    size = sum(f.stat().st_size for f in files if f.is_file())
    remark(f"{path}: {size / 1e6:,.1f} MB in {len(files)} file{'s' if len(files) > 1 else ''}.")
