"""A run in one file: the page, its style, its modules and the run's numbers, to open from disk without a network.

In: a `Trace`. Out: an HTML file, or a frame for a notebook. The page's modules go in as they are, each as a data: URL
behind its bare name in an import map. The Content-Security-Policy lets those run and forbids every connection. Texts and
names of the run lie in one block of JSON in which no "<" is left, so nothing in them can become markup.

Sizes, measured: toy-gpt on 16 tokens 3.6 MB and toy-translate on 10 + 10 tokens 3.2 MB, with every number and weight
exact; a GPT-2 of 124 million parameters on 64 tokens 9.6 MB, rounded and without its weights (`contents` says how). Of this
the page is 0.4 MB.
"""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from regard.errors import TaskError
from regard.explain.contents import contents
from regard.explain.precomputed import Progress
from regard.explain.trace import Trace
from regard.explain.why import plain
from regard.store.atomic import replace_file

PAGE = Path(__file__).parent.parent / "serve" / "page"
POLICY = (
    "default-src 'none'; script-src data: {scripts}; style-src {styles}; img-src data: blob:; connect-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
STYLE = re.compile(r'<link rel="stylesheet" href="/page/([^"]*)" />')
CHARSET = re.compile(r'<meta charset="utf-8" />')
SCRIPTS = re.compile(r'<script type="importmap">.*?</script>\s*<script type="module"[^>]*></script>', re.S)
MOST_FRAME = 12 << 20  # characters that a notebook is asked to keep
HEIGHT = 820  # of the frame, in pixels


def write_html(
    trace: Trace, path: Path, *, name: str | None = None, text: str | None = None, progress: Progress | None = None
) -> Path:
    """One file with the page and the run in it. name, text: what the model and its input are called, else as the run says.

    progress: hears how many heads of how many the model was run without, which takes most of the time.
    """
    if path.is_dir():
        raise TaskError(f"{path} is a directory; give the name of a file in it.")
    whole = page(trace, name=name, text=text, progress=progress)
    with replace_file(path) as file:
        file.write(whole.encode())
    return path


def frame(trace: Trace) -> str:
    """The same inside a frame of its own, for notebooks: its scripts see nothing of the notebook, nor it of them."""
    try:
        whole = page(trace, patient=False)
    except TaskError as error:
        return sentence(str(error))
    if len(whole) > MOST_FRAME:
        return sentence(
            f"This run takes {len(whole) / 1e6:.0f} MB, too much for a notebook; trace.html(path) writes it to a file."
        )
    style = f"width: 100%; height: {HEIGHT}px; border: 1px solid #dcd8cd; border-radius: 6px"
    title = html.escape(f"A run of {name_of(trace)} on {len(trace.tokens)} tokens", quote=True)
    attributes = f'sandbox="allow-scripts" title="{title}" style="{style}"'
    return f'<iframe {attributes} srcdoc="{html.escape(whole, quote=True)}"></iframe>'


def sentence(words: str) -> str:
    return f"<p>{html.escape(words)}</p>"


def page(
    trace: Trace,
    *,
    name: str | None = None,
    text: str | None = None,
    patient: bool = True,
    progress: Progress | None = None,
) -> str:
    """The whole file. patient: with what takes long to compute (see `contents`)."""
    whole = (PAGE / "index.html").read_text(encoding="utf-8")
    styles = {file: (PAGE / file).read_text(encoding="utf-8") for file in STYLE.findall(whole)}
    maps = json.dumps({"imports": modules()})
    start = 'import "regard/main.js";'
    policy = POLICY.format(scripts=f"{hashed(maps)} {hashed(start)}", styles=" ".join(map(hashed, styles.values())))
    tell = progress or (lambda done, total: None)
    data = in_markup(contents(trace, name or name_of(trace), text or text_of(trace), patient=patient, progress=tell))
    scripts = (
        f'<script type="importmap">{maps}</script>\n'
        f'    <script type="application/json" id="regard-data">{data}</script>\n'
        f'    <script type="module">{start}</script>'
    )
    whole = STYLE.sub(lambda link: f"<style>{styles[link[1]]}</style>", whole)
    whole = one(SCRIPTS, whole, scripts)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}" />'
    return one(CHARSET, whole, f'<meta charset="utf-8" />\n    {meta}')


def modules() -> dict[str, str]:
    """Every module of the page behind its bare name, as it is."""
    files = sorted(PAGE.rglob("*.js"))
    return {f"regard/{file.relative_to(PAGE).as_posix()}": as_url(file.read_bytes()) for file in files}


def as_url(code: bytes) -> str:
    return f"data:text/javascript;charset=utf-8;base64,{base64.b64encode(code).decode()}"


def hashed(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def one(pattern: re.Pattern[str], whole: str, instead: str) -> str:
    found, count = pattern.subn(lambda match: instead, whole)
    if count != 1:
        raise TaskError(f"The page's index.html has {count} places for {pattern.pattern!r}, and a file needs one.")
    return found


def in_markup(value: Any) -> str:
    """JSON that may stand inside a script element: without "<", no end tag, comment or script can begin in it."""
    text = json.dumps(finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def finite(value: Any) -> Any:
    """JSON has no infinite numbers: they are written as words, as the server writes them."""
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def name_of(trace: Trace) -> str:
    return trace.run.name or trace.net.spec.family


def text_of(trace: Trace) -> str:
    """What was given; else the text again from its ids, or their numbers where there is no tokenizer."""
    if trace.run.text:
        return trace.run.text
    words = trace.tokenizer.decode(trace.ids) if trace.tokenizer else ""
    return words.strip() or " ".join(trace.tokens)
