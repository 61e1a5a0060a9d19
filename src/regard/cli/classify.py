"""`regard classify`: a label for each text."""

from regard.cli.say import AsJSON, Device, Dtype, ModelName, Texts, load_model, print_json, progress, texts_or_stdin


def command(
    model: ModelName, texts: Texts = None, json: AsJSON = False, device: Device = "auto", dtype: Dtype = None
) -> None:
    """Say which class each text belongs to.

    [dim]regard classify runs/sentiment "The movie had amazing visuals, but the story was quite boring."[/dim]
    """
    given = texts_or_stdin(texts)
    loaded = load_model(model, device, dtype)
    with progress("Classifying", "texts") as tell:
        results = loaded.classify(given, progress=tell)
    if json:
        print_json([{"text": t, "labels": r} for t, r in zip(given, results, strict=True)])
        return
    for text, labels in zip(given, results, strict=True):
        best, probability = next(iter(labels.items()))
        others = "".join(f"  {name} {p:.3f}" for name, p in list(labels.items())[1:4])
        print(f"{best} {probability:.3f}{others}\t{text}")
