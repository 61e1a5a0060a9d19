"""The sdist and the wheel made from it, built once, and fresh environments in which only one of them is installed."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
NOT_SOURCES = (
    ".git",
    ".venv*",
    "node_modules",
    "build",
    "dist",
    "runs",
    "*.egg-info",
    "*.so",
    "*.dylib",
    "__pycache__",
)


@dataclass(frozen=True)
class Release:
    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment: no compiler, no source tree, none of the user's variables."""

    path: Path

    @property
    def variables(self) -> dict[str, str]:
        return {"PATH": str(self.path / "bin"), "HOME": str(self.path), "HF_HUB_OFFLINE": "1", "LANG": "C.UTF-8"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A program of this environment; it must succeed."""
        program = [str(self.path / "bin" / command[0]), *command[1:]]
        done = subprocess.run(
            program,
            env=self.variables,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        return done


def python(*arguments: str, **variables: str) -> None:
    """This Python, for the tools of a build (build, pip, setuptools); it must succeed."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CC")}
    done = subprocess.run([sys.executable, *arguments], env=kept | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """`python -m build` in a copy of the tree: first the sdist, then the wheel from it. One build for all xdist workers."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "release"
    with FileLock(f"{place}.lock"):
        if not (place / "built").exists():
            shutil.copytree(ROOT, place / "tree", ignore=shutil.ignore_patterns(*NOT_SOURCES))
            python("-m", "build", "--no-isolation", "--outdir", str(place / "dist"), str(place / "tree"))
            (place / "built").touch()
    (sdist,), (wheel,) = (place / "dist").glob("*.tar.gz"), (place / "dist").glob("*.whl")
    return Release(sdist, wheel)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[Path], Environment]:
    """`fresh(wheel)`: an environment with that wheel and the packages that it declares, and with nothing else."""

    def make(wheel: Path) -> Environment:
        environment = Environment(tmp_path / wheel.parent.name)
        venv.create(environment.path, symlinks=True)
        own = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment.path)}))
        install = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(wheel)]
        target = str(environment.path / "bin" / "python")
        python("-m", "pip", "--disable-pip-version-check", "--python", target, *install)
        (installed,) = importlib.metadata.distributions(name="regard", path=[str(own)])
        (own / "dependencies.pth").write_text(f"{linked(dependencies(installed), tmp_path / 'dependencies')}\n")
        return environment

    return make


def dependencies(of: importlib.metadata.Distribution) -> set[importlib.metadata.Distribution]:
    """What a distribution declares that it needs, without extras, and what that needs in turn: as it is installed here."""
    found: dict[str, importlib.metadata.Distribution] = {}

    def follow(requirements: list[str], extras: set[str]) -> None:
        for requirement in map(Requirement, requirements):
            wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in extras | {""})
            key = canonicalize_name(requirement.name)
            if wanted and (key not in found or requirement.extras):
                found[key] = importlib.metadata.distribution(key)
                follow(found[key].requires or [], requirement.extras)

    follow(of.requires or [], set())
    return set(found.values())


def linked(distributions: set[importlib.metadata.Distribution], folder: Path) -> Path:
    """A folder in which Python finds these distributions and no others."""
    folder.mkdir(exist_ok=True)
    for distribution in distributions:
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return folder


@pytest.fixture
def without_compiler(release: Release, tmp_path: Path) -> Path:
    """The wheel that the sdist becomes where there is no C compiler."""
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    out = tmp_path / "plain"
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(out)]
    python("-m", "pip", "--disable-pip-version-check", "wheel", *options, str(release.sdist), PATH=str(nothing))
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture
def page() -> Iterator[Callable[[Environment], str]]:
    """`page(environment)`: the address at which its `regard view` is open, until the test ends."""
    started: list[subprocess.Popen[str]] = []

    def start(environment: Environment) -> str:
        command = [str(environment.path / "bin" / "regard"), "view", "--no-browser", "--port", "0"]
        process = subprocess.Popen(
            command,
            env=environment.variables,
            cwd=environment.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().removeprefix("regard is open at ").strip()

    yield start
    for process in started:
        with process:
            process.terminate()
