"""Training runs for the page to replay: the list of runs, their metrics, and the attention of each head at every step.

Only runs that were named when the server started, or that are in ./runs, can be requested. Directories are read again for
each request, so that a run can be followed while it trains.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from regard.errors import DataError, NotFound, RegardError, quoted
from regard.page.json_response import JsonResponse
from regard.page.tensor_slices import send_slice
from regard.safe_open import SMALL, BadJSON, parse_json, read_file
from regard.train.metrics import read_metrics

if TYPE_CHECKING:
    from regard.store.safetensors import Checkpoint

FRAME = re.compile(r"step-(\d+)\.safetensors")
MAX_METRICS_BYTES = 64 << 20
MAX_LINES = 4000  # of metrics; those of a longer run are thinned out

router = APIRouter(prefix="/api")


class TrainingRuns:
    """Training runs by name: the directories `paths`, and those subdirectories of `folder` that are runs."""

    def __init__(self, paths: Sequence[Path] = (), folder: Path | None = None) -> None:
        self.paths, self.folder = [Path(path) for path in paths], folder
        for path in self.paths:
            if not is_run(path):
                raise NotFound(f"{path} is not a training run: it has neither metrics.jsonl nor frames.")

    def all(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        try:
            children = sorted(self.folder.iterdir()) if self.folder is not None and self.folder.is_dir() else []
        except OSError:  # no permission
            children = []
        for path in [*self.paths, *(child for child in children if is_run(child))]:
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
        probes: list[dict[str, Any]] = parse_json(read_file(file, SMALL, DataError))
    except BadJSON:
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
    """The tensors of the last frame: probe, node and shape of each."""
    if not steps:
        return []
    tensors = frame(run, steps[-1])
    split = [(name.partition("."), tensors.shape(name)) for name in tensors.names]
    nodes = [each for each in split if each[0][0].isdecimal()]
    return [{"probe": int(probe), "node": node, "shape": list(shape)} for (probe, _, node), shape in nodes]


def thinned(lines: list[dict[str, Any]], limit: int = MAX_LINES) -> list[dict[str, Any]]:
    """Every evaluation and every line with probes, and as many of the plain steps as fit, evenly spaced, with the last."""
    plain = [i for i, line in enumerate(lines) if "eval" not in line and "entropy" not in line]
    every = -(-len(plain) // max(1, limit - (len(lines) - len(plain))))
    if every <= 1:
        return lines
    kept = {*plain[::every], plain[-1]} | (set(range(len(lines))) - set(plain))
    return [lines[i] for i in sorted(kept)]


def get_runs(request: Request) -> TrainingRuns:
    runs: TrainingRuns = request.app.state.runs
    return runs


Runs = Annotated[TrainingRuns, Depends(get_runs)]


@router.get("/runs")
def list_runs(runs: Runs) -> Response:
    return JsonResponse({"runs": [run_json(name, path) for name, path in runs.all().items()]})


def run_json(name: str, path: Path) -> dict[str, Any]:
    """A run's frames; for a damaged run the error, so that the others can still be listed."""
    try:
        steps = steps_of(path)
        return {"name": name, "steps": steps, "probes": probes_of(path), "nodes": nodes_of(path, steps)}
    except (RegardError, OSError) as problem:
        message = str(problem) if isinstance(problem, RegardError) else f"{path} cannot be read: {problem.strerror}."
        return {"name": name, "steps": [], "probes": [], "nodes": [], "error": message}


@router.get("/run")
def metrics(runs: Runs, name: str) -> Response:
    path = runs.path(name)
    file = path / "metrics.jsonl"
    if file.is_file() and file.stat().st_size > MAX_METRICS_BYTES:
        raise DataError(f"The run {name} has logged more than {MAX_METRICS_BYTES / 1e6:.0f} MB, too much to show.")
    return JsonResponse({"name": name, "lines": thinned(read_metrics(path)) if file.is_file() else []})


@router.get("/frame")
def one_frame(
    runs: Runs,
    run: str,
    step: Annotated[int, Query(ge=0, le=10**12)],
    node: str,
    probe: Annotated[int, Query(ge=0, le=10**6)] = 0,
    at: str | None = None,
) -> Response:
    tensors, name = frame(runs.path(run), step), f"{probe}.{node}"
    if name not in tensors.names:
        raise NotFound(f"The frame of step {step} has no {quoted(node)} of probe {probe}.")
    return send_slice(lambda: tensors.array(name), tensors.shape(name), at)
