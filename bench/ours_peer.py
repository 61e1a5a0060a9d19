"""This package as a peer: in its own process, it reads commands line by line and answers with seconds.

`libraries` imports the libraries it needs · `decode PROMPT NEW` opens SmolLM2, applies the chat template and generates.
"""

import importlib
import sys
import time
from typing import Any


def libraries() -> None:
    for name in ("numpy", "tokenizers", "jinja2.sandbox"):
        importlib.import_module(name)


def decode(prompt: int, new: int) -> None:
    import regard

    model = regard.load("smollm2", engine="native")
    model.chat_ids("What is the capital of France?")  # the chat template, which the peer's library loads too
    ids = [5 + i % 1000 for i in range(prompt)]
    written = list(model.stream_tokens(ids, max_new_tokens=new, min_new_tokens=new, temperature=0.0))
    assert len(written) == new
    kept.append(model)


kept: list[object] = []  # so that what was opened stays in memory

if __name__ == "__main__":
    for line in sys.stdin:
        what, *numbers = line.split()
        begin = time.perf_counter()
        work: Any = {"libraries": libraries, "decode": decode}[what]
        work(*map(int, numbers))
        print(time.perf_counter() - begin, flush=True)
