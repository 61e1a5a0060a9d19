"""A training run from its settings: tokenizer, data, network, loop; or from where it was interrupted.

`train(settings, …)` leaves a run's directory: `run.toml` (what was asked for), `metrics.jsonl`, `checkpoint-N/`, `latest`
and `best`, `data/` (the tokenised text), `frames/` (probes), `board/` (for TensorBoard) and `report.svg`.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigError, TrainingError
from regard.heap import keep_freed_memory
from regard.model.init import initialise
from regard.model.registry import family_of, spec_of
from regard.model.spec import Spec
from regard.model.transformer import Network, build
from regard.store.network import load_network
from regard.store.open import Opened, Pooling, open_files, open_model
from regard.store.save import save_directory
from regard.text.tokenizer import Tokenizer
from regard.train.board import board
from regard.train.data import Feed
from regard.train.encoding import ENCODINGS, LAYOUTS
from regard.train.loop import Tell, Trainer
from regard.train.network_sizes import activations_of, refuse_if_too_large
from regard.train.parallel import Parallel, parallel
from regard.train.prepare import Told, prepare
from regard.train.probe import Probes
from regard.train.read import Layout, Source, Tally, find_sources, read_rows, read_texts
from regard.train.recipe import PackedTokenizer
from regard.train.report import draw
from regard.train.run_directory import alone_in, entered, taken_over
from regard.train.settings import TrainSettings
from regard.train.shards import Columns
from regard.train.task import task_named
from regard.train.task.base import Task, Writer
from regard.train.vocabulary import KINDS, SPECIALS, train_tokenizer

FEWEST, MOST, EPOCHS = 300, 3000, 10  # steps when nothing was said


@dataclass
class Made:
    """What a run works with."""

    config: dict[str, Any]
    net: Network
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    generation: dict[str, Any]


def train(
    settings: TrainSettings,
    *,
    resume: bool = False,
    tell: Tell = lambda event: None,
    progress: Told = lambda done, total: None,
    write: Writer | None = None,
) -> Path:
    """Train until done; the directory of the run."""
    if not settings.data:
        raise ConfigError("There is nothing to train on: give --data.")
    if not settings.out:
        raise ConfigError("There is no place for the run: give --out.")
    if settings.threads:
        torch.set_num_threads(settings.threads)
    keep_freed_memory()
    kind, run, layout = task_named(settings.task), settings.run, layout_of(settings)
    with (
        parallel(settings.shard) as together,
        alone_in(run, together),
        board(run, tell, together.first) as tell,
    ):
        if not together.first:
            tell = progress = unheard
        say = said_by(tell)
        settings, before = together.first_does(partial(entered, settings, resume, say))
        if before is not None:
            together.first_does(partial(refuse_if_too_large, open_files(before).spec, together))
        made = continued(before, together) if before else begun_together(settings, layout, say, together)
        task = kind(settings, made.tokenizer, made.labels)
        task.write = write
        columns, held_out = prepared(settings, layout, made, progress, say, together)
        say(columns.summary())
        if held_out is not None:
            say(f"Held out: {held_out.summary()}")
        weigh_classes(task, columns, settings)
        feed = Feed(task, columns, held_out, settings, together)
        for sentence in feed.left_over():
            say(sentence)
        spec, total = spec_of(made.config), steps_of(settings, feed)
        kept = activations_of(spec, feed.tokens_at_once(), settings)
        together.first_does(partial(refuse_if_too_large, spec, together, made=True, activations=kept))
        probes = probes_of(settings, made, spec, say, together)
        write_model = partial(write_directory, made)
        trainer = Trainer(settings, task, made.net, feed, total, write_model, tell, together, probes)
        trainer.progress.data, trainer.progress.model = columns.fingerprint, fingerprint(made.config)
        if before is not None:
            resume_from(trainer, before)
        together.first_does(partial(taken_over, settings, before, trainer.progress.step))
        size = sum(p.numel() for p in made.net.parameters())
        say(
            f"{size:,} parameters, {total:,} steps" + (f", from step {trainer.progress.step:,}" if before else "") + "."
        )
        trainer.train()
        if together.first:
            draw(run)
    return run


def layout_of(settings: TrainSettings) -> Layout:
    usual = LAYOUTS[settings.task]
    return replace(usual, format=settings.format, document=settings.document or usual.document)


def said_by(tell: Tell) -> Callable[[str], None]:
    return lambda text: tell({"kind": "said", "text": text})


def unheard(*said: object) -> None:
    """What processes other than the first have to say."""


def begun_together(settings: TrainSettings, layout: Layout, say: Callable[[str], None], together: Parallel) -> Made:
    """A new run's tokenizer and first weights are made by the first process; the others open what it made."""
    if together.world == 1:
        return begun(settings, layout, say, together)
    place, made = settings.run / ".begun.part", list[Made]()

    def begin() -> None:
        made.append(begun(settings, layout, say, together))
        write_directory(made[0], place)

    together.first_does(begin)
    if not together.first:
        made.append(continued(place, together))
    together.wait()
    if together.first:
        shutil.rmtree(place, ignore_errors=True)
    return made[0]


