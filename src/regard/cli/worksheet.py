"""`regard worksheet`: attention to be computed by hand, from a real run, on paper."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.say import ModelName, check_writable, load_model, readable_path


def command(
    model: ModelName,
    text: Annotated[str, typer.Argument(help="What the model reads.", metavar="TEXT")],
    out: Annotated[Path, typer.Option(help="The page to write, .html.", metavar="FILE")],
    target: Annotated[
        str | None, typer.Option(help="What an encoder-decoder writes; else its own translation.", metavar="TEXT")
    ] = None,
    level: Annotated[
        Literal["scores", "weights", "z", "all"], typer.Option(help="What is left open.", show_choices=True)
    ] = "all",
    students: Annotated[int, typer.Option(help="A sheet of its own for each of so many.", metavar="N", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sheets.", metavar="N")] = 0,
    key: Annotated[bool, typer.Option("--key", help="Write the answers too, to FILE-key.html.")] = False,
) -> None:
    """Write worksheets to print, attention to be computed by hand. Each student gets other numbers of a real run.

    regard worksheet toy-gpt "The old king sees the horse." --out sheet.html --key
    regard worksheet toy-bert "A good film." --out s.html --level z --students 30
    """
    check_writable(out)
    loaded = load_model(model)
    from regard.explain.handout import Part, handout

    trace = loaded.trace(text, target)
    answers = out.with_name(f"{out.stem}-key{out.suffix}")
    parts: dict[Path, Part] = {out: "sheets", answers: "key"} if key else {out: "sheets"}
    pages = {
        path: handout(trace, seed=seed, level=level, students=students, model=loaded.name, part=part)
        for path, part in parts.items()
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, page in pages.items():
        path.write_text(page, encoding="utf-8")
    print(f"{readable_path(out.absolute())}: {'a sheet' if students == 1 else f'{students} sheets'} to print.")
    if key:
        print(f"{readable_path(answers.absolute())}: the answers.")
    else:
        print("The same command with --key writes the answers.")
