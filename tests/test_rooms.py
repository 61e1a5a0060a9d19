"""The rooms of the package: none reads another's files by path. import-linter holds the imports (pyproject.toml)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

ROOT = Path(regard.__file__).parent
ROOMS = {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").exists()}


def climbs(node: ast.AST) -> int | None:
    """How many folders above its file an expression on `__file__` is; None if it is not on `__file__`."""
    match node:
        case ast.Attribute(value=inner, attr="parent"):
            above = climbs(inner)
            return None if above is None else above + 1
        case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(n))):
            above = climbs(inner)
            return None if above is None else above + n + 1
        case ast.Call(func=ast.Attribute(value=inner, attr="resolve" | "absolute")):
            return climbs(inner)
        case ast.Call(args=[ast.Name(id="__file__")]):
            return 0
    return None


def reached(file: Path, tree: ast.AST) -> Iterator[str]:
    """The rooms that a module reaches by a path from its own file, or asks importlib.resources for."""
    room = file.relative_to(ROOT).parts[0]
    depth = len(file.relative_to(ROOT).parts)  # so many folders up is the folder of the package
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(name))) if climbs(left) == depth:
                if (first := Path(name).parts[0]) in ROOMS - {room}:
                    yield first
            case ast.Call(
                func=ast.Name(id="files") | ast.Attribute(attr="files"), args=[ast.Constant(value=str(name))]
            ):
                parts = name.split(".")
                if parts[0] == "regard" and len(parts) > 1 and parts[1] in ROOMS - {room}:
                    yield parts[1]


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_no_room_reads_files_of_another(file: Path) -> None:
    assert list(reached(file, ast.parse(file.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "line",
    [
        'Path(__file__).parent.parent / "serve" / "page"',
        'Path(__file__).resolve().parents[1] / "page/web"',
        'resources.files("regard.page.web")',
    ],
)
def test_what_would_be_found(line: str) -> None:
    assert len(list(reached(ROOT / "explain" / "export.py", ast.parse(line)))) == 1
