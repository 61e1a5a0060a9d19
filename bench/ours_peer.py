"""We as a peer of others, asked line by line in a process of our own.

`libraries` imports what is not ours · `decode PROMPT NEW` opens SmolLM2, frames a message and writes. Answers are seconds.
"""

import importlib
import sys
import time


def libraries() -> None:
    for name in ("numpy", "tokenizers", "jinja2.sandbox"):
        importlib.import_module(name)


def decode(prompt: int, new: int) -> None:
    import regard

    model = regard.load("smollm2", engine="native")
    model.chat_ids("What is the capital of France?")  # which the peer's library is ready for too
    ids = [5 + i % 1000 for i in range(prompt)]
    written = list(model.stream_tokens(ids, max_new_tokens=new, min_new_tokens=new, temperature=0.0))
    assert len(written) == new
    kept.append(model)


kept: list[object] = []  # what has been opened stays

if __name__ == "__main__":
    for line in sys.stdin:
        what, *numbers = line.split()
        begin = time.perf_counter()
        {"libraries": libraries, "decode": decode}[what](*map(int, numbers))
        print(time.perf_counter() - begin, flush=True)
