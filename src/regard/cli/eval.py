"""`regard eval`: how good a model is on given text."""

from typing import Annotated

import typer

from regard.cli.say import AsJSON, Device, Dtype, ModelName, load_model, print_json, progress


def command(
    model: ModelName,
    data: Annotated[list[str], typer.Option(help="Files or globs; may be given several times.")],
    task: Annotated[
        str | None, typer.Option(help="lm, mlm, classify, tag or translate; else as the model's head says.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="Of the data, if its name does not say.")] = None,
    document: Annotated[str | None, typer.Option(help="Plain text: a file, a paragraph or a line is one text.")] = None,
    most: Annotated[int | None, typer.Option(help="Look at no more than this many examples.")] = None,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Judge a model on held-out text. Loss, perplexity, accuracy, BLEU and chrF, by its task.

    regard eval toy-translate --data pairs.test.tsv
    regard eval smollm2 --data book.txt --most 20
    """
    loaded = load_model(model, device, dtype)
    with progress("Tokenising", "bytes") as tell:
        metrics = loaded.evaluate(data, task=task, most=most, format=format, document=document, progress=tell)
    if json:
        print_json(metrics)
        return
    for name, value in metrics.items():
        print(f"{name:<12} {value:.6g}")
