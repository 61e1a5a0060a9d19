"""`regard embed`: embedding vectors of texts."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import (
    AsJSON,
    Device,
    Dtype,
    ModelName,
    Texts,
    Truncate,
    check_writable,
    load_model,
    print_aligned,
    print_json,
    print_stderr,
    progress,
    texts_or_stdin,
)


def command(
    model: ModelName,
    texts: Texts = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the vectors here, as a NumPy array (.npy).", metavar="FILE")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Print the cosine similarity of each pair of texts instead.")
    ] = False,
    truncate: Truncate = False,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Compute an embedding vector for each text. The cosine of two vectors is how similar their texts are.

    regard embed minilm "a cat on a mat" "a kitten on a rug" --compare
    regard embed minilm --out vectors.npy < sentences.txt
    regard embed minilm "a cat on a mat" --json
    """
    given = texts_or_stdin(texts)
    if out is not None:
        check_writable(out)
    loaded = load_model(model, device, dtype)
    with progress("Embedding", "texts") as update:
        vectors = loaded.embed(given, truncate=truncate, progress=update)
    if out is not None:
        import numpy as np

        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("wb") as file:
            np.save(file, vectors)
        print_stderr(f"{out} has {len(vectors)} vectors of {vectors.shape[1]} numbers.")
        return
    key, numbers = "embedding", vectors
    if compare:
        from regard.engine.encode import unit

        directions = unit(vectors)
        key, numbers = "similarity", directions @ directions.T
    rows = numbers.tolist()
    if json:
        print_json([{"text": t, key: row} for t, row in zip(given, rows, strict=True)])
    elif compare:
        print_aligned(
            [(*(f"{x:.3f}" for x in row), f" {t}") for row, t in zip(rows, given, strict=True)], range(len(rows))
        )
    else:
        heads = [(*(f"{x:.4f}" for x in row[:5]), f"… ({len(row)} numbers)") for row in rows]
        print_aligned([(*head, t) for head, t in zip(heads, given, strict=True)], range(len(heads[0]) - 1))
