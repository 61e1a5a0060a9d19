"""A training run from its settings: tokenizer, data, network and training loop, from scratch, fine-tuned or resumed.

`train(settings, …)` writes a run's directory: `run.toml` (the settings), `metrics.jsonl`, `checkpoint-N/`, `latest` and
`best`, `data/` (the tokenised text), `frames/` (probes), `board/` (for TensorBoard) and `report.svg`.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigError, TrainingError
from regard.malloc import keep_freed_memory
from regard.model.build import Network, build, parameters_of
from regard.model.init import initialise
from regard.model.registry import family_of, spec_of
from regard.model.spec import Spec
from regard.store.network import load_network
from regard.store.open_model import Opened, open_files, open_model
from regard.store.save_model import ModelFiles, save_directory
from regard.text.tokenizer import Tokenizer
from regard.train.data import DataLoader
from regard.train.dataset import ProgressCallback, prepare
from regard.train.encoding import ENCODINGS, LAYOUTS
from regard.train.loop import Callback, Trainer
from regard.train.network_sizes import activations_of, refuse_if_too_large
from regard.train.parallel import Parallel, data_parallel
from regard.train.preprocess import PackedTokenizer, json_sha256
from regard.train.probe import Probes
from regard.train.read import Layout, Source, Tally, find_sources, read_rows, read_texts
from regard.train.report import draw
from regard.train.run_directory import begin_run, lock_run, open_run
from regard.train.settings import TrainSettings
from regard.train.shards import Columns
from regard.train.task import task_named
from regard.train.task.base import GenerateTargets, Task
from regard.train.tensorboard import board
from regard.train.tokenizer import KINDS, SPECIALS, train_tokenizer

MIN_STEPS, MAX_STEPS, DEFAULT_EPOCHS = 300, 3000, 10  # without --max-steps and --epochs


@dataclass
class RunParts:
    """The parts of a run's model: configuration, network, tokenizer, labels and generation settings."""

    config: dict[str, Any]
    net: Network
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    generation: dict[str, Any]


def train(
    settings: TrainSettings,
    *,
    resume: bool = False,
    callback: Callback = lambda event: None,
    progress: ProgressCallback = lambda done, total: None,
    generate: GenerateTargets | None = None,
) -> Path:
    """Train a model and return the run's directory.

    `callback` is called with an event (a dict whose "kind" is step, log, message or saved), `progress` with the bytes
    tokenised so far and in all. `generate` is how an encoder-decoder generates targets at evaluations.
    """
    if not settings.data:
        raise ConfigError("There is nothing to train on: give --data.")
    if not settings.out:
        raise ConfigError("There is no directory for the run: give --out.")
    if settings.threads:
        torch.set_num_threads(settings.threads)
    keep_freed_memory()
    kind, run, layout = task_named(settings.task), settings.run, layout_of(settings)
    with (
        data_parallel(settings.shard) as parallel,
        lock_run(run, parallel),
        board(run, callback, parallel.first) as callback,
    ):
        if not parallel.first:
            callback = progress = ignore
        notify = notifier(callback)
        settings, last_checkpoint = parallel.run_on_first(partial(open_run, settings, resume, notify))
        if last_checkpoint is not None:
            parallel.run_on_first(partial(refuse_if_too_large, open_files(last_checkpoint).spec, parallel))
        if last_checkpoint is not None:
            parts = load_run(last_checkpoint, parallel)
        else:
            parts = new_run_on_all_ranks(settings, layout, notify, parallel)
        task = kind(settings, parts.tokenizer, parts.labels)
        task.generate = generate
        columns, held_out = prepare_data(settings, layout, parts, progress, notify, parallel)
        notify(columns.summary())
        if held_out is not None:
            notify(f"Held out: {held_out.summary()}")
        set_class_weights(task, columns, settings)
        loader = DataLoader(task, columns, held_out, settings, parallel)
        for sentence in loader.unused_data():
            notify(sentence)
        spec, total = spec_of(parts.config), steps_of(settings, loader)
        activations = activations_of(spec, loader.tokens_per_micro_batch(), settings)
        parallel.run_on_first(partial(refuse_if_too_large, spec, parallel, allocated=True, activations=activations))
        probes = probes_of(settings, parts, spec, notify, parallel)
        write_model = partial(write_directory, parts)
        trainer = Trainer(settings, task, parts.net, loader, total, write_model, callback, parallel, probes)
        trainer.progress.data, trainer.progress.model = columns.fingerprint, config_sha256(parts.config)
        if last_checkpoint is not None:
            resume_from(trainer, last_checkpoint)
        parallel.run_on_first(partial(begin_run, settings, last_checkpoint, trainer.progress.step))
        size = sum(p.numel() for p in parts.net.parameters())
        resumed = f", resumed from step {trainer.progress.step:,}" if last_checkpoint is not None else ""
        notify(f"{size:,} parameters, {total:,} steps{resumed}.")
        trainer.train()
        if parallel.first:
            draw(run)
    return run


def layout_of(settings: TrainSettings) -> Layout:
    """Which fields the task reads from its files, with the settings for their format."""
    usual = LAYOUTS[settings.task]
    return replace(usual, format=settings.format, document=settings.document or usual.document)


