"""`regard models`: the models that have names."""

from pathlib import Path

from regard.cli.console import AsJSON, print_json, readable_path


def command(json: AsJSON = False) -> None:
    """List the models that can be used by name.

    regard models
    regard models --json
    """
    from regard.model.known import CONFIGS
    from regard.store.hub import INSTALLABLE, bundled, installed

    rows: list[dict[str, str | None]] = [
        {"name": name, "about": "bundled", "path": str(path)} for name, path in bundled().items()
    ]
    for name, known in INSTALLABLE.items():
        path = installed(known)
        rows.append({"name": name, "about": known.about, "path": str(path) if path else None})
    if json:
        print_json(rows)
        return
    import textwrap

    for row in rows:
        where = readable_path(Path(row["path"])) if row["path"] else f"not installed: regard pull {row['name']}"
        print(f"{row['name']}: {row['about']}\n  {where}")
    for sentence in (
        f"To inspect by name, without weights: {', '.join(CONFIGS)}.",
        "A directory, a .gguf file or a name on the hub (owner/name) can be given wherever a MODEL is.",
    ):
        print("\n" + textwrap.fill(sentence, 80, break_on_hyphens=False))
