"""Chat templates: a conversation → the text and the ids that a chat model expects.

In: messages (`{"role": …, "content": …}`) and the model's Jinja chat template. Out: the rendered text, exactly as
`transformers` renders it, or its ids. Control tokens written by the template are encoded as such; the same spelling inside
a message stays text, so that no message can end its turn and begin another (prompt injection).
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from typing import Any

import jinja2
from jinja2.utils import Namespace

from regard.errors import TemplateError
from regard.text.control_tokens import renaming_twin
from regard.text.template_budget import as_text
from regard.text.template_sandbox import MeteredEnvironment, run
from regard.text.tokenizer import Tokenizer

Message = Mapping[str, Any]
WINDOW = 1 << 16  # characters
PATTERN = 100  # characters of a date's pattern
MAX_CONTROL_TOKEN = 200  # characters


def render_chat(
    template: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    **variables: Any,
) -> str:
    """The conversation as text. `variables`: further variables of the template, such as `bos_token`, `eos_token`."""
    given = {
        "messages": _with_reasoning(_checked(messages)),
        "tools": None if tools is None else _plain(list(tools), "tools"),
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
    }
    given |= {name: _plain(value, name) for name, value in variables.items() if value is not None}
    return run(_ENVIRONMENT, template, given)


def encode_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template: str | None = None,
    most: int | None = None,
    **variables: Any,
) -> list[int]:
    """The conversation as ids, with the tokenizer's own template unless another is given.

    More than `most` ids are refused (`TooLong`) as soon as that is certain.
    """
    template = template or template_of(tokenizer, tools)
    specials = {f"{role}_token": token for role, token in tokenizer.specials.items()}

    def render(messages: Any, tools: Any) -> str:
        given = {"add_generation_prompt": add_generation_prompt, "tools": tools, **specials, **variables}
        return render_chat(template, messages, **given)

    text = render(messages, tools)
    tokenizer.check_length(text, most, allow_control=True)
    checked, plain_tools = _checked(messages), None if tools is None else _plain(list(tools), "tools")
    marks = _Marks(tokenizer, template, text + json.dumps([checked, plain_tools], ensure_ascii=False))
    marked_messages, marked_tools = marks.on_messages(checked), marks.on_tools(plain_tools)
    if marked_messages == checked and marked_tools == plain_tools:
        return tokenizer.encode(text, add_special=False, allow_control=True, most=most)
    marked = render(marked_messages, marked_tools)
    if marks.removed(marked) != text:
        raise TemplateError(
            "A message spells a control token, and the chat template changes it so that the two cannot be "
            "distinguished; leave the token out of the message."
        )
    return marks.encode(marked, most)


def template_of(tokenizer: Tokenizer, tools: Any = None) -> str:
    """The template for a conversation with or without tools."""
    templates = tokenizer.chat_templates
    name = "tool_use" if tools and "tool_use" in templates else "default"
    if name not in templates:
        raise TemplateError(
            f"{tokenizer.where} has no chat template; use generate, or a model that was trained on conversations."
        )
    return templates[name]


class _Marks:
    """Distinguishes control tokens written by the template from those spelled in messages.

    Every control spelling in a message is enclosed in two private-use characters, which pass through the template with it.
    A spelling without them in the output was written by the template. A message that ends like the beginning of a control
    token, or begins like the end of one, is marked there too, so that no two messages can form one together.
    """

    def __init__(self, tokenizer: Tokenizer, template: str, text: str):
        self.tokenizer = tokenizer
        added = tokenizer.raw.get_added_tokens_decoder().values()
        self.special = {token.content for token in added if token.special}
        written = {
            token.content for token in added if token.content in template
        }  # turns may also be delimited by these
        self.control = self.special | written
        if any(len(token) > MAX_CONTROL_TOKEN for token in self.control):
            raise TemplateError(f"{tokenizer.where} has a control token of more than {MAX_CONTROL_TOKEN} characters.")
        self.open, self.close, self.cut, self.name = _unused_characters(text + template, 4)

    def on_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ours = self._marker(self.special)  # an assistant message may contain what the template writes: <think>
        theirs = self._marker(self.control)
        return [_mapped(message, ours if message["role"] == "assistant" else theirs) for message in messages]

    def on_tools(self, tools: Any) -> Any:
        return _mapped(tools, self._marker(self.control))

    def removed(self, marked: str) -> str:
        return marked.translate(dict.fromkeys(map(ord, (self.open, self.close, self.cut))))

    def encode(self, marked: str, most: int | None) -> list[int]:
        """Ids of a marked text in one pass of the tokenizer, with control tokens under names that no message contains."""
        names = {token: f"{self.name}{i}{self.name}" for i, token in enumerate(sorted(self.control))}
        spelling = _alternatives(self.control)
        typed_or_written = re.compile(f"{self.open}({spelling}){self.close}|({spelling})")
        text = _substituted(typed_or_written, lambda m: m[1] or names[m[2]], marked, 2 + max(map(len, self.control)))
        twin, back = renaming_twin(self.tokenizer.plain, names)
        ids = self.tokenizer.encode_by(twin, lambda: self.tokenizer.pipeline.of(twin), self.removed(text), False, most)
        return [back.get(i, i) for i in ids]

    def _marker(self, control: set[str]) -> Callable[[str], str]:
        if not control:
            return lambda text: text
        whole = re.compile(_alternatives(control))
        starts, ends = _ProperPrefixes(control), _ProperPrefixes(token[::-1] for token in control)
        longest = max(map(len, control))

        def marked(text: str) -> str:
            text = _substituted(whole, lambda m: f"{self.open}{m[0]}{self.close}", text, longest)
            tail = text.rstrip()
            if any(tail[-n:] in starts for n in range(1, min(longest, len(tail) + 1))):
                text = tail + self.cut + text[len(tail) :]
            head = text.lstrip()
            if any(head[:n][::-1] in ends for n in range(1, min(longest, len(head) + 1))):
                text = text[: len(text) - len(head)] + self.cut + head
            return text

        return marked


class _ProperPrefixes:
    """The set of all proper prefixes of some texts, without storing them: a binary search in the sorted texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = sorted(texts)

    def __contains__(self, part: str) -> bool:
        after = bisect_right(self.texts, part)
        return after < len(self.texts) and self.texts[after].startswith(part)


