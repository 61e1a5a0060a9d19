"""What people download: the wheel has all it needs and nothing else, and runs where there is no compiler and no PyTorch."""

import importlib.util
import re
import tarfile
import urllib.request
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import regard
from regard.engine.native.build import NAME
from regard.store.hub import bundled

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "regard"
ENGINE = f"regard/engine/native/{NAME}"
PROMPT = ("regard", "generate", "toy-gpt", "The old king", "--max-new-tokens", "3", "--temperature", "0")


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def metadata(wheel: Path, file: str) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return dict(Parser().parsestr(archive.read(f"regard-{regard.__version__}.dist-info/{file}").decode()).items())


def sources() -> set[str]:
    """Every file of the package, as the wheel names it."""
    made, checks = {".so", ".dylib", ".pyc", ".new"}, {"tsconfig.json", "types.d.ts"}  # built, or only for `make check`
    files = (p for p in PACKAGE.rglob("*") if p.is_file() and p.suffix not in made and p.name not in checks)
    return {f"regard/{p.relative_to(PACKAGE)}" for p in files}


def test_the_wheel_is_the_package_and_the_engine(release):
    """Every module, every file of the page, the bundled models, py.typed, the C sources whose hash the engine carries: and
    nothing else."""
    inside = {name for name in contents(release.wheel) if ".dist-info/" not in name}
    assert inside == sources() | {ENGINE}
    assert "regard/py.typed" in inside
    assert {f"regard/models/{name}/model.safetensors" for name in bundled()} <= inside
    (index,) = (name for name in inside if name.endswith("/index.html"))
    assert {f"{Path(index).parent}/{name}" for name in ("main.js", "style.css")} <= inside


def test_the_wheel_has_nothing_that_only_the_makers_of_the_bundled_models_need(release):
    """The recipes, with the grammar that writes the toy models' texts, are not part of the package; nor are the tests."""
    strange = {"toy", "recipes", "tests", "bench", "docs"}
    assert not {name for name in contents(release.wheel) if strange & {*Path(name).parts}}


def test_the_wheel_fits_every_python_of_its_platform(release):
    """The engine is opened by ctypes and uses no Python API; so py3-none, but not any platform."""
    assert re.fullmatch(rf"regard-{re.escape(regard.__version__)}-py3-none-(?!any)\w+\.whl", release.wheel.name)
    assert metadata(release.wheel, "WHEEL")["Root-Is-Purelib"] == "false"


@pytest.mark.parametrize(
    ("python", "machine", "wheel"),
    [
        ("linux_x86_64", "x86_64", "linux_x86_64"),
        ("macosx_10_13_universal2", "arm64", "macosx_11_0_arm64"),
        ("macosx_10_13_universal2", "x86_64", "macosx_10_13_x86_64"),
        ("macosx_14_0_arm64", "arm64", "macosx_14_0_arm64"),
    ],
)
def test_a_wheel_is_for_one_processor(python, machine, wheel, monkeypatch):
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("regard_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    assert setup.one_processor(python, machine) == wheel


def test_the_version_stands_in_one_place(release):
    assert metadata(release.wheel, "METADATA")["Version"] == regard.__version__
    assert release.sdist.name == f"regard-{regard.__version__}.tar.gz"
    elsewhere = [ROOT / "pyproject.toml", ROOT / "setup.py", *PACKAGE.rglob("*.py")]
    named = [file for file in elsewhere if f'"{regard.__version__}"' in file.read_text()]
    assert named == [PACKAGE / "__init__.py"]


def test_the_changelog_has_the_version_that_is_released():
    releases = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert releases[:2] == ["Unreleased", regard.__version__]


def test_the_sdist_has_what_builds_the_package(release):
    with tarfile.open(release.sdist) as archive:
        inside = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {f"src/{name}" for name in sources()} <= inside
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md"} <= inside
    assert not {name for name in inside if name.startswith(("tests/", "recipes/", "docs/")) or name.endswith(NAME)}


def test_the_wheel_runs_where_nothing_can_be_compiled(release, fresh, page):
    environment = fresh(release.wheel)
    assert environment.run("regard", "--version").stdout == f"{regard.__version__}\n"
    written = environment.run(*PROMPT)
    assert (
        written.stdout.strip()
        == regard.load("toy-gpt").generate("The old king", max_new_tokens=3, temperature=0).strip()
    )
    assert written.stderr == "", "the engine is there, and nothing is remarked"
    facts = environment.run("regard", "env").stdout
    assert re.search(r"^native engine +(avx2|portable)$", facts, re.M)
    assert re.search(r"^torch +none$", facts, re.M)

    address = page(environment)
    with urllib.request.urlopen(address, timeout=20) as answer:
        html = answer.read().decode()
    linked = re.findall(r'(?:src|href)="([^":]+\.(?:js|css))"', html)
    assert linked
    for file in linked:
        with urllib.request.urlopen(address + file.removeprefix("/"), timeout=20) as answer:
            assert answer.read()


def test_the_sdist_installs_without_a_compiler(without_compiler, fresh):
    """The package without its engine: numpy computes the same, and says that it does."""
    inside = {name for name in contents(without_compiler) if ".dist-info/" not in name}
    assert inside == sources()
    written = fresh(without_compiler).run(*PROMPT)
    assert (
        written.stdout.strip()
        == regard.load("toy-gpt").generate("The old king", max_new_tokens=3, temperature=0).strip()
    )
    assert "The native engine is not used" in written.stderr
