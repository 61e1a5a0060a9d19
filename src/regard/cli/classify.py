"""`regard classify`: text classification."""

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

SHOWN = 10  # labels of one text


def command(
    model: ModelName,
    texts: Texts = None,
    truncate: Truncate = False,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Classify texts. For one text, print its labels and their probabilities, most likely first; for several, the most
    likely label of each, a line each.

    regard classify path/to/model "Amazing visuals, but a boring story."
    regard classify path/to/model < reviews.txt
    regard classify path/to/model "one text" "another" --json
    """
    given = texts_or_stdin(texts)
    loaded = load_model(model, device, dtype)
    with progress("Classifying", "texts") as update:
        results = loaded.classify(given, truncate=truncate, progress=update)
    if json:
        print_json([{"text": t, "labels": r} for t, r in zip(given, results, strict=True)])
    elif len(given) == 1:
        print_aligned([(label, f"{p:.4f}") for label, p in list(results[0].items())[:SHOWN]])
    else:
        best = [next(iter(labels.items())) for labels in results]
        print_aligned([(label, f"{p:.4f}", text) for (label, p), text in zip(best, given, strict=True)])
