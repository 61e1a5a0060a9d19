"""`regard inspect`: a model's architecture, shapes and parameter counts, from its configuration alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import AsJSON, bold, print_aligned, print_json, print_styled
from regard.errors import clean

if TYPE_CHECKING:
    from regard.model.describe import Branch
    from regard.model.spec import Spec

Described = Annotated[
    str,
    typer.Argument(
        help="A name (also gpt2, bert-large, llama-65b …), a directory, .gguf or config.json.", metavar="MODEL"
    ),
]


def command(
    model: Described,
    json: AsJSON = False,
) -> None:
    """Show a model's parts with shapes and parameter counts. No weights are loaded: a configuration is enough.

    regard inspect gpt2
    regard inspect path/to/model.gguf
    regard inspect path/to/config.json --json
    """
    spec, metadata = find_spec(model)
    from regard.engine.quality.quantization_cost import QuantizationCost
    from regard.model.describe import describe, summary

    facts, cost = summary(spec), QuantizationCost.read(metadata)  # which `regard convert --quantize` measured
    if cost is not None:
        facts["rounding"] = str(cost)
    if json:
        print_json(facts)
        return
    import textwrap

    print_styled(
        f"{bold(clean(model))}: {spec.family}, {spec.kind}, {bold(format(facts['parameters'], ','))} parameters\n"
    )
    for name, phrase in fact_lines(facts):
        print(textwrap.fill(phrase, 80, initial_indent=f"{name:<12}", subsequent_indent=" " * 12))
    print()
    print_aligned(lines(describe(spec).children), right=[2])


def fact_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines above the tree: a name and a phrase each."""
    plain = [(key, facts[key]) for key in ("width", "vocabulary", "context", "head")]
    phrases = [(key, f"{value:,}" if isinstance(value, int) else value) for key, value in plain]
    for name, stack in facts["stacks"].items():
        phrases.append((name, ", ".join(f"{key} {value}" for key, value in stack.items())))
    return [*phrases, ("rounding", facts["rounding"])] if "rounding" in facts else phrases


def lines(branches: list["Branch"], guide: str = "") -> list[tuple[str, str, str]]:
    """The tree as rows of name, shape and count. A part that is repeated is printed once, as `times` × its count."""
    rows = []
    for branch in branches:
        last = branch is branches[-1]
        each = branch.parameters // branch.times
        count = f"{branch.times} × {each:,}" if branch.times > 1 else f"{each:,}"
        shape = branch.about.replace(" (tied to the embedding)", ", tied")
        rows.append((f"{guide}{'└─ ' if last else '├─ '}{branch.name}", shape, count))
        rows += lines(branch.children, guide + ("   " if last else "│  "))
    return rows


def find_spec(where: str) -> "tuple[Spec, Mapping[str, Any]]":
    """The spec behind a name, a directory, a .gguf file or a config.json, and the metadata of a GGUF file."""
    from regard.model.known import known_config
    from regard.model.registry import spec_of
    from regard.store.hub import bundled
    from regard.store.open_model import read_spec

    if not Path(where).exists() and where not in bundled():
        config = known_config(where)
        if config is not None:
            return spec_of(config, where), {}
    return read_spec(where)
