"""`regard classify`: a label for each text."""

from regard.cli.say import (
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
    """Say which class each text belongs to. One text: its labels, the likeliest first. Several: the likeliest label of
    each, a line each.

    regard classify path/to/model "Amazing visuals, but a boring story."
    regard classify path/to/model < reviews.txt
    regard classify path/to/model "one text" "another" --json
    """
    given = texts_or_stdin(texts)
    loaded = load_model(model, device, dtype)
    with progress("Classifying", "texts") as tell:
        results = loaded.classify(given, truncate=truncate, progress=tell)
    if json:
        print_json([{"text": t, "labels": r} for t, r in zip(given, results, strict=True)])
    elif len(given) == 1:
        print_aligned([(label, f"{p:.4f}") for label, p in list(results[0].items())[:SHOWN]])
    else:
        best = [next(iter(labels.items())) for labels in results]
        print_aligned([(label, f"{p:.4f}", text) for (label, p), text in zip(best, given, strict=True)])
