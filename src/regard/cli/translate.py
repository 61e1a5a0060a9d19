"""`regard translate`: what an encoder-decoder writes for each text."""

from typing import Annotated

import typer

from regard.cli.say import (
    AsJSON,
    Device,
    Dtype,
    MaxNewTokens,
    ModelName,
    Texts,
    load_model,
    print_json,
    progress,
    texts_or_stdin,
)


def command(
    model: ModelName,
    texts: Texts = None,
    num_beams: Annotated[int, typer.Option(help="1 is greedy.")] = 4,
    max_new_tokens: MaxNewTokens = None,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Translate texts with an encoder-decoder (BART, Marian, the 2017 Transformer).

    [dim]regard translate runs/fr "the European Economic Area"[/dim]
    [dim]cat lines.txt | regard translate runs/fr > lines.fr[/dim]
    """
    sources = texts_or_stdin(texts)
    loaded = load_model(model, device, dtype)
    with progress("Translating", "texts") as tell:
        written = loaded.translate(sources, num_beams, progress=tell, max_new_tokens=max_new_tokens)
    if json:
        print_json([{"source": s, "translation": t} for s, t in zip(sources, written, strict=True)])
    else:
        print("\n".join(written))
