"""`regard translate`: translation with an encoder-decoder."""

from typing import Annotated

import typer

from regard.cli.console import (
    AsJSON,
    Device,
    Dtype,
    MaxNewTokens,
    ModelName,
    Texts,
    generation_settings,
    load_model,
    print_json,
    progress,
    texts_or_stdin,
)


def command(
    model: ModelName,
    texts: Texts = None,
    num_beams: Annotated[int, typer.Option(help="Beams of the beam search; 1 is greedy.", metavar="N")] = 4,
    max_new_tokens: MaxNewTokens = None,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Translate texts with an encoder-decoder. BART, mBART, Marian, M2M100 and the 2017 Transformer are such models.
    Blank lines stay blank.

    regard translate Helsinki-NLP/opus-mt-en-de "The pizza tasted good."
    regard translate path/to/model < lines.en > lines.de
    """
    settings = generation_settings(num_beams=num_beams, max_new_tokens=max_new_tokens)
    sources = texts_or_stdin(texts)
    written = [i for i, source in enumerate(sources) if source.strip()]
    loaded = load_model(model, device, dtype)
    with progress("Translating", "texts") as update:
        results = loaded.translate([sources[i] for i in written], progress=update, **settings)
    translations = [""] * len(sources)
    for i, translation in zip(written, results, strict=True):
        translations[i] = translation
    if json:
        print_json([{"source": s, "translation": t} for s, t in zip(sources, translations, strict=True)])
    else:
        print("\n".join(t.replace("\n", " ") for t in translations))
