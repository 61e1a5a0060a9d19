"""`regard verify`: compare all ways of running a model on this machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import AsJSON, Device, Dtype, ModelName, load_model, print_aligned, print_json, progress
from regard.errors import RegardError, installed

if TYPE_CHECKING:
    from regard.api import Model
    from regard.engine.quality.verify import Check

SENTENCES = ["The pizza came out of the oven and it tasted good.", "The cat sat."]


def command(
    model: ModelName,
    text: Annotated[
        list[str] | None, typer.Option(help="A text to compare on; may be given several times.", metavar="TEXT")
    ] = None,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Check that all ways of running a model give the same numbers. With and without a KV cache, in a batch and alone, in
    numpy, in the native engine and in PyTorch, and in transformers, if these are installed. Exits 1 if they differ.

    regard verify smollm2
    regard verify path/to/model --text "One." --text "And a longer one."
    """
    loaded = load_model(model, device, dtype)
    rows = ids_of(loaded, text or SENTENCES)
    with progress("Checking", "laws"):
        from regard.engine.quality.verify import verify

        module = loaded.net if installed("torch") else None
        net, arrays = loaded.network, loaded.arrays
        checks = list(verify(net, rows, loaded.path, loaded.config, arrays=arrays, module=module))
    if json:
        print_json([{**c.__dict__, "passed": c.passed} for c in checks])
    else:
        print_checks(checks)
    if not all(c.passed for c in checks):
        raise typer.Exit(1)


def ids_of(model: "Model", texts: list[str]) -> list[list[int]]:
    """Rows of ids of different lengths: the texts; for a model without a tokenizer, arbitrary ids."""
    context, n_vocab = model.spec.context, model.spec.n_vocab
    if texts is SENTENCES and model.opened.tokenizer is None:
        rows = [[(7 * i + 3) % n_vocab for i in range(min(n, context) - 1)] for n in (13, 4)]
        return [[*row, *(model.spec.eos_ids[:1] or [0])] for row in rows]
    rows = [model.tokenizer.encode(text) for text in texts]
    for text, row in zip(texts, rows, strict=True):
        if not 0 < len(row) <= context:
            raise RegardError(f"The text {text[:40]!r} has {len(row)} tokens; it must have from 1 to {context}.")
    return rows


def print_checks(checks: "list[Check]") -> None:
    table = [("law", "difference", "allowed", "")]
    for c in checks:
        measured = "-" if c.difference is None else f"{c.difference:.1e}"
        verdict = "not checked" if c.difference is None else "holds" if c.passed else "FAILS"
        table.append((c.law, measured, f"{c.tolerance:.1e}", verdict))
    print_aligned(table, right=(1, 2))
    for c in checks:
        if c.note:
            print(f"\n{c.law}: {c.note}.")
