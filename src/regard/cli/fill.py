"""`regard fill`: predict masked tokens."""

from typing import Annotated, Any

import typer

from regard.cli.console import AsJSON, Device, Dtype, ModelName, load_model, print_aligned, print_json, text_or_stdin


def command(
    model: ModelName,
    text: Annotated[
        str | None,
        typer.Argument(help="A text with the model's mask token in it, such as [MASK] or <mask>.", metavar="TEXT"),
    ] = None,
    top_k: Annotated[int, typer.Option(help="How many tokens to print per mask.", metavar="K", min=1)] = 5,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Predict the masked words of a text (BERT, RoBERTa). Prints the most likely tokens of each mask, with probabilities.

    regard fill bert-base-uncased "The pizza came out of the [MASK]."
    regard fill roberta-base "The <mask> sat on the <mask>." --top-k 3 --json
    """
    masked = text_or_stdin(text)
    results: Any = load_model(model, device, dtype).fill(masked, top_k)
    per_mask = results if isinstance(results[0], list) else [results]
    if json:
        print_json(per_mask)
        return
    for i, guesses in enumerate(per_mask, 1):
        if len(per_mask) > 1:
            print(f"{'' if i == 1 else chr(10)}mask {i}")
        print_aligned([(f"{g['probability']:.4f}", g["token"], g["text"]) for g in guesses])
