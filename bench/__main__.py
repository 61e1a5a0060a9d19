"""`python -m bench [name …] [--write]`: every comparison as a Markdown table; --write puts it into docs/benchmarks.md."""

import importlib
import sys
from pathlib import Path

from bench.versus import machine

NAMES = ("startup", "memory", "generation", "native", "embedding", "training", "inspect", "latency")
DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: python -m bench --write -->\n", "<!-- end of figures -->"


def main(arguments: list[str]) -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    chosen = [a for a in arguments if not a.startswith("-")] or list(NAMES)
    lines = [f"- {fact}: {value}" for fact, value in machine().items()]
    lines += ["", "| what | regard | peer: transformers, unless named | ratio | aim |", "|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for name in chosen:
        for comparison in importlib.import_module(f"bench.{name}").comparisons():
            lines.append(comparison.row())
            print(lines[-1], flush=True)
    if "--write" in arguments:
        before, _, rest = DOCUMENT.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        DOCUMENT.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after)


if __name__ == "__main__":
    main(sys.argv[1:])
