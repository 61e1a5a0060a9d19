"""`regard fill`: what could stand where the mask is."""

from typing import Annotated, Any

import typer

from regard.cli.say import AsJSON, Device, Dtype, ModelName, load_model, print_json


def command(
    model: ModelName,
    text: Annotated[str, typer.Argument(help="A text with the model's mask token in it, such as [MASK].")],
    top_k: Annotated[int, typer.Option(help="How many suggestions.")] = 5,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Fill the masked word of a text (BERT, RoBERTa).

    [dim]regard fill bert-base-uncased "The pizza came out of the [MASK]."[/dim]
    """
    results: Any = load_model(model, device, dtype).fill(text, top_k)
    if json:
        print_json(results)
        return
    several = bool(results) and isinstance(results[0], list)
    for i, each in enumerate(results if several else [results]):
        if several:
            print(f"mask {i + 1}")
        for guess in each:
            print(f"{guess['probability']:.4f}  {guess['token']:<16} {guess['text']}")