def notifier(callback: Callback) -> Callable[[str], None]:
    """A function that sends the callback a message."""
    return lambda text: callback({"kind": "message", "text": text})


def ignore(*event: object) -> None:
    """The callback of all processes but the first."""


def new_run_on_all_ranks(
    settings: TrainSettings, layout: Layout, notify: Callable[[str], None], parallel: Parallel
) -> RunParts:
    """A new run in all processes: the first makes the tokenizer and the initial weights, the others load them."""
    if parallel.world_size == 1:
        return new_run(settings, layout, notify, parallel)
    directory, parts = settings.run / ".begun.part", list[RunParts]()

    def begin() -> None:
        parts.append(new_run(settings, layout, notify, parallel))
        write_directory(parts[0], directory)

    parallel.run_on_first(begin)
    if not parallel.first:
        parts.append(load_run(directory, parallel))
    parallel.barrier()
    if parallel.first:
        shutil.rmtree(directory, ignore_errors=True)
    return parts[0]


def new_run(settings: TrainSettings, layout: Layout, notify: Callable[[str], None], parallel: Parallel) -> RunParts:
    """A new run's parts: from scratch, or fine-tuning a model (`--from`)."""
    start = open_model(settings.start) if settings.start else None
    sources = find_sources(settings.data, layout)
    tokenizer = choose_tokenizer(settings, start, sources, layout, notify)
    labels = choose_labels(settings, start, sources, layout)
    task = task_named(settings.task)(settings, tokenizer, labels)
    if start is None:
        config = {key: value for key, value in task.config().items() if value is not None}
        refuse_if_too_large(spec_of(config), parallel)
        net = build(spec_of(config))
        initialise(net, settings.seed)
        return RunParts(config, net, tokenizer, labels, generation_of(config))
    config = config_for_task(start, task)
    refuse_if_too_large(spec_of(config), parallel)
    net = load_matching_weights(start, config, settings.seed, notify)
    return RunParts(config, net, tokenizer, labels, start.generation or generation_of(config))


def load_run(path: Path, parallel: Parallel) -> RunParts:
    """A run's parts from its checkpoint. The weights are copied: results must not depend on the alignment of a mapped
    file. (FSDP copies them anyway, and only a process's shard.)"""
    found = open_model(path)
    if found.tokenizer is None:
        raise TrainingError(f"{path} has no tokenizer.")
    net = load_network(found)
    if not parallel.shard:
        for p in net.parameters():
            p.data = p.data.clone()
    return RunParts(found.config, net, found.tokenizer, found.spec.head.labels, found.generation)


def write_directory(parts: RunParts, path: Path, net: Network | None = None) -> None:
    """Save the run's model (or another network of the same spec) as a model directory in Hugging Face's layout."""
    spec, family = spec_of(parts.config), family_of(parts.config["model_type"])
    weights = parameters_of(net or parts.net)
    save_directory(path, ModelFiles(weights, spec, family, parts.config, parts.tokenizer, parts.generation))


def choose_tokenizer(
    settings: TrainSettings,
    start: Opened | None,
    sources: list[Source],
    layout: Layout,
    notify: Callable[[str], None],
) -> Tokenizer:
    if start is not None:
        if start.tokenizer is None:
            raise ConfigError(f"{settings.start} has no tokenizer, so it cannot be fine-tuned.")
        return start.tokenizer
    if settings.tokenizer not in KINDS:
        found = open_model(settings.tokenizer).tokenizer
        if found is None:
            raise ConfigError(f"{settings.tokenizer} has no tokenizer; --tokenizer is {', '.join(KINDS)} or a model.")
        if settings.vocab_size not in (None, found.n_vocab):
            raise ConfigError(
                f"--vocab-size is {settings.vocab_size}, but the tokenizer of {settings.tokenizer} has {found.n_vocab} "
                "tokens; leave it out."
            )
        return found
    notify(f"Training a {settings.tokenizer} tokenizer with {settings.vocab_size:,} tokens …")
    return train_tokenizer(
        settings.tokenizer, read_texts(sources, layout), settings.vocab_size, SPECIALS[settings.task]
    )


def choose_labels(
    settings: TrainSettings, start: Opened | None, sources: list[Source], layout: Layout
) -> tuple[str, ...]:
    """The labels in the data; those of the model that is fine-tuned, if the data has no others."""
    if settings.task not in ("classify", "tag"):
        return ()
    field = "label" if settings.task == "classify" else "tags"
    found = set[str]()
    for source in sources:
        for row in read_rows(source, layout, Tally()):
            found.update([row[field]] if field == "label" else row[field])
    known = start.spec.head.labels if start is not None else ()
    if known and found <= set(known):
        return known
    return tuple(sorted(found, key=lambda name: (len(name), name) if name.isdigit() else (0, name)))


DROPOUTS = {  # the fields of config.json that --dropout sets
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    **dict.fromkeys(("llama", "mistral", "qwen2"), ("attention_dropout",)),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta"), ("hidden_dropout_prob", "attention_probs_dropout_prob")),
}
ARCHITECTURES = {"classify": "SequenceClassification", "tag": "TokenClassification", "mlm": "MaskedLM"}


