"""`regard chat`: a conversation with a chat model, streamed."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import (
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
    print_stderr,
    stdin_lines,
    text_or_stdin,
)
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.api import Model

ANSWER_LENGTH = 512  # tokens, or the model's context if that is shorter
HELP = """/system TEXT     start over with this system message; without TEXT, with none
/reset           start over with the same system message
/undo            remove the last message and its answer
/history         show the conversation
/help            show this list
/exit            exit; so does Ctrl-D (Ctrl-C only stops an answer)"""


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A chat model; by default smollm2.")] = "smollm2",
    message: Annotated[
        str | None, typer.Argument(help="One message to answer, instead of a conversation.", metavar="MESSAGE")
    ] = None,
    system: Annotated[str | None, typer.Option(help="The system message.", metavar="TEXT")] = None,
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
    """Chat with a model. In the conversation, /help lists the commands. If standard input is not a terminal, each of its
    lines is a message.

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
    loaded.chat_ids(single or "Hello")  # a model that cannot chat is refused before the user types
    settings.setdefault("max_new_tokens", min(ANSWER_LENGTH, loaded.spec.context))
    conversation = Conversation(loaded, settings, system)
    if single is not None:
        conversation.answer(single)
    elif sys.stdin.isatty():
        print_stderr(f"Chatting with {loaded.name}. /help lists commands, /exit exits.")
        run_interactively(conversation)
    else:
        for line in stdin_lines():
            if line.strip() and not conversation.handle_line(line.strip()):
                return


def run_interactively(conversation: "Conversation") -> None:
    """Read messages from the terminal: Ctrl-C stops an answer, Ctrl-D exits."""
    for line in typed_lines():
        try:
            if line and not conversation.handle_line(line):
                return
        except KeyboardInterrupt:
            print(flush=True)
        except RegardError as problem:
            print_stderr(f"regard: {problem}")


def typed_lines() -> Iterator[str]:
    with suppress(ImportError):
        import readline  # noqa: F401  line editing and history for input()
    prompt = "> "
    while True:
        try:
            if sys.stdout.isatty():
                yield input(prompt).strip()
            else:
                print(prompt, end="", file=sys.stderr, flush=True)
                yield input().strip()
        except EOFError:
            print_stderr("")
            return
        except KeyboardInterrupt:
            print_stderr("\n/exit or Ctrl-D exits.")


class Conversation:
    """The conversation so far, and what a line typed by the user does to it."""

    def __init__(self, model: "Model", settings: dict[str, Any], system: str | None = None) -> None:
        self.model, self.settings = model, settings
        self.system = system
        self.history: list[dict[str, str]] = []  # user, assistant, user, assistant, …

    def handle_line(self, line: str) -> bool:
        """Run a command or answer a message; False if it was /exit."""
        word, _, rest = line.partition(" ")
        match word:
            case "/exit" | "/quit":
                return False
            case "/help":
                print_stderr(HELP)
            case "/reset":
                self.history = []
                print_stderr("The conversation starts over.")
            case "/system":
                self.system, self.history = rest.strip() or None, []
                print_stderr("The conversation starts over.")
            case "/undo":
                print_stderr("The last exchange is removed." if self.history else "There are no messages yet.")
                self.history = self.history[:-2]
            case "/history":
                print_stderr(
                    "\n".join(f"{m['role']}: {m['content']}" for m in self.messages) or "There are no messages yet."
                )
            case _ if word.startswith("/") and word[1:].isalpha():
                print_stderr(f"There is no command {word}; /help lists them.")
            case _:
                self.answer(line)
        return True

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}, *self.history] if self.system else self.history

    def answer(self, text: str) -> None:
        """Stream an answer to a message. An answer that is interrupted stays in the history as far as it came."""
        question = {"role": "user", "content": text}
        reply = ""
        try:
            for piece in self.model.stream(self.model.chat_ids([*self.messages, question]), **self.settings):
                reply += piece
                print(piece, end="", flush=True)
            print(flush=True)
        finally:
            if reply:
                self.history += [question, {"role": "assistant", "content": reply}]
