"""Training from Python: the settings of a run, the run, and the evaluation of a model on its task."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import require

if TYPE_CHECKING:
    from regard.api.model import Model
    from regard.model.build import Network
    from regard.train.settings import TrainSettings


def train_settings(task: str, file: Path | None, given: Mapping[str, Any], resume: bool = False) -> "TrainSettings":
    """The settings of a run: `given` overrides a TOML file, which overrides the task's defaults; `resume` uses run.toml."""
    require("torch", "Training")
    from regard.train.settings import settings_from
    from regard.train.task import task_named

    kind, out = task_named(task), given.get("out")
    own = Path(out if isinstance(out, str | Path) else "") / "run.toml"
    return settings_from(task, kind.defaults, own if resume and file is None and own.exists() else file, given)


def train_with(settings: "TrainSettings", *, resume: bool = False, **callbacks: Any) -> Path:
    """Train and return the run's directory. Callbacks: `tell`, called at every step, and `progress`, while tokenizing."""
    for package in ("torch", "matplotlib", *(["sacrebleu"] if settings.task == "translate" else [])):
        require(package, "Training")  # now, and not when the run is evaluated or plotted
    from regard.train.training_run import train

    return train(settings, resume=resume, generate=write_targets, **callbacks)


def evaluate(
    model: "Model", files: list[str], task: str | None, most: int | None, progress: Any, given: Mapping[str, Any]
) -> dict[str, float]:
    require("torch", "Evaluating")
    from regard.train.evaluate import evaluate as evaluate_network
    from regard.train.settings import check_names

    check_names(given)
    return evaluate_network(
        model.net,
        model.opened,
        model.tokenizer,
        files,
        task=task,
        most=most,
        given={name: value for name, value in given.items() if value is not None},
        progress=progress,
        generate=write_targets,
    )


def write_targets(net: "Network", sources: list[list[int]], capacity: int) -> list[list[int]]:
    """The target that an encoder-decoder in training generates for each source, with four beams."""
    from regard.engine.generate import search
    from regard.engine.reference_decoder import ReferenceTranslator
    from regard.engine.sampling import RowState
    from regard.engine.settings import Settings
    from regard.model.build import Seq2Seq

    assert isinstance(net, Seq2Seq)
    start_id = net.spec.start_id or 0
    settings = Settings(num_beams=4, eos_token_id=net.spec.eos_ids, seed=0)
    rows = [RowState(settings, [start_id], limit=capacity) for _ in sources]
    decoder = ReferenceTranslator(net, sources, [[start_id]] * len(sources), capacity, fast_layout=False)
    return [[i for i in best[0].ids if i not in net.spec.eos_ids] for best in search(decoder, rows)]
