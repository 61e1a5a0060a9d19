"""The engine's C as strictly as its tools can read it: `python .ci/check_c.py`, a part of `make check`.

Every file is compiled as `regard.engine.native.build` compiles it, for each instruction set, with more warnings, each an
error, and read by clang-tidy (`.clang-tidy`) with the same flags. clang-format compares the files with `.clang-format`;
`--format` rewrites them. Without a C compiler one line says that nothing was checked.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regard.engine.native import build

# Known to GCC and Clang; -O1 is as much optimisation as following values takes. Not among them: -Wcast-align, since buffers
# come as bytes, aligned by whoever allocates them, and -Wfloat-equal, since x != x is how a NaN is found.
STRICT = """
    -O1 -Werror -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion -Wcast-qual -Wbad-function-cast -Wpointer-arith
    -Wnull-dereference -Wvla -Wundef -Wunused-macros -Wformat=2 -Wwrite-strings -Wimplicit-fallthrough -Wstrict-prototypes
    -Wmissing-prototypes -Wold-style-definition -Wredundant-decls
""".split()
FILES = sorted(str(file) for file in build.HERE.glob("*.[ch]"))


def tool(name: str) -> str:
    """A program that was installed beside this Python."""
    found = shutil.which(name, path=sysconfig.get_path("scripts"))
    return found or sys.exit(f"There is no {name} beside {sys.executable}; “make setup” installs it.")


def tasks() -> list[tuple[str, list[str]]]:
    """What is to be run, each with its tool's name; the longest first."""
    cc = build.compiler()
    compiling, _ = build.commands(cc, Path(), Path(), sanitize=False)
    units = [(command[len(cc) : command.index("-c")], command[command.index("-c") + 1]) for command in compiling]
    tidy = tool("clang-tidy")
    reading = [("clang-tidy", [tidy, "--quiet", file, "--", *flags]) for flags, file in units]
    strict = [(cc[0], [*cc, *flags, *STRICT, "-c", file, "-o", os.devnull]) for flags, file in units]
    return [
        *reading,
        *strict,
        ("clang-format", [tool("clang-format"), "--dry-run", "--Werror", "--ferror-limit=1", *FILES]),
    ]


def run(task: tuple[str, list[str]]) -> str:
    """What a tool says against the files; nothing if it accepts them."""
    name, command = task
    done = subprocess.run(command, capture_output=True, text=True)
    return f"{name}: {' '.join(command)}\n{done.stdout}{done.stderr}" if done.returncode else ""


def main() -> None:
    if "--format" in sys.argv:
        sys.exit(subprocess.run([tool("clang-format"), "-i", *FILES]).returncode)
    try:
        todo = tasks()
    except build.NoCompiler as problem:
        print(f"The engine's C files were not checked: {problem}")
        return
    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        said = list(filter(None, threads.map(run, todo)))
    if said:
        sys.exit("\n".join(said))


main()
