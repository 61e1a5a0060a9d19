"""`regard inspect`: what a model is made of, from its configuration alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.say import AsJSON, print_json
from regard.errors import ConfigError

if TYPE_CHECKING:
    from rich.tree import Tree

    from regard.model.describe import Branch
    from regard.model.spec import Spec


def command(
    model: Annotated[
        str, typer.Argument(help="A name (also gpt2, bert-large, llama-65b …), a directory or a config.json.")
    ],
    json: AsJSON = False,
) -> None:
    """Show a model's architecture as a tree with shapes and parameter counts, without loading its weights.

    [dim]regard inspect gpt2[/dim]
    [dim]regard inspect path/to/config.json --json[/dim]
    """
    spec = find_spec(model)
    from regard.model.describe import describe, summary

    facts = summary(spec)
    if json:
        print_json(facts)
        return
    from rich.console import Console
    from rich.tree import Tree

    tree = Tree(f"[bold]{model}[/bold]: {spec.family}, {spec.kind}, [bold]{facts['parameters']:,}[/bold] parameters")
    for name, stack in facts["stacks"].items():
        told = ", ".join(f"{key} {value}" for key, value in stack.items())
        tree.add(f"[dim]{name}: {told}[/dim]")
    tree.add(f"[dim]width {spec.d}, vocabulary {spec.n_vocab:,}, context {spec.context:,}, head {spec.head.kind}[/dim]")
    for child in describe(spec).children:
        grow(tree, child)
    Console(highlight=False).print(tree)


def grow(tree: "Tree", branch: "Branch") -> None:
    times = f" [bold]×{branch.times}[/bold]" if branch.times > 1 else ""
    about = f"  [dim]{branch.about}[/dim]" if branch.about else ""
    grown = tree.add(f"{branch.name}{times}{about}  {branch.parameters:,}")
    for child in branch.children:
        grow(grown, child)


def find_spec(where: str) -> "Spec":
    from regard.model.known import known_config
    from regard.model.registry import family_of_gguf, spec_of
    from regard.store.gguf import read_gguf
    from regard.store.hub import bundled, resolve
    from regard.store.jsonfile import read_json

    config: dict[str, Any] | None = None
    if not Path(where).exists() and where not in bundled():
        config = known_config(where)
    if config is not None:
        return spec_of(config, where)
    path = resolve(where)
    if path.is_dir() and not (path / "config.json").exists():
        lone = sorted(path.glob("*.gguf"))
        path = lone[0] if len(lone) == 1 else path
    if path.suffix == ".gguf":
        file = read_gguf(path)
        family = family_of_gguf(file.metadata.get("general.architecture"), str(path))
        assert family.gguf is not None
        return spec_of(family.gguf.config(file), str(path), file.names)
    file_path = path / "config.json" if path.is_dir() else path
    return spec_of(read_json(file_path, "the model's configuration", ConfigError), str(file_path))
