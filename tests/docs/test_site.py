"""`make docs`: the site is built without a warning, its links lead somewhere, and nothing of it comes from another host."""

import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.cli.main import VERBS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))

from build_site import broken, pages  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    to = tmp_path_factory.mktemp("build")
    make = [sys.executable, "docs/site/build_site.py", str(to)]
    made = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return to / "site"


def test_every_page_is_built_and_in_the_navigation(site):
    navigation = (ROOT / "docs" / "site" / "mkdocs.yml").read_text()
    names = [name for _, name, _ in pages()]
    assert {"walk.md", "api/trace.md", "examples/patching.md", "changes.md"} <= {*names}
    for name in names:
        assert (site / name).with_suffix(".html").exists()
        assert f"- {name}\n" in navigation, f"{name} is not in the navigation"


def test_every_public_name_is_described(site):
    pages = "".join(path.read_text() for path in (site / "api").glob("*.html"))
    for name in regard.__all__:
        assert f'.{name}"' in pages, name
    for name in ("generate", "trace", "save"):
        assert f'id="regard.api.model.Model.{name}"' in pages


def test_every_verb_is_described_by_its_own_help(site):
    page = (site / "cli.html").read_text()
    for verb in VERBS:
        assert f'id="regard-{verb}"' in page


def test_a_broken_link_and_a_foreign_script_are_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h2 id="here"></h2><a href="b.html#there"></a><a href="#here"></a><a href="c.html"></a>'
    )
    (tmp_path / "b.html").write_text(
        '<script src="https://example.com/x.js"></script><a href="https://example.com"></a>'
    )
    said = sorted(broken(tmp_path))
    assert len(said) == 3
    assert "no such heading" in said[0]
    assert "c.html, which is not there" in said[1]
    assert "example.com/x.js from another host" in said[2]
