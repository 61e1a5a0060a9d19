"""Training runs as the page replays them: which there are, what they logged, and where each head looked at every step.

Only the runs that were named when the server started, or that lie in ./runs, can be asked for. Directories are read anew
each time, so that a run can be watched while it trains.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from regard.errors import DataError, NotFound, RegardError, quoted
from regard.modelfile import SMALL, read_file
from regard.serve.answer import Json
from regard.serve.slices import send_slice
from regard.train.metrics import read_metrics

if TYPE_CHECKING:
    from regard.store.safetensors import Checkpoint

FRAME = re.compile(r"step-(\d+)\.safetensors")
MOST_METRICS_BYTES = 64 << 20
MOST_LINES = 4000  # of metrics; a longer run is thinned

router = APIRouter(prefix="/api")


class Runs:
    """Runs by name. `given` are directories; `beside` is a directory whose children that look like runs are offered too."""

    def __init__(self, given: Sequence[Path] = (), beside: Path | None = None) -> None:
        self.given, self.beside = [Path(path) for path in given], beside
        for path in self.given:
            if not is_run(path):
                raise NotFound(f"{path} is not a training run: it has neither metrics.jsonl nor frames.")

    def all(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        try:
            lying = sorted(self.beside.iterdir()) if self.beside is not None and self.beside.is_dir() else []
        except OSError:  # not ours to read
            lying = []
        for path in [*self.given, *(each for each in lying if is_run(each))]:
            if any(path.resolve() == other.resolve() for other in found.values()):
                continue
            plain = path.resolve().name
            name, n = plain, 2
            while name in found:
                name, n = f"{plain}-{n}", n + 1
            found[name] = path
        return found

    def path(self, name: str) -> Path:
        found = self.all()
        if name not in found:
            known = f"there are {', '.join(found)}" if found else "start the server with --run"
            raise NotFound(f"There is no training run {quoted(name)}; {known}.")
        return found[name]


def is_run(path: Path) -> bool:
    return path.is_dir() and ((path / "metrics.jsonl").is_file() or (path / "frames").is_dir())


def steps_of(run: Path) -> list[int]:
    """The steps that have a frame."""
    folder = run / "frames"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(found[1]) for name in names if (found := FRAME.fullmatch(name)))


def probes_of(run: Path) -> list[dict[str, Any]]:
    file = run / "frames" / "probes.json"
    if not file.exists():
        return []
    try:
        probes: list[dict[str, Any]] = json.loads(read_file(file, SMALL, DataError))
    except (ValueError, RecursionError):
        probes = []
    if not isinstance(probes, list) or not probes or not all(isinstance(probe, dict) for probe in probes):
        raise DataError(f"{run}: frames/probes.json cannot be read.")
    return probes


def frame(run: Path, step: int) -> "Checkpoint":
    from regard.store.safetensors import open_checkpoint

    path = run / "frames" / f"step-{step:06d}.safetensors"
    if not path.is_file():
        raise NotFound(f"The run {run.name} has no frame of step {step}.")
    return open_checkpoint(path)


def nodes_of(run: Path, steps: list[int]) -> list[dict[str, Any]]:
    """What a frame holds: probe, node and shape of each."""
    if not steps:
        return []
    held = frame(run, steps[-1])
    split = [(name.partition("."), held.shape(name)) for name in held.names]
    written = [each for each in split if each[0][0].isdecimal()]
    return [{"probe": int(probe), "node": node, "shape": list(shape)} for (probe, _, node), shape in written]


def thinned(lines: list[dict[str, Any]], most: int = MOST_LINES) -> list[dict[str, Any]]:
    """Every evaluation and look at the probes, and as many of the plain steps as fit, evenly, with the last."""
    plain = [i for i, line in enumerate(lines) if "eval" not in line and "entropy" not in line]
    every = -(-len(plain) // max(1, most - (len(lines) - len(plain))))
    if every <= 1:
        return lines
    kept = {*plain[::every], plain[-1]} | (set(range(len(lines))) - set(plain))
    return [lines[i] for i in sorted(kept)]


def runs_of(request: Request) -> Runs:
    runs: Runs = request.app.state.runs
    return runs


Given = Annotated[Runs, Depends(runs_of)]


@router.get("/runs")
def list_runs(runs: Given) -> Response:
    return Json({"runs": [told(name, path) for name, path in runs.all().items()]})


def told(name: str, path: Path) -> dict[str, Any]:
    """A run's frames; of a damaged one only what is wrong with it, so that the others can still be seen."""
    try:
        steps = steps_of(path)
        return {"name": name, "steps": steps, "probes": probes_of(path), "nodes": nodes_of(path, steps)}
    except (RegardError, OSError) as problem:
        sentence = str(problem) if isinstance(problem, RegardError) else f"{path} cannot be read: {problem.strerror}."
        return {"name": name, "steps": [], "probes": [], "nodes": [], "error": sentence}


@router.get("/run")
def metrics(runs: Given, name: str) -> Response:
    path = runs.path(name)
    file = path / "metrics.jsonl"
    if file.is_file() and file.stat().st_size > MOST_METRICS_BYTES:
        raise DataError(f"The run {name} has logged more than {MOST_METRICS_BYTES / 1e6:.0f} MB, too much to show.")
    return Json({"name": name, "lines": thinned(read_metrics(path)) if file.is_file() else []})


@router.get("/frame")
def one_frame(
    runs: Given,
    run: str,
    step: Annotated[int, Query(ge=0, le=10**12)],
    node: str,
    probe: Annotated[int, Query(ge=0, le=10**6)] = 0,
    at: str | None = None,
) -> Response:
    held, name = frame(runs.path(run), step), f"{probe}.{node}"
    if name not in held.names:
        raise NotFound(f"The frame of step {step} has no {quoted(node)} of probe {probe}.")
    return send_slice(lambda: held.tensor(name), held.shape(name), at)
