"""The documentation as a site: `python docs/site/build_site.py [build]` (`make docs`) writes build/site.

In: docs/, the docstrings, `regard --help`, the notebooks. Out: HTML that loads nothing from other hosts. What follows from
something else is made here and not kept: the help of every verb, the list of public names, a page for each notebook and for
a few Markdown files from elsewhere in the repository. All pages are collected in build/docs, where Zensical finds them
(mkdocs.yml says how they are shown). At the end every link and every anchor is followed.
"""

import html.parser
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent)]

from notebooks import NOTEBOOKS, as_page, read  # noqa: E402

ELSEWHERE = {"CHANGELOG.md": "changes.md", "recipes/real/README.md": "real-data.md"}
PAGE_OF = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in NOTEBOOKS} | ELSEWHERE
HELP = "<!-- regard --help -->"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def main(to: Path) -> int:
    """Make the site in `to`/site; the exit code."""
    shutil.rmtree(to / "docs", ignore_errors=True)
    shutil.copytree(ROOT / "docs", to / "docs", ignore=shutil.ignore_patterns("*.py", "*.yml", "__pycache__"))
    shutil.copy(Path(__file__).with_name("mkdocs.yml"), to)
    for source, page, text in pages():
        place = to / "docs" / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(with_links(filled(text), source, page))
    zensical = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--clean"]
    built = subprocess.run(zensical, cwd=to, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False)
    wrong = list(broken(to / "site")) if built.returncode == 0 else ["The site was not built."]
    print("\n".join(wrong) or to / "site" / "index.html", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def pages() -> Iterator[tuple[str, str, str]]:
    """Where each page comes from, what it is called, and its text."""
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").as_posix()
        yield f"docs/{name}", name, path.read_text()
    for path in NOTEBOOKS:
        yield f"examples/{path.name}", f"examples/{path.stem}.md", as_page(read(path))
    for source, page in ELSEWHERE.items():
        yield source, page, (ROOT / source).read_text()


def filled(text: str) -> str:
    """A page with what belongs at its markers."""
    text = re.sub(r"<!-- every public name of ([\w.]+) -->", lambda marker: public_names(marker[1]), text)
    return text.replace(HELP, cli_reference()) if HELP in text else text


def with_links(text: str, source: str, page: str) -> str:
    """Links that work where one reads the repository, as they work on the site. A source file is named and not linked."""

    def on_site(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if "://" in target or (path.startswith("docs/") and source.startswith("docs/")):
            return link[0]
        if path not in PAGE_OF and not path.startswith("docs/") and (ROOT / path).exists():
            return words
        found = PAGE_OF.get(path, path.removeprefix("docs/"))
        return f"[{words}]({posixpath.relpath(found, posixpath.dirname(page) or '.')}{anchor})"

    return LINK.sub(on_site, text)


def public_names(module: str) -> str:
    """References to what a module offers, but for what has a page of its own: functions first."""
    names = [name for name in import_module(module).__all__ if name not in ("Model", "RegardError")]
    return "\n\n".join(f"::: {module}.{name}" for name in sorted(names, key=lambda name: (name[0].isupper(), name)))


def cli_reference() -> str:
    from typer.testing import CliRunner

    from regard.cli.main import VERBS, app

    command = app(*VERBS)

    def help_of(*verb: str) -> str:
        result = CliRunner().invoke(command, [*verb, "--help"], prog_name="regard")
        if result.exit_code:
            raise result.exception or RuntimeError(result.output)
        return result.stdout.strip()

    parts = [f"```text\n{help_of()}\n```"]
    for verb in VERBS:
        usage, about, *sections = help_of(verb).split("\n\n")
        parts += [f"## regard {verb}", " ".join(about.split())]
        if sections[-1].startswith("Examples:"):
            examples = "\n".join(line.strip() for line in sections.pop().splitlines()[1:])
            parts.append(f"```sh\n{examples}\n```")
        parts.append("```text\n" + "\n\n".join([usage, *sections]) + "\n```")
    return "\n\n".join(parts)


# ── links ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.loads, self.anchors = set[str](), set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value for name, value in attrs if value}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        if tag == "a" and "href" in has:
            self.links.add(has["href"])
        elif tag == "link" and has.get("rel") not in ("canonical", "prev", "next") and "href" in has:
            self.loads.add(has["href"])
        elif "src" in has and not has["src"].startswith("data:"):
            self.loads.add(has["src"])


def broken(site: Path) -> Iterator[str]:
    """A sentence for each link that leads nowhere and each thing that is loaded from another host."""
    found = {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in found.items():
        here = path.relative_to(site)
        yield from (f"{here} loads {url} from another host." for url in page.loads if urlsplit(url).netloc)
        for url in page.links | page.loads:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                yield f"{here} links to {url}, which is not there."
            elif parts.fragment and target in found and unquote(parts.fragment) not in found[target].anchors:
                yield f"{here} links to {url}, but that page has no such heading."


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build"))