def _substituted(pattern: re.Pattern[str], change: Callable[[re.Match[str]], str], text: str, longest: int) -> str:
    """`pattern.sub(change, text)` for matches of up to `longest` characters, a window at a time.

    One call of `re` holds the GIL, and with many alternatives a megabyte takes seconds.
    """
    parts, done = list[str](), 0
    for begin in range(0, len(text), WINDOW):
        for match in pattern.finditer(text, max(begin, done), begin + WINDOW + longest - 1):
            if match.start() >= begin + WINDOW:
                break
            parts += text[done : match.start()], change(match)
            done = match.end()
    return "".join([*parts, text[done:]])


def _alternatives(spellings: Iterable[str]) -> str:
    """A regular expression matching any of these, the longest possible one, as the tokenizer does.

    It is a trie of their common prefixes: otherwise each position of a text would be compared with thousands of control
    tokens (Gemma has 6,000 with a common prefix).
    """
    branches = []
    for _, group in groupby(sorted(spellings), key=lambda spelling: spelling[:1]):
        words = list(group)
        first, last = words[0], words[-1]  # sorted, so the prefix common to these two is common to all
        start = first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]
        rest = [word[len(start) :] for word in words if word != start]
        inside = f"(?:{_alternatives(rest)}){'?' if start in words else ''}" if rest else ""
        branches.append(re.escape(start) + inside)
    return "|".join(branches)


def _unused_characters(text: str, n: int) -> list[str]:
    """n private-use characters (of 6400) that do not occur in the text."""
    used = set(text)
    free = list(islice((c for c in map(chr, range(0xE000, 0xF900)) if c not in used), n))
    if len(free) < n:
        raise TemplateError(
            "The conversation uses every private-use character of Unicode, which leaves none to mark it."
        )
    return free


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """`change` applied to every string in a structure, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return value


# ── inputs of a template ────────────────────────────────────────────────────────────────────────────────────────────


def _checked(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as plain values, refused unless each has a role and content."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise TemplateError("A conversation is a list of at least one message with a role and a content.")
    return [_checked_message(message, n) for n, message in enumerate(messages)]


def _checked_message(message: Any, n: int) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TemplateError(
            f"Message {n} is {type(message).__name__}; an object with a role and a content was expected."
        )
    if not isinstance(message.get("role"), str):
        raise TemplateError(f"Message {n} has no role; give it one, such as 'user'.")
    content = message.get("content")
    parts = isinstance(content, list) and all(
        isinstance(p, Mapping) and isinstance(p.get("type"), str) for p in content
    )
    if not (isinstance(content, str) or parts or (content is None and message.get("tool_calls"))):
        raise TemplateError(f"Message {n} ({message['role']}) has no text as its content.")
    plain: dict[str, Any] = _plain(message, f"message {n}")
    return plain


def _plain(value: Any, what: str) -> Any:
    """A copy with JSON types only: nothing else may enter the sandbox."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, what) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, what) for item in value]
    raise TemplateError(f"A {type(value).__name__} in {what} cannot be given to a chat template; use JSON values.")


def _with_reasoning(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, with reasoning under each of the names that templates use for it."""
    names = ("reasoning_content", "thinking", "reasoning")
    reasoning = [next((m[name] for name in names if m.get(name) is not None), None) for m in messages]
    return [
        m if text is None else {"thinking": text, **m, "reasoning_content": text}
        for m, text in zip(messages, reasoning, strict=True)
    ]


# ── globals of a template ───────────────────────────────────────────────────────────────────────────────────────────


class _Namespace(Namespace):
    """Jinja's namespace, without private attributes."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _check_public(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"  # Jinja's repr shows all contents, of any length


def _check_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"{name!r} may not be stored on a namespace")


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(as_text(message))


def _strftime_now(pattern: str) -> str:
    if len(pattern) > PATTERN:
        raise jinja2.TemplateError(f"a date's pattern has at most {PATTERN} characters")
    return datetime.now().strftime(pattern)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


_ENVIRONMENT = MeteredEnvironment(
    variables={
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "namespace": _Namespace,
        "dict": _dict,
    },
)
