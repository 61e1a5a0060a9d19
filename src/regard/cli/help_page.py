"""A verb's help page (`regard VERB --help`): usage, what it does, arguments, options, examples.

The text is the docstring of the verb's `command` function: its first paragraph says what the verb does, its second has
examples, a line each. It is formatted without rich, whose import takes as long as everything else together.
"""

import inspect
from typing import Any

import typer
from typer.core import TyperCommand

VALUES = {"<int>": "N", "<float>": "X", "<str>": "TEXT", "<list[str]>": "TEXT", "<path>": "PATH"}


def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from regard import __version__

        print(__version__)
        raise typer.Exit


class Verb(TyperCommand):
    """A typer command whose help page has this package's format."""

    def __init__(self, **attributes: Any) -> None:
        about, _, examples = inspect.cleandoc(attributes.pop("help") or "").partition("\n\n")
        super().__init__(**attributes, help=" ".join(about.split()))
        self.examples = examples.splitlines()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(usage_of(p) for p in self.params if p.param_type_name == "argument")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments = [
            (metavar_of(p), getattr(p, "help", "") or "") for p in self.params if p.param_type_name == "argument"
        ]
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": arguments, "Options": []}
        for p in self.get_params(ctx):
            record = p.get_help_record(ctx) if p.param_type_name == "option" else None
            if record:
                rows = panels.setdefault(getattr(p, "rich_help_panel", None) or "Options", [])
                rows.append((with_metavars(record[0]), record[1]))
        for heading, rows in panels.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def with_metavars(option: str) -> str:
    """`--seed <int>` → `--seed N`."""
    for typed, word in VALUES.items():
        option = option.replace(typed, word)
    return option


def metavar_of(argument: Any) -> str:
    name: str = argument.metavar or argument.name.upper()
    return name


def usage_of(argument: Any) -> str:
    """MODEL if it is required, [MODEL] if it is optional, [TEXT]... if it may be repeated."""
    name = metavar_of(argument) if argument.required else f"[{metavar_of(argument)}]"
    return name if argument.nargs == 1 else f"{name}..."
