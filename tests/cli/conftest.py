"""The command line as a function: arguments and standard input in; exit code, stdout and stderr out."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from regard.cli.main import run
from regard.store.hub import INSTALLABLE, installed


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`regard("embed", model, stdin="…")`, as the entry point runs it."""

    def call(*arguments: object, stdin: str | bytes = "") -> Ran:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        capsys.readouterr()
        code: object = 0
        try:
            run()
        except SystemExit as exit:
            code = exit.code or 0
        out, err = capsys.readouterr()
        assert isinstance(code, int)
        return Ran(code, out, err)

    return call


@pytest.fixture
def smollm2() -> str:
    return real("smollm2")


@pytest.fixture
def minilm() -> str:
    return real("minilm")


def real(name: str) -> str:
    if installed(INSTALLABLE[name]) is None:
        pytest.skip(f"{name} is not installed")
    return name
