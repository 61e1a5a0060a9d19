"""`regard explain`: a trace of a forward pass in the terminal, stage by stage, and the derivation of any number."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.console import (
    AsJSON,
    Device,
    Dtype,
    ModelName,
    check_writable,
    load_model,
    print_json,
    progress,
    raw_stdout,
    readable_path,
)
from regard.errors import RegardError, clean

if TYPE_CHECKING:
    from rich.console import Console

    from regard.cli.stages import Panel, View
    from regard.explain.trace import Trace
    from regard.explain.why import Why

Stage = Literal["tokens", "attention", "mlp", "residual", "output"]


def command(
    model: ModelName,
    text: Annotated[str, typer.Argument(help="The model's input.", metavar="TEXT")],
    index: Annotated[
        list[int] | None, typer.Argument(help="With --why NODE: the index of a number.", metavar="INDEX")
    ] = None,
    why: Annotated[
        str | None, typer.Option(help="Derive one number of a node: NODE and an index.", metavar="NODE")
    ] = None,
    stage: Annotated[Stage | None, typer.Option(help="Print one stage in full; else a part of each.")] = None,
    layer: Annotated[int, typer.Option(help="Which block, from 0.", metavar="N")] = 0,
    head: Annotated[int, typer.Option(help="Which attention head, from 0.", metavar="N")] = 0,
    site: Annotated[
        str | None, typer.Option(help="Only this attention, such as decoder.0.cross.", metavar="NAME")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="An encoder-decoder's target; else what it generates.", metavar="TEXT")
    ] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            help="Rerun with an edit, TARGET=WHAT, such as token.2=zero; may be given several times.", metavar="EDIT"
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the trace as one HTML file that works offline.", metavar="FILE")
    ] = None,
    json: AsJSON = False,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Trace a forward pass and explain its numbers. Prints every stage as a small matrix; --why derives any number from
    its operands.

    regard explain toy-gpt "The old king sees"
    regard explain toy-gpt "The old king" --stage attention --layer 2 --head 1
    regard explain toy-gpt "The old king" --why decoder.0.attention.weights 0 2 1
    regard explain toy-gpt "The old king" --edit decoder.2.attention.head.1=zero
    regard explain toy-translate "the European Economic Area" --html run.html
    """
    changes = read_edits(edit or [])
    node_and_index = read_why(why, index or [])
    if html is not None:
        check_writable(html)
    loaded = load_model(model, device, dtype)
    plain = loaded.trace(text, target)
    trace = plain.edit(changes) if changes else plain
    from regard.cli.stages import View

    if html is not None:
        with progress(f"Writing {html.name}", "heads") as update:
            trace.html(html, progress=update)
    if node_and_index is not None:
        reason = trace.why(*node_and_index)
        if json:
            print_json(reason.to_json())
        else:
            print(reason)
            print_follow_ups(reason)
    elif json:
        view = View(trace, layer, head, site).check()
        print_json({"model": loaded.name, **in_json(view, stage)})
    else:
        show(View(trace, layer, head, site).check(), stage, model, text)
        if changes:
            print(f"\nWith and without: {edits_as_text(changes)}\n{plain.compare(trace)}")
    if html is not None and not json:
        print(f"\n{readable_path(html.absolute())} opens in a browser, without a network.")


# ── arguments ───────────────────────────────────────────────────────────────────────────────────────────────────────


def read_edits(given: list[str]) -> dict[str, str]:
    edits = {}
    for each in given:
        node, equals, what = each.partition("=")
        if not equals or not node.strip() or not what.strip():
            raise RegardError(f"--edit {each}: write TARGET=WHAT, such as decoder.0.attention.head.1=zero.")
        edits[node.strip()] = what.strip()
    return edits


def read_why(node: str | None, index: list[int]) -> tuple[str, list[int]] | None:
    """A node and an index: NODE 3 1 2, or NODE[3, 1, -1] in one word, where numbers may also count from the end."""
    if node is None:
        if index:
            raise RegardError(f"The index {' '.join(map(str, index))} has no node; give it with --why NODE.")
        return None
    found = re.fullmatch(r"([^\[\]]+)\[([-\d,\s]*)\]", node.strip())
    if found is None:
        return node.strip(), index
    try:
        return found[1], [int(i) for i in found[2].split(",") if i.strip()] + index
    except ValueError:
        raise RegardError(f"--why {node}: an index is whole numbers with commas between them.") from None


