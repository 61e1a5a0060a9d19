"""The notebooks of examples/: run them, and turn them into pages.

They are kept with their outputs, so that they can be read where nothing runs (on the site, in a code browser), and a test
runs them again and compares. Cells tagged `large` are kept without theirs; those tagged `varies` give other numbers on
other processors. After a change: `python docs/site/notebooks.py` runs all of them and writes what they print.
"""

import base64
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def read(path: Path) -> NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["path"] = path.name
    return notebook


def tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def run(notebook: NotebookNode, timeout: int = 300) -> NotebookNode:
    """The notebook with the outputs of a new kernel; a cell that fails raises."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    made = nbformat.from_dict(notebook)
    with TemporaryDirectory() as sockets:  # which are files: nothing listens on a port
        local = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        NotebookClient(made, config=local, kernel_name="python3", timeout=timeout, record_timing=False).execute()
    return made


def printed(cell: NotebookNode) -> str:
    """What a cell printed and showed, as text."""
    return "".join(o.text if o.output_type == "stream" else o.data.get("text/plain", "") + "\n" for o in cell.outputs)


def write(path: Path) -> None:
    made = run(read(path))
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [] if "large" in tags(cell) else [kept(output) for output in cell.outputs]
    made.metadata = nbformat.from_dict(METADATA)
    nbformat.write(made, path)


def kept(output: NotebookNode) -> NotebookNode:
    """An output without the count of its execution."""
    return nbformat.from_dict({**output, **({"execution_count": None} if "execution_count" in output else {})})


def as_page(notebook: NotebookNode) -> str:
    """Markdown: text as it is, code in blocks, and what it printed below it."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                encoded = base64.b64encode(data["image/svg+xml"].encode()).decode()
                parts.append(f'<img alt="What this cell draws" width="420" src="data:image/svg+xml;base64,{encoded}">')
            else:
                parts.append(f"```output\n{(output.get('text') or data['text/plain']).rstrip()}\n```")
    title, *rest = parts
    heading, _, intro = title.partition("\n")
    note = f"*The notebook itself is `examples/{notebook.metadata['path']}`; here are its cells and what they print.*"
    return "\n\n".join([heading, note, intro.strip(), *rest]) + "\n"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else NOTEBOOKS:
        print(path.name)
        write(path)
