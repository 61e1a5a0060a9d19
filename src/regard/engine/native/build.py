"""`python -m regard.engine.native.build [--sanitize] [directory]`: compile the C files here into one shared library.

Installing the package does the same. Kernels are compiled twice, for AVX2 where the compiler targets x86-64 and as plain
C; the library chooses when it is loaded. This module imports only the standard library, since it runs during installation,
and most of that inside functions, since every process that loads the library imports it for the file name.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
NAME = "engine.dylib" if sys.platform == "darwin" else "engine.so"
KERNELS = ("floating.c", "rounded.c", "pointwise.c", "attention.c", "isa.c")
SHARED = ("pool.c", "pack.c", "run.c")
FLAGS = "-std=gnu11 -O3 -g1 -fPIC -Wall -Wextra -Wno-psabi -ffp-contract=off -fno-math-errno -pthread".split()
AVX2 = "-mavx2 -mfma -mf16c".split()
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1".split()


def sources() -> str:
    """A hash of the C sources and flags. A built library contains it, so that one built from other sources is not used."""
    import hashlib

    made_from = hashlib.sha256(repr((FLAGS, AVX2)).encode())
    for file in sorted(HERE.glob("*.[ch]")):
        made_from.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return made_from.hexdigest()


class NoCompiler(Exception):
    """There is no C compiler, or it failed; the message says which."""


def compiler() -> list[str]:
    """The compiler that CC names, or the system's."""
    import shlex
    import shutil
    import sysconfig

    candidates = [os.environ.get("CC", ""), "cc", "gcc", "clang", sysconfig.get_config_var("CC") or ""]
    for candidate in filter(None, candidates):
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            return command
    raise NoCompiler("There is no C compiler (cc, gcc or clang).")


def commands(cc: list[str], objects: Path, target: Path, sanitize: bool) -> tuple[list[list[str]], list[str]]:
    """The commands that compile each file, and the command that links them."""
    import platform

    x86 = platform.machine().lower() in ("x86_64", "amd64")
    flags = FLAGS + (SANITIZE if sanitize else [])
    sets: dict[str, list[str]] = {"portable": [], **({"avx2": AVX2} if x86 else {})}
    units = [(file, f"{file}.{isa}.o", [f"-DISA={isa}", *extra]) for isa, extra in sets.items() for file in KERNELS]
    shared = [f'-DSOURCES="{sources()}"', *(["-DWITH_AVX2"] if x86 else [])]
    units += [(file, f"{file}.o", shared) for file in SHARED]
    compiling = [[*cc, *flags, *extra, "-c", str(HERE / file), "-o", str(objects / o)] for file, o, extra in units]
    linking = [*cc, *flags, "-shared", *(str(objects / o) for _, o, _ in units), "-lm", "-o", str(target)]
    return compiling, linking


def run(command: list[str]) -> None:
    import subprocess

    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        message = (done.stderr.strip() or "nothing").splitlines()[0]
        raise NoCompiler(f"{command[0]} failed: {message}")


def build(directory: Path = HERE, *, sanitize: bool = False) -> Path:
    """Build the library in `directory`, atomically: it appears complete or not at all."""
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    cc = compiler()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        objects = Path(scratch)
        compiling, linking = commands(cc, objects, objects / NAME, sanitize)
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            list(threads.map(run, compiling))
        run(linking)
        os.replace(objects / NAME, directory / NAME)
    return directory / NAME


if __name__ == "__main__":
    places = [Path(a) for a in sys.argv[1:] if not a.startswith("-")]
    try:
        print(build(*places, sanitize="--sanitize" in sys.argv))
    except NoCompiler as problem:
        sys.exit(f"The native engine was not built: {problem}")
