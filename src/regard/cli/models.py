"""`regard models`: which names there are."""

from regard.cli.say import AsJSON, print_json, readable_path


def command(json: AsJSON = False) -> None:
    """List the models that can be used by name."""
    from regard.model.known import CONFIGS
    from regard.store.hub import INSTALLABLE, bundled, installed

    rows = [{"name": name, "about": "bundled", "path": str(path)} for name, path in bundled().items()]
    for name, known in INSTALLABLE.items():
        path = installed(known)
        rows.append({"name": name, "about": known.about, "path": str(path) if path else ""})
    if json:
        print_json(rows)
        return
    from pathlib import Path

    for row in rows:
        where = readable_path(Path(row["path"])) if row["path"] else f"not installed: regard pull {row['name']}"
        print(f"{row['name']:<14} {row['about']:<56} {where}")
    print(f"\nTo inspect by name alone: {', '.join(CONFIGS)}.")
    print("A directory, a .gguf file or a name on the hub (owner/name) works everywhere a model is asked for.")
