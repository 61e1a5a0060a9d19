"""`regard eval`: evaluate a model on files of text."""

from typing import Annotated

import typer

from regard.cli.console import AsJSON, Device, Dtype, ModelName, load_model, print_json, progress
from regard.errors import require


def command(
    model: ModelName,
    data: Annotated[list[str], typer.Option(help="Files or globs; may be given several times.")],
    task: Annotated[
        str | None, typer.Option(help="lm, mlm, classify, tag, translate or chat; else by the model's head.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="The data's format; else by the file's extension.")] = None,
    document: Annotated[str | None, typer.Option(help="Plain text: one text per file, paragraph or line.")] = None,
    most: Annotated[int | None, typer.Option(help="The maximum number of examples.")] = None,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Evaluate a model on held-out text. Prints loss, perplexity, accuracy, F1, BLEU or chrF, by its task.

    regard eval toy-translate --data pairs.test.tsv
    regard eval smollm2 --data book.txt --most 20
    """
    require("torch", "Evaluating")
    loaded = load_model(model, device, dtype)
    with progress("Tokenising", "bytes") as update:
        metrics = loaded.evaluate(data, task=task, most=most, format=format, document=document, progress=update)
    if json:
        print_json(metrics)
        return
    for name, value in metrics.items():
        print(f"{name:<12} {value:.6g}")
