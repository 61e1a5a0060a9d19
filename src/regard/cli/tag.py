"""`regard tag`: token classification, a tag for each word."""

from dataclasses import asdict

from regard.cli.console import (
    AsJSON,
    Device,
    Dtype,
    ModelName,
    Texts,
    Truncate,
    load_model,
    print_aligned,
    print_json,
    progress,
    texts_or_stdin,
)


def command(
    model: ModelName,
    texts: Texts = None,
    truncate: Truncate = False,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Tag every word of each text (token classification). Parts of speech, named entities, whatever the model was trained
    for. For one text, print a word per line; for several, a text per line, as word/TAG.

    regard tag path/to/model "How many adjectives are in this nice sentence?"
    regard tag path/to/model --json < sentences.txt
    """
    given = texts_or_stdin(texts)
    loaded = load_model(model, device, dtype)
    with progress("Tagging", "texts") as update:
        results = loaded.tag(given, truncate=truncate, progress=update)
    if json:
        print_json([{"text": t, "words": [asdict(w) for w in r]} for t, r in zip(given, results, strict=True)])
    elif len(given) == 1:
        print_aligned([(w.word, w.tag, f"{w.probability:.4f}") for w in results[0]])
    else:
        for words in results:
            print(" ".join(f"{w.word}/{w.tag}" for w in words))
