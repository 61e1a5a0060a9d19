"""Export of a trace as one HTML file: the page, its styles, its modules and the arrays, to open from disk offline.

In: a `Trace`. Out: an HTML file, or an iframe for a notebook. The page's modules are included unchanged, each as a data:
URL under its bare name in an import map. The Content-Security-Policy allows those and forbids every connection. All texts
and names of the run are in one block of JSON without "<", so nothing in them can become markup.

Measured sizes: toy-gpt on 16 tokens 3.6 MB and toy-translate on 10 + 10 tokens 3.2 MB, with every array and weight exact; a
GPT-2 of 124 million parameters on 64 tokens 9.6 MB, rounded and without its weights (see export_contents.py). Of this the
page is 0.4 MB.
"""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from regard.errors import TaskError
from regard.explain.trace import Trace
from regard.explain.why import plain_values
from regard.page import WEB
from regard.page.export_contents import contents
from regard.page.precomputed import Progress
from regard.store.atomic_write import replace_file

POLICY = (
    "default-src 'none'; script-src data: {scripts}; style-src {styles}; img-src data: blob:; connect-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
STYLE = re.compile(r'<link rel="stylesheet" href="/page/([^"]*)" />')
CHARSET = re.compile(r'<meta charset="utf-8" />')
SCRIPTS = re.compile(r'<script type="importmap">.*?</script>\s*<script type="module"[^>]*></script>', re.S)
MAX_FRAME = 12 << 20  # characters in the output of a notebook cell
HEIGHT = 820  # of the frame, in pixels


def write_html(
    trace: Trace, path: Path, *, name: str | None = None, text: str | None = None, progress: Progress | None = None
) -> Path:
    """Write one file with the page and the trace. name, text: the model's name and the input; by default the trace's own.

    progress: called with the heads ablated so far and all heads; ablation takes most of the time.
    """
    if path.is_dir():
        raise TaskError(f"{path} is a directory; give the name of a file in it.")
    document = page(trace, name=name, text=text, progress=progress)
    with replace_file(path) as file:
        file.write(document.encode())
    return path


def notebook_frame(trace: Trace) -> str:
    """The file in a sandboxed iframe, for notebooks: its scripts have no access to the notebook."""
    try:
        document = page(trace, ablate_large=False)
    except TaskError as error:
        return paragraph(str(error))
    if len(document) > MAX_FRAME:
        return paragraph(
            f"This run takes {len(document) / 1e6:.0f} MB, too much for a notebook; trace.html(path) writes it to a file."
        )
    style = f"width: 100%; height: {HEIGHT}px; border: 1px solid #dcd8cd; border-radius: 6px"
    title = html.escape(f"A run of {name_of(trace)} on {len(trace.tokens)} tokens", quote=True)
    attributes = f'sandbox="allow-scripts" title="{title}" style="{style}"'
    return f'<iframe {attributes} srcdoc="{html.escape(document, quote=True)}"></iframe>'


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def page(
    trace: Trace,
    *,
    name: str | None = None,
    text: str | None = None,
    ablate_large: bool = True,
    progress: Progress | None = None,
) -> str:
    """The HTML document. ablate_large: also ablate the heads of a large model, which takes long."""
    document = (WEB / "index.html").read_text(encoding="utf-8")
    styles = {file: (WEB / file).read_text(encoding="utf-8") for file in STYLE.findall(document)}
    maps = json.dumps({"imports": modules()})
    start = 'import "regard/main.js";'
    policy = POLICY.format(scripts=f"{hashed(maps)} {hashed(start)}", styles=" ".join(map(hashed, styles.values())))
    report = progress or (lambda done, total: None)
    name, text = name or name_of(trace), text or text_of(trace)
    data = in_markup(contents(trace, name, text, ablate_large=ablate_large, progress=report))
    scripts = (
        f'<script type="importmap">{maps}</script>\n'
        f'    <script type="application/json" id="regard-data">{data}</script>\n'
        f'    <script type="module">{start}</script>'
    )
    document = STYLE.sub(lambda link: f"<style>{styles[link[1]]}</style>", document)
    document = replace_one(SCRIPTS, document, scripts)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}" />'
    return replace_one(CHARSET, document, f'<meta charset="utf-8" />\n    {meta}')


def modules() -> dict[str, str]:
    """Bare name → data: URL, for every module of the page."""
    files = sorted(WEB.rglob("*.js"))
    return {f"regard/{file.relative_to(WEB).as_posix()}": as_url(file.read_bytes()) for file in files}


def as_url(code: bytes) -> str:
    return f"data:text/javascript;charset=utf-8;base64,{base64.b64encode(code).decode()}"


def hashed(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def replace_one(pattern: re.Pattern[str], document: str, replacement: str) -> str:
    replaced, count = pattern.subn(lambda match: replacement, document)
    if count != 1:
        raise TaskError(
            f"The page's index.html matches {pattern.pattern!r} {count} times; an export needs exactly one."
        )
    return replaced


def in_markup(value: Any) -> str:
    """JSON for the inside of a script element: without "<", no end tag, comment or script can begin in it."""
    text = json.dumps(plain_values(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def name_of(trace: Trace) -> str:
    return trace.run.name or trace.spec.family


def text_of(trace: Trace) -> str:
    """The input text, if known; otherwise decoded from its ids, or the ids if there is no tokenizer."""
    if trace.run.text:
        return trace.run.text
    text = trace.tokenizer.decode(trace.ids) if trace.tokenizer else ""
    return text.strip() or " ".join(trace.tokens)
