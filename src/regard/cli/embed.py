"""`regard embed`: a vector for each text."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.say import (
    AsJSON,
    Device,
    Dtype,
    ModelName,
    Texts,
    load_model,
    print_json,
    progress,
    remark,
    texts_or_stdin,
)


def command(
    model: ModelName,
    texts: Texts = None,
    out: Annotated[Path | None, typer.Option(help="Write the vectors here, as a NumPy array (.npy).")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Print how similar each pair of texts is.")] = False,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Turn texts into vectors whose angle says how alike they are.

    [dim]regard embed minilm "a cat on a mat" "a kitten on a rug" "stock prices fell" --compare[/dim]
    [dim]cat sentences.txt | regard embed minilm --out vectors.npy[/dim]
    """
    given = texts_or_stdin(texts)
    loaded = load_model(model, device, dtype)
    with progress("Embedding", "texts") as tell:
        vectors = loaded.embed(given, progress=tell).float()
    if out is not None:
        import numpy as np

        np.save(out, vectors.numpy())
        remark(f"{len(given)} vectors of {vectors.shape[1]} numbers are in {out}.")
    elif compare:
        import torch

        unit = torch.nn.functional.normalize(vectors, dim=-1)
        for row, text in zip((unit @ unit.T).tolist(), given, strict=True):
            print("  ".join(f"{x:6.3f}" for x in row) + f"   {text}")
    elif json:
        print_json([{"text": t, "embedding": v} for t, v in zip(given, vectors.tolist(), strict=True)])
    else:
        for vector, text in zip(vectors.tolist(), given, strict=True):
            print(" ".join(f"{x:.6f}" for x in vector[:6]) + f" … ({len(vector)} numbers)\t{text}")