def begun(settings: TrainSettings, layout: Layout, say: Callable[[str], None], together: Parallel) -> Made:
    """A new run: from scratch, or from a model that there is."""
    start = open_model(settings.start) if settings.start else None
    sources = find_sources(settings.data, layout)
    tokenizer = choose_tokenizer(settings, start, sources, layout, say)
    labels = choose_labels(settings, start, sources, layout)
    task = task_named(settings.task)(settings, tokenizer, labels)
    if start is None:
        config = {key: value for key, value in task.config().items() if value is not None}
        refuse_if_too_large(spec_of(config), together)
        net = build(spec_of(config))
        initialise(net, settings.seed)
        return Made(config, net, tokenizer, labels, generation_of(config))
    config = adapted(start, task)
    refuse_if_too_large(spec_of(config), together)
    net = transplanted(start, config, settings.seed, say)
    return Made(config, net, tokenizer, labels, start.generation or generation_of(config))


def continued(path: Path, together: Parallel) -> Made:
    """A run as its checkpoint has it. The weights are copied: results must not depend on where a file was mapped.
    (Sharding copies too, and only a process's share.)"""
    found = open_model(path)
    if found.tokenizer is None:
        raise TrainingError(f"{path} has no tokenizer.")
    net = load_network(found)
    if not together.shard:
        for p in net.parameters():
            p.data = p.data.clone()
    return Made(found.config, net, found.tokenizer, found.spec.head.labels, found.generation)


def write_directory(made: Made, path: Path, net: Network | None = None) -> None:
    """The run's model (or another network of the same kind) as a directory that anybody opens."""
    spec, family = spec_of(made.config), family_of(made.config["model_type"])
    save_directory(path, net or made.net, spec, family, made.config, made.tokenizer, made.generation, Pooling())


def choose_tokenizer(
    settings: TrainSettings,
    start: Opened | None,
    sources: list[Source],
    layout: Layout,
    say: Callable[[str], None],
) -> Tokenizer:
    if start is not None:
        if start.tokenizer is None:
            raise ConfigError(f"{settings.start} has no tokenizer, so training cannot go on from it.")
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
    say(f"Making a {settings.tokenizer} vocabulary of {settings.vocab_size:,} tokens …")
    return train_tokenizer(
        settings.tokenizer, read_texts(sources, layout), settings.vocab_size, SPECIALS[settings.task]
    )


def choose_labels(
    settings: TrainSettings, start: Opened | None, sources: list[Source], layout: Layout
) -> tuple[str, ...]:
    """Those in the data; a model's own if the data has no others."""
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


