"""How good a model is on given text: the metrics of its task, without training."""

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.errors import TaskError
from regard.model.transformer import Network
from regard.store.open import Opened
from regard.text.tokenizer import Tokenizer
from regard.train.data import Blocks, Rows
from regard.train.encoding import ENCODINGS
from regard.train.order import Windows
from regard.train.prepare import Told, prepare
from regard.train.read import find_sources
from regard.train.recipe import PackedTokenizer
from regard.train.settings import TrainSettings
from regard.train.start import layout_of
from regard.train.task import task_named
from regard.train.task.base import Writer

log = logging.getLogger("regard")

TASK_OF_HEAD = {"mlm": "mlm", "classify": "classify", "tag": "tag"}


def task_of(opened: Opened) -> str:
    """What a model is for, by its head and its kind."""
    head, kind = opened.spec.head.kind, opened.spec.kind
    if head == "lm":
        return "translate" if kind == "encoder-decoder" else "lm"
    if head not in TASK_OF_HEAD:
        raise TaskError(f"{opened.path} has no head whose answers could be judged.")
    return TASK_OF_HEAD[head]


@torch.no_grad()
def evaluate(
    net: Network,
    opened: Opened,
    tokenizer: Tokenizer,
    data: Sequence[str],
    *,
    task: str | None = None,
    most: int | None = None,
    given: dict[str, Any] | None = None,
    progress: Told = lambda done, total: None,
    write: Writer | None = None,
) -> dict[str, float]:
    """The metrics on the examples in the files (at most `most` of them)."""
    name = task or task_of(opened)
    block = min(opened.spec.context, opened.spec.source_context, 512 if name == "lm" else 1024)
    settings = TrainSettings(name, tuple(data), block_size=block, batch_size=16, **(given or {}))
    labels = opened.spec.head.labels
    judge = task_named(name)(settings, tokenizer, labels)
    judge.write, judge.scored, layout = write, most or sys.maxsize, layout_of(settings)
    recipe: Any = ENCODINGS[name](PackedTokenizer(tokenizer), block, labels)
    with tempfile.TemporaryDirectory() as folder:
        columns = prepare(Path(folder) / "data", find_sources(data, layout), layout, recipe, progress=progress)
        if columns.left_out():
            log.warning("left out of the evaluation: %s", columns.left_out())
        examples: Rows | Blocks
        if name == "lm":
            windows = Windows(len(columns.stream("ids")), block)
            examples = Blocks(columns, 0, len(windows), block)
            if windows.dropped:
                log.warning("the last %d tokens are too few for a block of %d", windows.dropped, block)
        else:
            examples = Rows(columns, 0, len(columns), 0)
        generator = torch.Generator().manual_seed(0)
        n = min(examples.n, most or examples.n)
        chunks = [range(i, min(i + 16, n)) for i in range(0, n, 16)]
        batches = [judge.collate([examples.picked(j) for j in chunk], generator) for chunk in chunks]
        net.eval()
        return {"examples": float(n), **judge.evaluate(net, batches)}
