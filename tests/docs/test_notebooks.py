"""The notebooks of examples/ run from a new kernel and print what they are kept with."""

import sys
from pathlib import Path

import pytest

from printed import differences

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))

from notebooks import NOTEBOOKS, printed, read, run, tags  # noqa: E402


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_prints_what_it_is_kept_with(path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kept, made = read(path), run(read(path))
    for before, after in zip(kept.cells, made.cells, strict=True):
        if before.cell_type == "code" and not {"large", "varies"} & {*tags(before)}:
            assert not differences(printed(after), printed(before)), before.source


def test_notebooks_are_small_and_carry_no_trace_of_a_machine():
    assert len(NOTEBOOKS) == 4
    for path in NOTEBOOKS:
        assert path.stat().st_size < 100_000, f"{path.name}: a cell's output is too large to keep; tag it `large`"
        assert "/tmp/" not in path.read_text()
        for cell in read(path).cells:
            assert cell.cell_type == "markdown" or cell.execution_count is None
            assert "large" not in tags(cell) or not cell.outputs
