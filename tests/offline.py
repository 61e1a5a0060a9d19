"""A run handed on as a file, asked in Node: the page's own modules, without a page. tests/offline.mjs answers."""

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from regard.explain.trace import Array, Trace
from regard.page import WEB
from regard.page.export import in_markup
from regard.page.export_contents import contents

DRIVER = Path(__file__).with_name("offline.mjs")
WORDS = {"-∞": -math.inf, "∞": math.inf, "nan": math.nan}


def find_node() -> str | None:
    """Node, or the one that Playwright brings along."""
    if found := shutil.which("node"):
        return found
    try:
        from playwright._impl._driver import compute_driver_executable
    except ImportError:
        return None
    return str(compute_driver_executable()[0])


NODE = find_node()


class Offline:
    """The backend of one file. Everything it is asked goes through a pipe, one line of JSON each way."""

    def __init__(self, trace: Trace, folder: Path, **settings: Any) -> None:
        file = folder / "run.json"
        file.write_text(in_markup(contents(trace, "a model", "a text", **settings)))
        assert NODE is not None
        command = [NODE, str(DRIVER), str(WEB), str(file)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, method: str, *questions: list[Any]) -> list[Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, *questions]) + "\n")
        self.process.stdin.flush()
        answer: list[Any] = json.loads(self.process.stdout.readline())
        return answer

    def numbers(self, method: str, *question: Any) -> Array:
        (found,) = self.ask(method, list(question))
        assert "error" not in found, found
        return np.array([WORDS.get(x, x) for x in found["values"]], np.float32).reshape(found["shape"])

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=20)
