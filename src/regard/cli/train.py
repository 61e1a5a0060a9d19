"""`regard train`: from a file of text to a model."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.say import remark, show_warnings

DATA, LENGTH, NETWORK, LEARNING = "What to learn from", "How long and how much", "The network", "The optimiser"
KEPT, MACHINE = "What is kept and shown", "The machine"


def command(
    task: Annotated[str, typer.Argument(help="lm, mlm, classify, tag, translate or chat.")],
    data: Annotated[
        list[str] | None,
        typer.Option(help="Files, globs, or - for stdin; may be given several times.", rich_help_panel=DATA),
    ] = None,
    out: Annotated[str | None, typer.Option(help="The run's directory.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file; flags go over it.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="A model to go on from, instead of from scratch.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    eval_data: Annotated[
        list[str] | None, typer.Option(help="Held-out files; else a share of --data.", rich_help_panel=DATA)
    ] = None,
    eval_share: Annotated[
        float | None, typer.Option(help="The share of --data that is held out; else 0.02.", rich_help_panel=DATA)
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="text, jsonl, csv, tsv, parallel or conllu, if the name does not say.", rich_help_panel=DATA),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(help="Plain text: a file, a paragraph or a line is one text.", rich_help_panel=DATA),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="bpe, wordpiece, unigram or characters; or a model, to take its.", rich_help_panel=DATA),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help="The most tokens a new vocabulary has; else 4096.", rich_help_panel=DATA)
    ] = None,
    block_size: Annotated[
        int | None,
        typer.Option(help="The longest text, in tokens; lm: how many are seen at once.", rich_help_panel=DATA),
    ] = None,
    whole_word: Annotated[
        bool | None, typer.Option("--whole-word", help="mlm: hide whole words.", rich_help_panel=DATA)
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="Updates of the weights; else ten epochs, within 300 to 3000.", rich_help_panel=LENGTH),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Instead: how often to go through the data.", rich_help_panel=LENGTH)
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Texts per step.", rich_help_panel=LENGTH)] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(help="Instead: tokens per step, texts of like length together.", rich_help_panel=LENGTH),
    ] = None,
    accumulate: Annotated[
        int | None,
        typer.Option(help="Parts a step is computed in, to save memory; else 1.", rich_help_panel=LENGTH),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="Stop after this many evaluations without improvement.", rich_help_panel=LENGTH),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help="lm: gpt2, llama; translate: m2m_100, marian, bart, vaswani, gru.", rich_help_panel=NETWORK),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="Layers (of encoder and decoder each); else 4.", rich_help_panel=NETWORK)
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Numbers per token, d_model; else 256.", rich_help_panel=NETWORK)
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads; they divide the width; else 4.", rich_help_panel=NETWORK)
    ] = None,
    d_ff: Annotated[
        int | None,
        typer.Option(
            help="Inner width of a layer's MLP (gru: its state); else the family's own.", rich_help_panel=NETWORK
        ),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="The share of values dropped in training; else 0.1.", rich_help_panel=NETWORK),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="At its peak; else as suits the task, 1e-4 with --from.", rich_help_panel=LEARNING),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="cosine or linear (to a tenth), noam or inverse-sqrt, constant.", rich_help_panel=LEARNING),
    ] = None,
    warmup_steps: Annotated[
        int | None, typer.Option(help="Steps over which the rate rises to its peak.", rich_help_panel=LEARNING)
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="How strongly matrices are drawn to 0.", rich_help_panel=LEARNING)
    ] = None,
    beta_1: Annotated[
        float | None, typer.Option(help="AdamW's first beta; else 0.9.", rich_help_panel=LEARNING)
    ] = None,
    beta_2: Annotated[
        float | None, typer.Option(help="AdamW's second; 0.95, translate 0.98.", rich_help_panel=LEARNING)
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="The longest a gradient may be; else 1.0.", rich_help_panel=LEARNING)
    ] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(help="How far from certain an answer should be; translate 0.1.", rich_help_panel=LEARNING),
    ] = None,
    class_weights: Annotated[
        bool | None,
        typer.Option("--class-weights", help="classify: rare classes count more.", rich_help_panel=LEARNING),
    ] = None,
    eval_steps: Annotated[
        int | None, typer.Option(help="Steps between evaluations; else a tenth of all.", rich_help_panel=KEPT)
    ] = None,
    save_steps: Annotated[
        int | None, typer.Option(help="Steps between checkpoints; else as --eval-steps.", rich_help_panel=KEPT)
    ] = None,
    log_steps: Annotated[
        int | None, typer.Option(help="Steps between lines in metrics.jsonl; else 10.", rich_help_panel=KEPT)
    ] = None,
    save_total_limit: Annotated[
        int | None, typer.Option(help="Checkpoints kept besides the best; else 2.", rich_help_panel=KEPT)
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            help="A text whose attention is kept as training goes on (translate: source, tab, target); "
            "may be given several times.",
            rich_help_panel=KEPT,
        ),
    ] = None,
    probe_steps: Annotated[
        int | None, typer.Option(help="Steps between looks at the probes; else 100.", rich_help_panel=KEPT)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For first weights, order and dropout; else 0.", rich_help_panel=MACHINE)
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Cores to compute with; else all.", rich_help_panel=MACHINE)
    ] = None,
    bf16: Annotated[
        bool | None,
        typer.Option("--bf16", help="Compute in bfloat16 where that is safe.", rich_help_panel=MACHINE),
    ] = None,
    compile: Annotated[
        bool | None, typer.Option("--compile", help="torch.compile the layers.", rich_help_panel=MACHINE)
    ] = None,
    checkpoint_activations: Annotated[
        bool | None,
        typer.Option(
            "--checkpoint-activations",
            help="Keep less for the backward pass and compute it again.",
            rich_help_panel=MACHINE,
        ),
    ] = None,
    shard: Annotated[
        bool | None,
        typer.Option(
            "--shard/--no-shard", help="Under torchrun: share out the weights (FSDP2).", rich_help_panel=MACHINE
        ),
    ] = None,
) -> None:
    """Train a model on your own text, from scratch or further.

    regard train lm --data book.txt --out runs/book
    regard train translate --data pairs.tsv --out runs/fr --epochs 20
    regard train classify --data reviews.tsv --from minilm --out runs/reviews
    """
    given = {name: value for name, value in locals().items() if name not in ("task", "config", "resume", "probe")}
    given["probes"] = probe
    from regard.api import train_settings, train_with
    from regard.train.parallel import speaks

    settings = train_settings(task, config, given, resume)
    if not speaks():
        train_with(settings, resume=resume)
        return
    show_warnings()
    with Screen() as screen:
        run = train_with(settings, resume=resume, tell=screen.tell, progress=screen.prepared)
    remark(f"The model is in {run}; its picture is {run / 'report.svg'}.")


class Screen:
    """What a person sees while a model trains: sentences, a bar for the data, and one for the steps."""

    def __enter__(self) -> "Screen":
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

    def prepared(self, done: int, total: int) -> None:
        if self.data is None:
            self.data = self.bar.add_task("Tokenising", total=total, facts="bytes")
        self.bar.update(self.data, completed=done, total=total)

    def tell(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "said":
            self.bar.console.print(event["text"], markup=False)
        elif kind == "step":
            if self.steps is None:
                self.steps = self.bar.add_task("Training", total=event["total"], completed=event["step"] - 1, facts="")
            self.bar.update(self.steps, completed=event["step"], facts=f"loss {event['loss']:.3f} {self.facts}")
        elif kind == "log" and "rate" in event:
            self.facts = f"{event['rate']:,.0f} tok/s {event['memory']:,} MB"
            if not sys.stderr.isatty():
                remark(f"step {event['step']}  loss {event['loss']:.4f}  lr {event['lr']:.2e}  {self.facts}")
        elif kind == "log" and "eval" in event:
            told = "  ".join(f"{name} {value:.4g}" for name, value in event["eval"].items())
            self.bar.console.print(f"step {event['step']}: held out {told}", markup=False)
