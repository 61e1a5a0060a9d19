"""`regard chat`: a conversation, streamed; the history is kept."""

import sys
from typing import Annotated, Any

import typer

from regard.cli.say import (
    Device,
    Dtype,
    MaxNewTokens,
    MinP,
    RepetitionPenalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    given,
    load_model,
    remark,
)
from regard.errors import RegardError

HELP = """/help            this list
/system TEXT     begin anew with a system message
/reset           forget the conversation
/undo            take back the last exchange
/history         show the conversation
/exit            leave (so does Ctrl-D)"""


def command(
    model: Annotated[str, typer.Argument(metavar="[MODEL]", help="A chat model.")] = "smollm2",
    message: Annotated[str | None, typer.Argument(help="One message to answer, instead of a conversation.")] = None,
    system: Annotated[str | None, typer.Option(help="A message that sets the stage.")] = None,
    max_new_tokens: MaxNewTokens = 512,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    device: Device = "auto",
    dtype: Dtype = None,
) -> None:
    """Talk with a model.

    [dim]regard chat smollm2[/dim]
    [dim]regard chat smollm2 "What is the capital of France?" --temperature 0[/dim]
    """
    loaded = load_model(model, device, dtype)
    settings = given(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    talk = Talk(loaded, settings, system)
    if message is not None:
        talk.say(sys.stdin.read() if message == "-" else message)
        return
    if sys.stdin.isatty():
        remark(f"Talking with {loaded.path.stem}. /help lists commands, /exit leaves.")
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            return
        if line and not talk.obey(line):
            return


class Talk:
    """The conversation so far, and what a line typed by the person does to it."""

    def __init__(self, model: Any, settings: dict[str, Any], system: str | None) -> None:
        self.model, self.settings = model, settings
        self.history: list[dict[str, str]] = []
        self.reset(system)

    def reset(self, system: str | None = None) -> None:
        self.history = [{"role": "system", "content": system}] if system else []

    def obey(self, line: str) -> bool:
        """False when the person wants to leave."""
        word, _, rest = line.partition(" ")
        match word:
            case "/exit" | "/quit":
                return False
            case "/help":
                remark(HELP)
            case "/reset":
                self.reset()
            case "/system":
                self.reset(rest)
            case "/undo":
                self.history = self.history[:-2] if len(self.history) >= 2 else []
            case "/history":
                for m in self.history:
                    remark(f"{m['role']}: {m['content']}")
            case _ if word.startswith("/") and word[1:].isalpha():
                remark(f"There is no command {word}; /help lists them.")
            case _:
                try:
                    self.say(line)
                except RegardError as problem:
                    remark(f"regard: {problem}")
        return True

    def say(self, text: str) -> None:
        """Answer, streaming. Ctrl-C stops the answer and keeps what was said."""
        asked = [*self.history, {"role": "user", "content": text}]
        answer = ""
        try:
            for piece in self.model.stream(self.model.chat_ids(asked), **self.settings):
                answer += piece
                print(piece, end="", flush=True)
        except KeyboardInterrupt:
            pass
        print(flush=True)
        self.history = [*asked, {"role": "assistant", "content": answer}]
