"""`regard chat`: a conversation, streamed; the history is kept."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.say import (
    Cache,
    Device,
    Dtype,
    MaxNewTokens,
    MinP,
    PromptLookup,
    RepetitionPenalty,
    Seed,
    Temperature,
    TopK,
    TopP,
    generation_settings,
    load_model,
    remark,
    stdin_lines,
    text_or_stdin,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.api import Model

ANSWER_LENGTH = 512  # tokens, or the model's context if that is shorter
HELP = """/system TEXT     begin anew with this system message; without TEXT, with none
/reset           forget the conversation, keep the system message
/undo            take back the last exchange
/history         show the conversation
/help            this list
/exit            leave; so does Ctrl-D (Ctrl-C only stops an answer)"""


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A chat model; smollm2 unless given.")] = "smollm2",
    message: Annotated[
        str | None, typer.Argument(help="One message to answer, instead of a conversation.", metavar="MESSAGE")
    ] = None,
    system: Annotated[str | None, typer.Option(help="A message that sets the stage.", metavar="TEXT")] = None,
    max_new_tokens: MaxNewTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    prompt_lookup: PromptLookup = None,
    device: Device = "auto",
    dtype: Dtype = None,
    cache: Cache = None,
) -> None:
    """Talk with a model. In the conversation /help lists what else can be typed. Where standard input is not a terminal,
    each of its lines is a message.

    regard chat
    regard chat smollm2 "What is the capital of France?" --temperature 0
    regard chat smollm2 --system "You answer in rhymes." --temperature 0.7
    """
    settings = generation_settings(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        prompt_lookup=prompt_lookup,
    )
    single = None if message is None else text_or_stdin(message)
    if single is None and " " in model and not Path(model).exists():
        raise RegardError(f'The model comes before the message: regard chat smollm2 "{model}"')
    loaded = load_model(model, device, dtype, cache)
    loaded.chat_ids(single or "Hello")  # a model that cannot chat says so before anybody types
    settings.setdefault("max_new_tokens", min(ANSWER_LENGTH, loaded.spec.context))
    talk = Talk(loaded, settings, system)
    if single is not None:
        talk.say(single)
    elif sys.stdin.isatty():
        remark(f"Talking with {loaded.name}. /help lists commands, /exit leaves.")
        converse(talk)
    else:
        for line in stdin_lines():
            if line.strip() and not talk.obey(line.strip()):
                return


def converse(talk: "Talk") -> None:
    """Line by line with a person: Ctrl-C stops an answer and stays, Ctrl-D leaves."""
    for line in typed_lines():
        try:
            if line and not talk.obey(line):
                return
        except KeyboardInterrupt:
            print(flush=True)
        except RegardError as problem:
            remark(f"regard: {problem}")


def typed_lines() -> Iterator[str]:
    with suppress(ImportError):
        import readline  # noqa: F401  lines can be edited, and earlier ones brought back
    prompt = "> "
    while True:
        try:
            if sys.stdout.isatty():
                yield input(prompt).strip()
            else:
                print(prompt, end="", file=sys.stderr, flush=True)
                yield input().strip()
        except EOFError:
            remark("")
            return
        except KeyboardInterrupt:
            remark("\n/exit or Ctrl-D leaves.")


class Talk:
    """The conversation so far, and what a line typed by the person does to it."""

    def __init__(self, model: "Model", settings: dict[str, Any], system: str | None = None) -> None:
        self.model, self.settings = model, settings
        self.system = system
        self.history: list[dict[str, str]] = []  # user, assistant, user, assistant, …

    def obey(self, line: str) -> bool:
        """False when the person wants to leave."""
        word, _, rest = line.partition(" ")
        match word:
            case "/exit" | "/quit":
                return False
            case "/help":
                remark(HELP)
            case "/reset":
                self.history = []
                remark("The conversation is forgotten.")
            case "/system":
                self.system, self.history = rest.strip() or None, []
                remark("The conversation begins anew.")
            case "/undo":
                remark("The last exchange is taken back." if self.history else "Nothing was said yet.")
                self.history = self.history[:-2]
            case "/history":
                remark("\n".join(f"{m['role']}: {m['content']}" for m in self.messages) or "Nothing was said yet.")
            case _ if word.startswith("/") and word[1:].isalpha():
                remark(f"There is no command {word}; /help lists them.")
            case _:
                self.say(line)
        return True

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}, *self.history] if self.system else self.history

    def say(self, text: str) -> None:
        """Answer, streaming. What was said before an interruption is kept."""
        question = {"role": "user", "content": text}
        answer = ""
        try:
            for piece in self.model.stream(self.model.chat_ids([*self.messages, question]), **self.settings):
                answer += piece
                print(piece, end="", flush=True)
            print(flush=True)
        finally:
            if answer:
                self.history += [question, {"role": "assistant", "content": answer}]