def config_for_task(start: Opened, task: Task) -> dict[str, Any]:
    """The model's configuration with the head that the task needs."""
    config = dict(start.config)
    name, kind = task.settings.task, start.spec.kind
    needed = {"lm": "decoder", "chat": "decoder", "translate": "encoder-decoder"}.get(name, "encoder")
    if kind != needed:
        raise ConfigError(f"{task.settings.start} is of kind {kind}, but {name} needs a model of kind {needed}.")
    if name in ARCHITECTURES:
        prefix = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}[config["model_type"]]
        config["architectures"] = [f"{prefix}For{ARCHITECTURES[name]}"]
    if task.settings.dropout is not None:
        config |= dict.fromkeys(DROPOUTS.get(config["model_type"], ("dropout",)), task.settings.dropout)
    if task.labels:
        for old in ("num_labels", "problem_type"):  # they describe the head that is replaced
            config.pop(old, None)
        config["id2label"] = {str(i): label for i, label in enumerate(task.labels)}
        config["label2id"] = {label: i for i, label in enumerate(task.labels)}
    return config


def load_matching_weights(
    start: Opened, config: Mapping[str, Any], seed: int, notify: Callable[[str], None]
) -> Network:
    """A network with the task's head and the model's weights; parameters that the model does not have are initialised."""
    old = load_network(start).state_dict()
    net = build(spec_of(config))
    initialise(net, seed)
    own = net.state_dict()
    taken = {name: value.clone() for name, value in old.items() if name in own and own[name].shape == value.shape}
    net.load_state_dict(taken, strict=False)
    new = [name for name in own if name not in taken]
    if new:
        notify(f"New and untrained: {', '.join(new[:4])}{' …' if len(new) > 4 else ''}.")
    return net


def generation_of(config: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    return {key: config[key] for key in keys if config.get(key) is not None}


def prepare_data(
    settings: TrainSettings,
    layout: Layout,
    parts: RunParts,
    progress: ProgressCallback,
    notify: Callable[[str], None],
    parallel: Parallel,
) -> tuple[Columns, Columns | None]:
    """The tokenised training data, and the evaluation data if given. The first process makes it, the others open it."""
    longest = min(settings.block_size, spec_of(parts.config).context)
    preprocessor: Any = ENCODINGS[settings.task](
        PackedTokenizer(parts.tokenizer), longest, parts.labels, settings.whole_word
    )

    def one(name: str, data: tuple[str, ...]) -> Columns:
        directory = settings.run / "data" / name

        def make() -> None:
            prepare(directory, find_sources(data, layout), layout, preprocessor, progress=progress, notify=notify)

        parallel.run_on_first(make)
        return Columns(directory)

    return one("train", settings.data), one("eval", settings.eval_data) if settings.eval_data else None


def probes_of(
    settings: TrainSettings, parts: RunParts, spec: Spec, notify: Callable[[str], None], parallel: Parallel
) -> Probes | None:
    if not settings.probes:
        return None
    max_tokens = (spec.source_context, spec.context) if spec.kind == "encoder-decoder" else (spec.context,)
    return Probes(settings.run, settings.probes, parts.tokenizer, parallel.first, max_tokens=max_tokens, notify=notify)


def set_class_weights(task: Task, columns: Columns, settings: TrainSettings) -> None:
    """With --class-weights, weight each class's loss by its inverse frequency."""
    if settings.class_weights and settings.task == "classify":
        labels = torch.from_numpy(columns.stream("label").read(0, len(columns)).astype("int64"))
        counts = torch.bincount(labels, minlength=len(task.labels)).clamp_min(1).float()
        task.weights = counts.sum() / (len(counts) * counts)  # type: ignore[attr-defined]


def steps_of(settings: TrainSettings, loader: DataLoader) -> int:
    """How many steps to train: --max-steps, or --epochs, or a default of some epochs within limits."""
    per_epoch = loader.steps_per_epoch()
    if settings.max_steps is not None:
        return settings.max_steps
    if settings.epochs is not None:
        return max(1, round(settings.epochs * per_epoch))
    return max(MIN_STEPS, min(MAX_STEPS, round(DEFAULT_EPOCHS * per_epoch)))


def resume_from(trainer: Trainer, path: Path) -> None:
    """Resume from a checkpoint; refused if it belongs to other data or another model."""
    data, model, parallel = trainer.progress.data, trainer.progress.model, trainer.parallel
    trainer.resume(path)
    if trainer.progress.data != data:
        sentence = f"{path} was trained on other data; a run can only be resumed with the data it began with."
        raise parallel.report_once(TrainingError(sentence))
    if trainer.progress.model != model:
        raise parallel.report_once(TrainingError(f"{path} is a checkpoint of another model than this run's."))


def config_sha256(config: Mapping[str, Any]) -> str:
    shape = {key: value for key, value in config.items() if key not in ("dtype", "torch_dtype")}
    return json_sha256(shape)
