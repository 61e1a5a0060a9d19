"""A picture of a run: loss, learning rate, gradient norms per layer, entropy of attention per head.

In: a run's `metrics.jsonl`. Out: `report.svg` (or .png), and the same facts in a few lines of text.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import DataError, NotFound

MOST_LINE = 1 << 20  # bytes of one line; what a run logs at a time has some thousands
TABLES = ("eval", "layer_norms", "entropy")  # fields that hold numbers by name, the last a list of them for each


def read_metrics(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise NotFound(f"{run} has no metrics.jsonl, so it is not a training run.")
    return [line for _, line in logged(path)]


def logged(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Lines as they stand and as they are understood. What a run cannot have written is passed over: the last line of a
    killed run may be half a line, and a disk or an editor may have left anything."""
    try:
        with path.open("rb") as file:
            while text := file.readline(MOST_LINE):
                whole = text
                while len(text) == MOST_LINE and not text.endswith(b"\n"):  # the rest of a line that is too long
                    text, whole = file.readline(MOST_LINE), b""
                if (line := understood(whole)) is not None:
                    yield whole, line
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror}.") from None


def understood(text: bytes) -> dict[str, Any] | None:
    """A line's step and all of its fields that are numbers or tables of numbers; None if it has no step."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or type(said.get("step")) is not int or not 0 <= said["step"] < 1 << 53:
        return None
    found = {}
    for name, value in said.items():
        if name in TABLES and isinstance(value, dict):
            fits = is_row if name == "entropy" else is_number
            value = {key: x for key, x in value.items() if fits(x)}
            if not value:
                continue
        elif name in TABLES or not is_number(value):
            continue
        found[name] = value
    return found


def is_number(x: Any) -> bool:
    return isinstance(x, float) or (type(x) is int and x.bit_length() < 1000)  # a larger one is no float


def is_row(x: Any) -> bool:
    return isinstance(x, list) and bool(x) and all(map(is_number, x))


def draw(run: Path, out: Path | None = None) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = read_metrics(run)
    steps, evals = trained(lines), judged(lines)
    entropies = [line for line in lines if "entropy" in line]
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    _losses(axes[0, 0], steps, evals)
    _line(axes[0, 1], steps, "lr", "learning rate")
    _norms(axes[1, 0], steps)
    _entropy(figure, axes[1, 1], entropies)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(run.name)
    path = out or run / "report.svg"
    figure.savefig(path)
    plt.close(figure)
    return path


def trained(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "lr" in line and "loss" in line]


def judged(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "loss" in line.get("eval", {})]


def _losses(axis: Any, steps: list[dict[str, Any]], evals: list[dict[str, Any]]) -> None:
    axis.plot([s["step"] for s in steps], [s["loss"] for s in steps], lw=0.8, color="#7a8da8", label="training")
    axis.plot(
        [e["step"] for e in evals], [e["eval"]["loss"] for e in evals], "o-", ms=3, color="#d95f02", label="held out"
    )
    axis.set(title="loss", xlabel="step")
    if steps or evals:
        axis.legend(frameon=False)


def _line(axis: Any, steps: list[dict[str, Any]], key: str, title: str) -> None:
    axis.plot([s["step"] for s in steps], [s[key] for s in steps], color="#1b6ca8")
    axis.set(title=title, xlabel="step")


def _norms(axis: Any, steps: list[dict[str, Any]]) -> None:
    """One line per layer, from dark (first) to light (last)."""
    import matplotlib

    layers = list(steps[-1].get("layer_norms", {})) if steps else []
    colours = matplotlib.colormaps["viridis"]
    for i, layer in enumerate(layers):
        shade = colours(i / max(1, len(layers) - 1) * 0.9)
        values = [s["layer_norms"].get(layer, math.nan) for s in steps if "layer_norms" in s]
        axis.plot([s["step"] for s in steps if "layer_norms" in s], values, lw=0.9, color=shade, label=layer)
    axis.set(title="gradient norm per layer", xlabel="step", yscale="log" if layers else "linear")
    if layers:
        axis.legend(frameon=False, fontsize=7, ncols=2)


def _entropy(figure: Any, axis: Any, lines: list[dict[str, Any]]) -> None:
    """The last probe's: rows are layers, columns are heads."""
    axis.set_title("attention entropy per head, bits")
    if not lines:
        axis.text(0.5, 0.5, "no probes were given", ha="center", va="center", color="#888", transform=axis.transAxes)
        axis.set_axis_off()
        return
    last = lines[-1]["entropy"]
    width = max(len(heads) for heads in last.values())
    table = [[*heads, *[float("nan")] * (width - len(heads))] for heads in last.values()]
    image = axis.imshow(table, aspect="auto", cmap="cividis")
    axis.set_yticks(range(len(last)), list(last), fontsize=7)
    axis.set(xlabel="head")
    figure.colorbar(image, ax=axis)


def summarise(run: Path) -> str:
    lines = read_metrics(run)
    steps, evals = trained(lines), judged(lines)
    if not steps:
        return f"{run}: nothing has been logged yet."
    told = [f"{run}: {steps[-1]['step']} steps, training loss {steps[-1]['loss']:.4f}"]
    if evals:
        facts = ", ".join(f"{name} {value:.4g}" for name, value in evals[-1]["eval"].items())
        told.append(f"held out at step {evals[-1]['step']}: {facts}")
    return "\n".join(told)
