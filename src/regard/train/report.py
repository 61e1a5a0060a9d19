"""A figure of a run: loss, learning rate, gradient norms per layer, entropy of attention per head.

In: a run's `metrics.jsonl`. Out: `report.svg` (or .png, .pdf), and a summary in a few lines of text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, clean, require
from regard.train.metrics import read_metrics

Line = dict[str, Any]
NAN = float("nan")
MAX_NAMES = 60  # of layers in a legend; a thousand would be unreadable and take minutes to draw
IMAGE_SUFFIXES = (".svg", ".png", ".pdf")


def check_image_suffix(path: Path) -> None:
    if path.suffix.lower() not in IMAGE_SUFFIXES:
        raise ConfigError(f"{path} has no image file's extension; it can be {', '.join(IMAGE_SUFFIXES)}.")


def draw(run: Path, out: Path | None = None, lines: Sequence[Line] | None = None) -> Path:
    """Draw a run's figure; its path. `lines`: the run's metrics, if they have been read already."""
    lines, path = read_metrics(run) if lines is None else lines, out or run / "report.svg"
    check_image_suffix(path)
    matplotlib = require("matplotlib", "A picture of a run")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
    figure.suptitle(_plain(run.resolve().name))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as problem:
        raise ConfigError(f"{path} cannot be written: {problem.strerror}; choose another file with --out.") from problem
    finally:
        plt.close(figure)
    return path


def _plain(text: str) -> str:
    """A name for matplotlib: $ escaped, which would begin a formula, and lone surrogates replaced."""
    return clean(text).encode("utf-8", "replace").decode().replace("$", r"\$")


def _losses(axis: Any, steps: list[Line], evals: list[Line]) -> None:
    axis.plot([s["step"] for s in steps], [s["loss"] for s in steps], lw=0.8, color="#7a8da8", label="training")
    held_out = [e["eval"].get("loss", NAN) for e in evals]
    axis.plot([e["step"] for e in evals], held_out, "o-", ms=3, color="#d95f02", label="held out")
    axis.set(title="loss", xlabel="step")
    if steps or evals:
        axis.legend(frameon=False)


def _line(axis: Any, steps: list[Line], key: str, title: str) -> None:
    axis.plot([s["step"] for s in steps], [s[key] for s in steps], color="#1b6ca8")
    axis.set(title=title, xlabel="step")


def _norms(axis: Any, steps: list[Line]) -> None:
    """One line per layer, from dark (first) to light (last)."""
    import matplotlib

    layers = list(steps[-1].get("layer_norms", {})) if steps else []
    colours = matplotlib.colormaps["viridis"]
    for i, layer in enumerate(layers):
        shade = colours(i / max(1, len(layers) - 1) * 0.9)
        values = [s["layer_norms"].get(layer, NAN) for s in steps if "layer_norms" in s]
        axis.plot([s["step"] for s in steps if "layer_norms" in s], values, lw=0.9, color=shade, label=_plain(layer))
    axis.set(title="gradient norm per layer", xlabel="step", yscale="log" if layers else "linear")
    if 0 < len(layers) <= MAX_NAMES:
        axis.legend(frameon=False, fontsize=7, ncols=2)


def _entropy(figure: Any, axis: Any, lines: list[Line]) -> None:
    """The last recorded entropies: rows are layers, columns are heads."""
    axis.set_title("attention entropy per head, bits")
    if not lines:
        axis.text(0.5, 0.5, "no probes were given", ha="center", va="center", color="#888", transform=axis.transAxes)
        axis.set_axis_off()
        return
    last = lines[-1]["entropy"]
    width = max(len(heads) for heads in last.values())
    table = [[*heads, *[NAN] * (width - len(heads))] for heads in last.values()]
    image = axis.imshow(table, aspect="auto", cmap="cividis")
    if len(last) <= MAX_NAMES:
        axis.set_yticks(range(len(last)), [_plain(site) for site in last], fontsize=7)
    axis.set(xlabel="head")
    figure.colorbar(image, ax=axis)


def summarise(run: Path, lines: Sequence[Line]) -> str:
    """The last training loss and evaluation, as text."""
    steps = [line for line in lines if "lr" in line]
    evals = [line for line in lines if "eval" in line]
    if not steps:
        return f"{run}: nothing has been logged yet."
    lines_of_text = [f"{run}: {steps[-1]['step']} steps, training loss {steps[-1]['loss']:.4f}"]
    if evals:
        facts = ", ".join(f"{name} {value:.4g}" for name, value in evals[-1]["eval"].items())
        lines_of_text.append(f"held out at step {evals[-1]['step']}: {facts}")
    return "\n".join(lines_of_text)
