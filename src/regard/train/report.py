"""A picture of a run: loss, learning rate, gradient norms per layer, entropy of attention per head.

In: a run's `metrics.jsonl`. Out: `report.svg` (or .png), and the same facts in a few lines of text.
"""

import json
from pathlib import Path
from typing import Any

from regard.errors import NotFound, TaskError, clean

FORMATS = (".svg", ".png", ".pdf")


def read_metrics(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    if not path.exists():
        raise NotFound(f"{run} has no metrics.jsonl, so it is not a training run.")
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:  # the last line of a killed run may be half a line
            continue
    return lines


def draw(run: Path, out: Path | None = None) -> Path:
    path = out or run / "report.svg"
    if path.suffix.lower() not in FORMATS:
        raise TaskError(f"{path} has no ending that says what to draw: it can be {', '.join(FORMATS)}.")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = read_metrics(run)
    steps = [line for line in lines if "lr" in line]
    evals = [line for line in lines if "eval" in line]
    entropies = [line for line in lines if "entropy" in line]
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    _losses(axes[0, 0], steps, evals)
    _line(axes[0, 1], steps, "lr", "learning rate")
    _norms(axes[1, 0], steps)
    _entropy(figure, axes[1, 1], entropies)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(clean(run.name).encode(errors="replace").decode(), parse_math=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path


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
        values = [s["layer_norms"][layer] for s in steps if "layer_norms" in s]
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
    steps = [line for line in lines if "lr" in line]
    evals = [line for line in lines if "eval" in line]
    if not steps:
        return f"{run}: nothing has been logged yet."
    told = [f"{run}: {steps[-1]['step']} steps, training loss {steps[-1]['loss']:.4f}"]
    if evals:
        facts = ", ".join(f"{name} {value:.4g}" for name, value in evals[-1]["eval"].items())
        told.append(f"held out at step {evals[-1]['step']}: {facts}")
    return "\n".join(told)
