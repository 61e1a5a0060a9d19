"""A training run, from its settings to its directory; and how well a model does what it was trained for."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.api.model import Model
    from regard.model.transformer import Network
    from regard.train.settings import TrainSettings


def train_settings(task: str, file: Path | None, given: Mapping[str, Any], resume: bool = False) -> "TrainSettings":
    """The settings of a run: what was given, over a TOML file, over the task's defaults; to resume, over the run's own."""
    from regard.train.settings import settings_from
    from regard.train.task import task_named

    kind, out = task_named(task), given.get("out")
    own = Path(out if isinstance(out, str | Path) else "") / "run.toml"
    return settings_from(task, kind.defaults, own if resume and file is None and own.exists() else file, given)


def train_with(settings: "TrainSettings", *, resume: bool = False, **watchers: Any) -> Path:
    """Train; the run's directory. `tell` hears of every step, `progress` of the tokenising."""
    from regard.train.start import train

    return train(settings, resume=resume, write=write_targets, **watchers)


def evaluate(
    model: "Model", files: list[str], task: str | None, most: int | None, progress: Any, given: Mapping[str, Any]
) -> dict[str, float]:
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
        write=write_targets,
    )


def write_targets(net: "Network", sources: list[list[int]], room: int) -> list[list[int]]:
    """What an encoder-decoder in training writes for each source, with four beams."""
    from regard.engine.decode import Translator
    from regard.engine.generate import search
    from regard.engine.sample import RowState
    from regard.engine.settings import Settings
    from regard.model.transformer import Seq2Seq

    assert isinstance(net, Seq2Seq)
    start_id = net.spec.start_id or 0
    settings = Settings(num_beams=4, eos_token_id=net.spec.eos_ids, seed=0)
    rows = [RowState(settings, [start_id], limit=room) for _ in sources]
    stepper = Translator(net, sources, [[start_id]] * len(sources), room, lay_out=False)
    return [[i for i in best[0].ids if i not in net.spec.eos_ids] for best in search(stepper, rows)]