DROPOUTS = {  # what --dropout is called in a model's configuration, as the tasks write it
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    **dict.fromkeys(("llama", "mistral", "qwen2"), ("attention_dropout",)),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta"), ("hidden_dropout_prob", "attention_probs_dropout_prob")),
}
ARCHITECTURES = {"classify": "SequenceClassification", "tag": "TokenClassification", "mlm": "MaskedLM"}


def adapted(start: Opened, task: Task) -> dict[str, Any]:
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
        for old in ("num_labels", "problem_type"):  # of the head that is replaced
            config.pop(old, None)
        config["id2label"] = {str(i): label for i, label in enumerate(task.labels)}
        config["label2id"] = {label: i for i, label in enumerate(task.labels)}
    return config


def transplanted(start: Opened, config: Mapping[str, Any], seed: int, say: Callable[[str], None]) -> Network:
    """The model's weights in a network with the wanted head; what the model does not have starts anew."""
    old = load_network(start).state_dict()
    net = build(spec_of(config))
    initialise(net, seed)
    own = net.state_dict()
    taken = {name: value.clone() for name, value in old.items() if name in own and own[name].shape == value.shape}
    net.load_state_dict(taken, strict=False)
    new = [name for name in own if name not in taken]
    if new:
        say(f"New and untrained: {', '.join(new[:4])}{' …' if len(new) > 4 else ''}.")
    return net


def generation_of(config: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
    return {key: config[key] for key in keys if config.get(key) is not None}


def prepared(
    settings: TrainSettings,
    layout: Layout,
    made: Made,
    progress: Told,
    say: Callable[[str], None],
    together: Parallel,
) -> tuple[Columns, Columns | None]:
    """The tokenised text. The first process makes it; the others find it made."""
    longest = min(settings.block_size, spec_of(made.config).context)
    recipe: Any = ENCODINGS[settings.task](PackedTokenizer(made.tokenizer), longest, made.labels, settings.whole_word)

    def one(name: str, data: tuple[str, ...]) -> Columns:
        directory = settings.run / "data" / name

        def make() -> None:
            prepare(directory, find_sources(data, layout), layout, recipe, progress=progress, say=say)

        together.first_does(make)
        return Columns(directory)

    return one("train", settings.data), one("eval", settings.eval_data) if settings.eval_data else None


def probes_of(
    settings: TrainSettings, made: Made, spec: Spec, say: Callable[[str], None], together: Parallel
) -> Probes | None:
    if not settings.probes:
        return None
    room = (spec.source_context, spec.context) if spec.kind == "encoder-decoder" else (spec.context,)
    return Probes(settings.run, settings.probes, made.tokenizer, together.first, room=room, say=say)


def weigh_classes(task: Task, columns: Columns, settings: TrainSettings) -> None:
    """With --class-weights a class counts the more the rarer it is."""
    if settings.class_weights and settings.task == "classify":
        labels = torch.from_numpy(columns.stream("label").read(0, len(columns)).astype("int64"))
        counts = torch.bincount(labels, minlength=len(task.labels)).clamp_min(1).float()
        task.weights = counts.sum() / (len(counts) * counts)  # type: ignore[attr-defined]


def steps_of(settings: TrainSettings, feed: Feed) -> int:
    per_epoch = feed.steps_per_epoch()
    if settings.max_steps is not None:
        return settings.max_steps
    if settings.epochs is not None:
        return max(1, round(settings.epochs * per_epoch))
    return max(FEWEST, min(MOST, round(EPOCHS * per_epoch)))


def resume_from(trainer: Trainer, path: Path) -> None:
    data, model, together = trainer.progress.data, trainer.progress.model, trainer.together
    trainer.resume(path)
    if trainer.progress.data != data:
        sentence = f"{path} was trained on other data; a run goes on with the data it began with."
        raise together.found_by_all(TrainingError(sentence))
    if trainer.progress.model != model:
        raise together.found_by_all(TrainingError(f"{path} is of another model than this run's."))


def fingerprint(config: Mapping[str, Any]) -> str:
    shape = {key: value for key, value in config.items() if key not in ("dtype", "torch_dtype")}
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()
