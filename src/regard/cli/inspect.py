"""`regard inspect`: what a model is made of, from its configuration alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.say import AsJSON, bold, print_aligned, print_json, print_styled
from regard.errors import ConfigError, NotFound, clean

if TYPE_CHECKING:
    from regard.model.describe import Branch
    from regard.model.spec import Spec


def command(
    model: Annotated[
        str,
        typer.Argument(
            help="A name (also gpt2, bert-large, llama-65b …), a directory, .gguf or config.json.", metavar="MODEL"
        ),
    ],
    json: AsJSON = False,
) -> None:
    """Show a model's parts with shapes and parameter counts. No weight is loaded: a configuration is enough.

    regard inspect gpt2
    regard inspect path/to/model.gguf
    regard inspect path/to/config.json --json
    """
    spec = find_spec(model)
    from regard.model.describe import describe, summary

    facts, cost = summary(spec), rounding_cost(Path(model))
    if cost is not None:
        facts["rounding"] = cost
    if json:
        print_json(facts)
        return
    import textwrap

    print_styled(
        f"{bold(clean(model))}: {spec.family}, {spec.kind}, {bold(format(facts['parameters'], ','))} parameters\n"
    )
    for name, told in told_facts(facts):
        print(textwrap.fill(told, 80, initial_indent=f"{name:<12}", subsequent_indent=" " * 12))
    print()
    print_aligned(lines(describe(spec).children), right=[2])


def told_facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What stands above the tree: a name and a phrase each."""
    plain = [(key, facts[key]) for key in ("width", "vocabulary", "context", "head")]
    told = [(key, f"{value:,}" if isinstance(value, int) else value) for key, value in plain]
    for name, stack in facts["stacks"].items():
        told.append((name, ", ".join(f"{key} {value}" for key, value in stack.items())))
    return [*told, ("rounding", facts["rounding"])] if "rounding" in facts else told


def rounding_cost(path: Path) -> str | None:
    """What `regard convert --quantize` measured, if it made this file or directory."""
    from regard.engine.cost import Cost
    from regard.store.gguf import read_gguf

    files = [path] if path.suffix == ".gguf" else sorted(path.glob("*.gguf")) if path.is_dir() else []
    cost = Cost.read(read_gguf(files[0]).metadata) if len(files) == 1 and files[0].is_file() else None
    return None if cost is None else str(cost)


def lines(branches: list["Branch"], guide: str = "") -> list[tuple[str, str, str]]:
    """The tree as rows of name, shape and count. What stands `times` over is counted once and multiplied."""
    rows = []
    for branch in branches:
        last = branch is branches[-1]
        each = branch.parameters // branch.times
        count = f"{branch.times} × {each:,}" if branch.times > 1 else f"{each:,}"
        shape = branch.about.replace(" (tied to the embedding)", ", tied")
        rows.append((f"{guide}{'└─ ' if last else '├─ '}{branch.name}", shape, count))
        rows += lines(branch.children, guide + ("   " if last else "│  "))
    return rows


def find_spec(where: str) -> "Spec":
    """The spec behind a name, a directory, a .gguf file or a config.json."""
    from regard.model.known import known_config
    from regard.model.registry import spec_of
    from regard.store.hub import bundled, resolve
    from regard.store.jsonfile import read_json
    from regard.store.open import checkpoint_of_run
    from regard.store.safetensors import open_checkpoint

    if not Path(where).exists() and where not in bundled():
        config = known_config(where)
        if config is not None:
            return spec_of(config, where)
    path = checkpoint_of_run(resolve(where, wanted=["config.json"]))
    lone = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if path.suffix == ".gguf":
        return spec_of_gguf(path)
    if path.is_file():
        return spec_of(read_json(path, "the model's configuration", ConfigError), str(path))
    if not (path / "config.json").exists() and len(lone) == 1:
        return spec_of_gguf(lone[0])
    if not (path / "config.json").exists():
        raise NotFound(f"{path} is not a model's directory: it has neither a config.json nor one .gguf file.")
    config = read_json(path / "config.json", "the model's configuration", ConfigError)
    names = open_checkpoint(path).names if any(path.glob("*.safetensors")) else ()
    return spec_of(config, str(path / "config.json"), names)


def spec_of_gguf(path: Path) -> "Spec":
    from regard.model.registry import config_of_gguf, spec_of
    from regard.store.gguf import read_gguf

    file = read_gguf(path)
    return spec_of(config_of_gguf(file, str(path))[1], str(path), file.names)
