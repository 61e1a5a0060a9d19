"""`regard verify`: is this model, on this machine, what it should be?"""

from typing import Annotated

import typer

from regard.cli.say import AsJSON, Device, Dtype, ModelName, load_model, print_json

SENTENCES = ["The pizza came out of the oven and it tasted good.", "The cat sat."]


def command(
    model: ModelName,
    text: Annotated[list[str] | None, typer.Option(help="Texts to compare on; may be given several times.")] = None,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Compare ways of computing the same thing: with and without cache, in a batch and alone, fused and readable,
    and against transformers if it is installed.

    [dim]regard verify smollm2[/dim]
    """
    from regard.engine.verify import verify

    loaded = load_model(model, device, dtype)
    rows = [loaded.tokenizer.encode(t) for t in (text or SENTENCES)]
    checks = list(verify(loaded.net, rows, loaded.path, loaded.config))
    if json:
        print_json([{**c.__dict__, "passed": c.passed} for c in checks])
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("law", "largest difference", "allowed", "", box=None, padding=(0, 2, 0, 0))
        for c in checks:
            measured = c.note if c.difference is None else f"{c.difference:.2e}"
            verdict = (
                "[dim]not checked[/dim]"
                if c.difference is None
                else "pass"
                if c.passed
                else "[bold red]FAIL[/bold red]"
            )
            table.add_row(c.law, measured, f"{c.tolerance:.0e}", verdict)
        Console(highlight=False).print(table)
    if not all(c.passed for c in checks):
        raise typer.Exit(1)
