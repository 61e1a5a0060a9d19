"""`regard train`: train or fine-tune a model on files of text."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.console import print_stderr, show_warnings

DATA, LENGTH, NETWORK, OPTIMIZER = "Data", "Length, batches and early stopping", "Network", "Optimizer and loss"
OUTPUT, MACHINE = "Evaluation, checkpoints and logging", "Machine"


def command(
    task: Annotated[str, typer.Argument(help="What to train for: lm, mlm, classify, tag, translate or chat.")],
    data: Annotated[
        list[str] | None,
        typer.Option(help="Files, globs, or - for stdin; may be given several times.", rich_help_panel=DATA),
    ] = None,
    out: Annotated[str | None, typer.Option(help="The run's directory, for checkpoints and metrics.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings; flags override it.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="A model to fine-tune; else from scratch.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in --out from its latest checkpoint.")
    ] = False,
    eval_data: Annotated[
        list[str] | None, typer.Option(help="Files to evaluate on; else a share of --data.", rich_help_panel=DATA)
    ] = None,
    eval_share: Annotated[
        float | None, typer.Option(help="The share of --data held out for evaluation; else 0.02.", rich_help_panel=DATA)
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="text, jsonl, csv, tsv, parallel or conllu; else by the file's extension.", rich_help_panel=DATA
        ),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(help="Plain text: one text per file, paragraph or line.", rich_help_panel=DATA),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Train one on the data: bpe, wordpiece, unigram or characters; or use a model's: its name.",
            rich_help_panel=DATA,
        ),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="Vocabulary size of a new tokenizer; else 4096.", rich_help_panel=DATA)
    ] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            help="The longest text, in tokens; lm: the context length, to which texts are packed.",
            rich_help_panel=DATA,
        ),
    ] = None,
    whole_word: Annotated[
        bool | None, typer.Option("--whole-word", help="mlm: whole-word masking.", rich_help_panel=DATA)
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="Optimizer steps; else ten epochs, but from 300 to 3000.", rich_help_panel=LENGTH),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Instead of --max-steps: passes over the data.", rich_help_panel=LENGTH)
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step.", rich_help_panel=LENGTH)] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Instead of --batch-size: tokens per step; batches of similar lengths.", rich_help_panel=LENGTH
        ),
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(
            help="Gradient accumulation: micro-batches per step, to save memory; else 1.", rich_help_panel=LENGTH
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Early stopping: stop after this many evaluations without improvement.", rich_help_panel=LENGTH
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help="lm: gpt2, llama; translate: m2m_100, marian, bart, vaswani, gru.", rich_help_panel=NETWORK),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="Layers (of encoder and decoder each); else 4.", rich_help_panel=NETWORK)
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Width of the network, d_model; else 256.", rich_help_panel=NETWORK)
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads; --width is a multiple of it; else 4.", rich_help_panel=NETWORK)
    ] = None,
    d_ff: Annotated[
        int | None,
        typer.Option(
            help="Hidden width of the MLP (gru: of its state); else the family's default.", rich_help_panel=NETWORK
        ),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="Dropout rate; else 0.1.", rich_help_panel=NETWORK),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Peak learning rate; default by task, 1e-4 with --from.", rich_help_panel=OPTIMIZER),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Learning rate schedule: cosine or linear (to a tenth), noam or inverse-sqrt, constant.",
            rich_help_panel=OPTIMIZER,
        ),
    ] = None,
    warmup_steps: Annotated[
        int | None,
        typer.Option(help="Warm-up: steps to the peak learning rate; by task, mostly 100.", rich_help_panel=OPTIMIZER),
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="AdamW's weight decay, of matrices only.", rich_help_panel=OPTIMIZER)
    ] = None,
    beta_1: Annotated[float | None, typer.Option(help="AdamW's beta 1; else 0.9.", rich_help_panel=OPTIMIZER)] = None,
    beta_2: Annotated[
        float | None, typer.Option(help="AdamW's beta 2; else 0.95, translate 0.98.", rich_help_panel=OPTIMIZER)
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Gradient clipping: the largest norm; else 1.0.", rich_help_panel=OPTIMIZER)
    ] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(help="Label smoothing (classify, translate); else 0, translate 0.1.", rich_help_panel=OPTIMIZER),
    ] = None,
    class_weights: Annotated[
        bool | None,
        typer.Option(
            "--class-weights", help="classify: weight classes by inverse frequency.", rich_help_panel=OPTIMIZER
        ),
    ] = None,
    eval_steps: Annotated[
        int | None, typer.Option(help="Steps between evaluations; else a tenth of the run.", rich_help_panel=OUTPUT)
    ] = None,
    save_steps: Annotated[
        int | None, typer.Option(help="Steps between checkpoints; else as --eval-steps.", rich_help_panel=OUTPUT)
    ] = None,
    log_steps: Annotated[
        int | None, typer.Option(help="Steps between lines in metrics.jsonl; else 10.", rich_help_panel=OUTPUT)
    ] = None,
    save_total_limit: Annotated[
        int | None, typer.Option(help="Checkpoints kept besides the best; else 2.", rich_help_panel=OUTPUT)
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            help="A text whose attention is recorded during training (translate: source, tab, target); "
            "may be given several times.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    probe_steps: Annotated[
        int | None, typer.Option(help="Steps between recordings of the probes; else 100.", rich_help_panel=OUTPUT)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For initial weights, shuffling and dropout; else 0.", rich_help_panel=MACHINE)
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; else all cores.", rich_help_panel=MACHINE)] = None,
    bf16: Annotated[
        bool | None,
        typer.Option("--bf16", help="Mixed precision: bfloat16 where that is safe.", rich_help_panel=MACHINE),
    ] = None,
    compile: Annotated[
        bool | None, typer.Option("--compile", help="torch.compile the layers.", rich_help_panel=MACHINE)
    ] = None,
    checkpoint_activations: Annotated[
        bool | None,
        typer.Option(
            "--checkpoint-activations",
            help="Activation checkpointing: recompute activations in the backward pass, to save memory.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    shard: Annotated[
        bool | None,
        typer.Option(
            "--shard/--no-shard",
            help="Data parallel under torchrun: FSDP (sharded weights) instead of DDP.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
) -> None:
    """Train or fine-tune a model on your own text. A run's directory has its checkpoints, metrics and settings; an
    interrupted run can be resumed. Under torchrun the same command trains data parallel, in several processes.

    regard train lm --data book.txt --out runs/book
    regard train translate --data pairs.tsv --out runs/fr --epochs 20
    regard train classify --data reviews.tsv --from minilm --out runs/reviews
    """
    given = {name: value for name, value in locals().items() if name not in ("task", "config", "resume", "probe")}
    given["probes"] = probe
    from regard.api import train_settings, train_with

    settings = train_settings(task, config, given, resume)
    from regard.train.parallel import is_first_process

    if not is_first_process():
        train_with(settings, resume=resume)
        return
    show_warnings()
    with TrainingDisplay() as display:
        run = train_with(settings, resume=resume, callback=display.show, progress=display.tokenising)
    print_stderr(f"The model is in {run}; the figure of its metrics is {run / 'report.svg'}.")


class TrainingDisplay:
    """The terminal display of a run: messages, a progress bar for tokenising, and one for the steps."""

    def __enter__(self) -> "TrainingDisplay":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not sys.stderr.isatty(),
        )
        self.bar.start()
        self.data: Any = None
        self.steps: Any = None
        self.facts = ""
        return self

    def __exit__(self, *problem: object) -> None:
        self.bar.stop()

    def tokenising(self, done: int, total: int) -> None:
        if self.data is None:
            self.data = self.bar.add_task("Tokenising", total=total, facts="bytes")
        self.bar.update(self.data, completed=done, total=total)

    def show(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "message":
            self.bar.console.print(event["text"], markup=False)
        elif kind == "step":
            if self.steps is None:
                self.steps = self.bar.add_task("Training", total=event["total"], completed=event["step"] - 1, facts="")
            self.bar.update(self.steps, completed=event["step"], facts=f"loss {event['loss']:.3f} {self.facts}")
        elif kind == "log" and "rate" in event:
            self.facts = f"{event['rate']:,.0f} tok/s {event['memory']:,} MB"
            if not sys.stderr.isatty():
                print_stderr(f"step {event['step']}  loss {event['loss']:.4f}  lr {event['lr']:.2e}  {self.facts}")
        elif kind == "log" and "eval" in event:
            metrics = "  ".join(f"{name} {value:.4g}" for name, value in event["eval"].items())
            self.bar.console.print(f"step {event['step']}: held out {metrics}", markup=False)
