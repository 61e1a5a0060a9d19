"""`regard worksheet`: exercises in computing attention by hand, on paper, in a browser or in a quiz."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from regard.cli.console import ModelName, check_writable, load_model, readable_path


def command(
    model: ModelName,
    text: Annotated[str, typer.Argument(help="The model's input.", metavar="TEXT")],
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="FILE")],
    format: Annotated[
        Literal["html", "check", "moodle", "gift"],
        typer.Option(
            help="html: a page to print. check: a page that checks what is typed. moodle: Moodle XML. gift: GIFT.",
            show_choices=True,
        ),
    ] = "html",
    target: Annotated[
        str | None, typer.Option(help="An encoder-decoder's target; else what it generates.", metavar="TEXT")
    ] = None,
    level: Annotated[
        Literal["scores", "weights", "z", "all"], typer.Option(help="What students compute.", show_choices=True)
    ] = "all",
    students: Annotated[
        int, typer.Option(help="How many different sheets to write, one per student.", metavar="N", min=1)
    ] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sheets.", metavar="N")] = 0,
    key: Annotated[bool, typer.Option("--key", help="Write the answers too, to FILE-key.html.")] = False,
) -> None:
    """Write worksheets for computing attention by hand. Each student gets other numbers of a real forward pass.

    regard worksheet toy-gpt "The old king sees the horse." --out sheet.html --key
    regard worksheet toy-bert "A good film." --out s.html --level z --students 30
    regard worksheet toy-gpt "The old king" --format moodle --out quiz.xml
    """
    check_writable(out)
    answers = out.with_name(f"{out.stem}-key{out.suffix if format in ('html', 'check') else '.html'}") if key else None
    if answers:
        check_writable(answers)
    loaded = load_model(model)
    from regard.store.atomic_write import replace_file
    from regard.teach.formats import FORMATS
    from regard.teach.handout import handout

    trace = loaded.trace(text, target)
    settings: dict[str, Any] = {"seed": seed, "level": level, "students": students, "model": loaded.name}
    sheets = handout(trace, part="sheets", **settings) if format == "html" else FORMATS[format](trace, **settings)
    files = {out: sheets} | ({answers: handout(trace, part="key", **settings)} if answers else {})
    for path, content in files.items():
        with replace_file(path) as file:
            file.write(content.encode())
    made = "a sheet" if students == 1 else f"{students} sheets"
    print(f"{readable_path(out.absolute())}: {made} {PURPOSES[format]}.")
    if answers:
        print(f"{readable_path(answers.absolute())}: the answers.")
    elif format in ("html", "check"):
        print("The same command with --key writes the answers.")


PURPOSES = {
    "html": "to print",
    "check": "to fill in with a browser",
    "moodle": "to import as Moodle XML",
    "gift": "to import as GIFT",
}
