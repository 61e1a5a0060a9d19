"""The training tasks, by name. A task defines a batch's loss and the metrics of an evaluation.

Adding one is a file here, a line below, and its preprocessor in `train/encoding.py`.
"""

from importlib import import_module

from regard.errors import NotFound
from regard.train.task.base import Task

TASKS = {
    "lm": "LanguageModel",
    "mlm": "MaskedLanguageModel",
    "classify": "Classify",
    "tag": "Tag",
    "translate": "Translate",
    "chat": "Chat",
}


def task_named(name: str) -> type[Task]:
    if name not in TASKS:
        raise NotFound(f"There is no task {name!r}; there are {', '.join(TASKS)}.")
    task: type[Task] = getattr(import_module(f"regard.train.task.{name}"), TASKS[name])
    return task