# ── output ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def show(view: "View", stage: Stage | None, model: str, text: str) -> None:
    from rich.console import Console

    from regard.cli.stages import PANELS, STAGES

    console = Console(file=raw_stdout(), highlight=False, markup=False, emoji=False)
    trace = view.trace
    console.print(f"{len(trace.tokens)} tokens: {pieces(trace.tokens)}", soft_wrap=True)
    if trace.target_tokens is not None:
        console.print(f"{len(trace.target_tokens)} generated: {pieces(trace.target_tokens)}", soft_wrap=True)
    if trace.edits:
        console.print(f"edited: {clean(edits_as_text(trace.edits))}", soft_wrap=True)
    for name in STAGES if stage is None else (stage,):
        console.rule(f" {name} ", align="left", style="dim")
        if name == "output":
            show_output(console, trace)
        for panel in PANELS[name](view):
            if stage is not None or panel.main:
                show_panel(console, panel)
    console.rule(style="dim")
    suggest_next(console, view, model, text)


def show_panel(console: "Console", panel: "Panel") -> None:
    from rich.text import Text

    from regard.cli.matrix import print_matrix

    where = f"{panel.node}[{panel.at}]" if panel.at[:1].isdigit() else panel.node if panel.at else ""
    title = Text(f"{where}  {panel.title}".strip())
    title.stylize("bold", 0, len(where))
    console.print(title)
    print_matrix(console, panel.values, panel.rows, panel.columns, panel.shares)
    console.print()


def show_output(console: "Console", trace: "Trace") -> None:
    from regard.cli.matrix import fit, visible
    from regard.cli.stages import predictions

    record = predictions(trace)
    if not record:
        console.print("This model has no head: its output is a state per token.")
    for token, guesses in record:
        named = [(visible(guess.piece), guess.probability) for guess in guesses]
        if len(record) > 1:
            console.print(
                f"  {fit(token, 14)} " + "  ".join(f"{p:.4f} {fit(name, 10)}" for name, p in named[:3]), soft_wrap=True
            )
            continue
        console.print(f"{visible(token)}", soft_wrap=True)
        for name, p in named:
            console.print(f"  {p:.4f} {'█' * round(p * 24):<24} {name}", soft_wrap=True)
    console.print()


def suggest_next(console: "Console", view: "View", model: str, text: str) -> None:
    """Print a command to try next: why the largest weight of the last row is what it is."""
    import shlex

    sites = view.sites()
    if not sites:
        return
    weights = sites[-1].weights  # of cross attention, where there is any
    A = view.trace[weights]
    row = A.shape[1] - 1
    node = f"{weights} {view.head} {row} {int(A[view.head, row].argmax())}"
    quoted_text = shlex.quote(text) if text.isprintable() and len(text) <= 60 else "TEXT"
    name = clean(shlex.quote(model))
    console.print(f"Why that number? regard explain {name} {quoted_text} --why {node}", soft_wrap=True)


def print_follow_ups(reason: "Why") -> None:
    """Print the operands, each of which can be explained in turn."""
    seen: dict[str, str] = {}
    for term in reason.terms[:4]:
        for factor in term.factors:
            if factor.node:
                seen.setdefault(f"--why {factor.node} {' '.join(map(str, factor.index))}", f"{factor.value:.6g}")
    if seen:
        print("\nContinue with:")
        width = max(map(len, seen))
        for option, value in list(seen.items())[:6]:
            print(f"  {option:<{width}}  = {value}")


def pieces(tokens: list[str]) -> str:
    from regard.cli.matrix import visible

    return " ".join(visible(token) for token in tokens)


def edits_as_text(edits: dict[str, str]) -> str:
    from regard.explain.edit import describe

    return ", ".join(describe(edits))


def in_json(view: "View", stage: Stage | None) -> dict[str, object]:
    """The tokens, all nodes, the predictions, and the numbers of the stage if one was chosen."""
    from dataclasses import asdict

    from regard.cli.stages import PANELS, predictions

    trace = view.trace
    nodes = [
        {"name": n.name, "op": n.op, "shape": list(trace.shape(n.name)), "axes": list(n.axes), "inputs": list(n.inputs)}
        for n in trace.graph
        if n.name in trace
    ]
    record: dict[str, object] = {
        "tokens": trace.tokens,
        "ids": trace.ids,
        "target_tokens": trace.target_tokens,
        "target_ids": trace.target_ids,
        "edits": trace.edits,
        "sites": [asdict(site) for site in trace.graph.sites],
        "output": [
            {"token": token, "likeliest": [asdict(g) for g in guesses]} for token, guesses in predictions(trace)
        ],
        "nodes": nodes,
    }
    if stage is not None:
        record["stage"] = {"name": stage, "panels": [panel.to_json() for panel in PANELS[stage](view)]}
    return record
