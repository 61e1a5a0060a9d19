"""Runs a stranger's Jinja template with limits on what it may do, how long and how much.

In: a template's source and plain values. Out: the text it renders, or a `TemplateError`.

Jinja's immutable sandbox keeps a template away from Python's internals, but lets it compute for hours. A time limit
from outside would need signals (main thread only), tracing (slow) or a process per render, so the work is metered
instead: the compiled template carries a counter in every loop and macro body, and every operator, filter, test and call
pays for the size of what it touches before it runs. The same template with the same input therefore always stops at
the same place, in any thread. A step is about a third of a microsecond.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from regard.errors import TemplateError

STEPS = 2_000_000  # plus STEPS_PER_VALUE for every value given to the template
STEPS_PER_VALUE = 1_000
TEXT = 1_000_000  # characters, plus TEXT_PER_CHARACTER for every one given
TEXT_PER_CHARACTER = 8
SOURCE = 64_000  # characters of template source; compiling takes up to a second for these
BITS = 10_000  # of a whole number

_CALL = 5  # steps for calling anything
# filters and tests that look no deeper than the first level of their arguments
_SHALLOW_FILTERS = {"attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list", "map"}
_SHALLOW_FILTERS |= {"reject", "rejectattr", "reverse", "select", "selectattr", "slice"}
_SHALLOW_TESTS = {"boolean", "defined", "false", "float", "integer", "iterable", "mapping", "none", "number"}
_SHALLOW_TESTS |= {"sequence", "string", "true", "undefined"}
# filters that go through their first argument item by item, in Python
_ITERATING = {"batch", "dictsort", "groupby", "join", "list", "map", "max", "min", "reject", "rejectattr", "select"}
_ITERATING |= {"selectattr", "slice", "sort", "sum", "unique"}
# calls whose numbers and texts say how much to add at each place
_PADDING = {"batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "tojson", "zfill"}
_FORMATTING = {"format", "format_map"}
_HIDDEN = ("encode", "to_bytes", "translate")  # methods of text and numbers no chat template needs
_ABSENT = ("lipsum", "pprint", "striptags", "urlize", "wordwrap")  # no use here, and slow on hostile text


class OverLimit(Exception):
    """The template worked too long or wrote too much."""


class Meter:
    """What one rendering may still do."""

    def __init__(self, given: Any):
        self.steps, self.text = STEPS, TEXT
        values = characters = 0
        for value in _walk(given):
            values += 1
            characters += len(value) if isinstance(value, str) else 0
        self.steps += STEPS_PER_VALUE * values
        self.text += TEXT_PER_CHARACTER * characters

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise OverLimit("it takes too long")

    def fits(self, characters: int) -> None:
        if characters > self.text:
            raise OverLimit("it makes too long a text")

    def weigh(self, *values: Any) -> None:
        """Pay for everything inside these values."""
        for value in _walk(values):
            self.spend(1 + len(value) // 256 if isinstance(value, str) else 1)

    def glance(self, *values: Any) -> None:
        """Pay for these values' own length."""
        for value in values:
            if isinstance(value, str):
                self.spend(len(value) // 256)
            elif isinstance(value, list | tuple | dict | range):
                self.spend(len(value) // 4)


_meter: ContextVar[Meter] = ContextVar("template meter")


def _walk(value: Any) -> Iterator[Any]:
    """A value and all it contains, again for every time it is contained."""
    pending = [value]
    while pending:
        value = pending.pop()
        yield value
        if isinstance(value, dict):
            pending += value.keys()
            pending += value.values()
        elif isinstance(value, list | tuple | range):
            pending += value


class Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training elsewhere; here it is only a scope."""

    tags = {"generation"}  # noqa: RUF012 – Jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Instrument(NodeTransformer):
    """Puts the meter into a template's syntax tree, where Jinja has no hook for it."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        cost = _size(node)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "regard.each", nodes.Const(cost))
        if node.recursive:  # `loop(children)` enters the body without passing `iter`
            node.body.insert(0, _tick(cost))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        cost = _size(node)
        self.generic_visit(node)
        node.body.insert(0, _tick(cost))
        return node

    visit_CallBlock = visit_Macro

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes), "regard.concat")

    def visit_Operand(self, node: nodes.Operand) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "regard.weighed")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "regard.weighed")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):  # compiled to a plain subscript
            node.node = _filtered(node.node, "regard.glanced")
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # a dictionary's key is hashed
        self.generic_visit(node)
        node.key = _filtered(node.key, "regard.weighed")
        return node


def _size(node: nodes.Node) -> int:
    return 1 + sum(1 for _ in node.find_all(nodes.Node))


def _filtered(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _tick(cost: int) -> nodes.Node:
    return nodes.ExprStmt(_filtered(nodes.Const(cost), "regard.tick"))


def _each(values: Iterable[Any], cost: int) -> Iterator[Any]:
    for value in values:
        _meter.get().spend(cost)
        yield value


def _concat(values: list[Any]) -> str:
    _meter.get().weigh(values)
    texts = [str(value) for value in values]
    return _join(texts)


def _weighed(value: Any) -> Any:
    _meter.get().weigh(value)
    return value


def _glanced(value: Any) -> Any:
    _meter.get().glance(value)
    return value


def _join(texts: Iterable[str]) -> str:
    texts = list(texts)
    _meter.get().fits(sum(map(len, texts)))
    return "".join(texts)


_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "regard.each": _each,
    "regard.concat": _concat,
    "regard.weighed": _weighed,
    "regard.glanced": _glanced,
    "regard.tick": lambda cost: _meter.get().spend(cost),
}


@jinja2.pass_context  # which also keeps Jinja from rendering constants while compiling, unmetered
def _finalize(context: Context, value: Any) -> Any:
    _meter.get().weigh(value)
    return value


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a meter on every operation."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)
    concat = staticmethod(_join)

    def __init__(self, filters: Mapping[str, Callable[..., Any]], variables: Mapping[str, Any]):
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # constants are computed under the meter, not by the compiler
            finalize=_finalize,
            extensions=[Generation, loopcontrols],
        )
        self.globals.update(variables)
        self.filters.update(filters)
        for name in _ABSENT:
            self.filters.pop(name, None)
            self.globals.pop(name, None)
        for table, shallow in ((self.filters, _SHALLOW_FILTERS), (self.tests, _SHALLOW_TESTS)):
            for name, function in table.items():
                table[name] = _paid(name, function, name in shallow)
        self.filters.update(_OWN_FILTERS)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _HIDDEN and super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template: nodes.Template = _Instrument().visit(super()._parse(source, name, filename))
        return template

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        meter = _meter.get()
        meter.spend(_CALL)
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps `str.format`
        owner = getattr(method, "__self__", None)
        meter.glance(owner)
        if not isinstance(__obj, Macro):
            meter.weigh(args, kwargs)
            _check_growth(meter, getattr(method, "__name__", ""), owner, (*args, *kwargs.values()))
        return _received(meter, super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        meter = _meter.get()
        meter.spend(_CALL)
        _check_operator(meter, operator, left, right)
        meter.glance(left, right)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):
            _meter.get().weigh(argument)
        return super().getitem(obj, argument)


def _paid(name: str, function: Any, shallow: bool) -> Callable[..., Any]:
    """A filter or test that pays for its arguments first."""

    @wraps(function)
    def paid(*args: Any, **kwargs: Any) -> Any:
        meter = _meter.get()
        meter.spend(_CALL)
        (meter.glance if shallow else meter.weigh)(*args, *kwargs.values())
        plain = [value for value in args if not isinstance(value, Context | jinja2.Environment | nodes.EvalContext)]
        owner = plain[0] if plain else None
        if name in _ITERATING and isinstance(owner, str | list | tuple | dict | range):
            meter.spend(10 * len(owner))
        _check_growth(meter, name, owner, (*plain[1:], *kwargs.values()))
        return _received(meter, function(*args, **kwargs))

    return paid


def _received(meter: Meter, result: Any) -> Any:
    meter.glance(result)
    if isinstance(result, str):
        meter.fits(len(result))
    return result


def _check_growth(meter: Meter, name: str, owner: Any, args: tuple[Any, ...]) -> None:
    """Refuse, before it happens, a call whose result is much larger than all that goes in."""
    if name == "replace" and len(args) >= 2 and all(isinstance(a, str) for a in args[:2]):
        text = str(owner)
        meter.fits(len(text) + text.count(args[0]) * len(args[1]))
    elif name == "join":
        short, long = sorted([0, 0, *(len(value) for value in (owner, *args) if isinstance(value, str))])[-2:]
        meter.fits(max(short, sum(1 for _ in _walk([owner, *args]))) * long)
    elif name in _PADDING:
        amounts = (len(v) if isinstance(v, str) else abs(v) for v in _walk(args) if isinstance(v, str | int))
        meter.fits(_places([owner]) * max(amounts, default=0))
    elif name in _FORMATTING and isinstance(owner, str):
        meter.fits(_places([owner]) * _width(owner, args))


def _check_operator(meter: Meter, operator: str, left: Any, right: Any) -> None:
    """Refuse, before it happens, an operation whose result is much larger than its operands."""
    if isinstance(left, int) and isinstance(right, int) and operator in ("*", "**"):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        if bits > BITS:
            raise OverLimit("it computes with huge numbers")
    elif operator == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, str | list | tuple) and isinstance(times, int):
                meter.fits(len(many) * times)
                meter.spend(max(0, len(many) * times) // 256)
    elif operator == "+" and isinstance(left, str) and isinstance(right, str):
        meter.fits(len(left) + len(right))
    elif operator == "%" and isinstance(left, str):
        meter.weigh(right)
        meter.fits(_places([left]) * _width(left, right if isinstance(right, tuple) else (right,)))


def _places(values: Any) -> int:
    """At how many places a text or structure could be padded."""
    return sum(1 + sum(map(v.count, "\n\t{%")) if isinstance(v, str) else 1 for v in _walk(values))


def _width(template: str, args: tuple[Any, ...]) -> int:
    """The widest field a format string asks for, by itself or through an argument."""
    widths = [int(digits) for digits in re.findall(r"\d{1,12}", template)]
    if re.search(r"%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{", template):
        widths += [abs(n) for n in _walk(args) if isinstance(n, int)]
    return max(widths, default=0)


@lru_cache(maxsize=16)
def compiled(environment: MeteredEnvironment, source: str) -> jinja2.Template:
    return environment.from_string(source)


def run(environment: MeteredEnvironment, source: str, variables: Mapping[str, Any]) -> str:
    """Render a template, or say in one sentence why not."""
    if len(source) > SOURCE:
        raise TemplateError(f"The chat template has {len(source)} characters; {SOURCE} are allowed.")
    meter = Meter(variables)
    token = _meter.set(meter)
    try:
        chunks: list[str] = []
        written = 0
        for chunk in compiled(environment, source).generate(variables):
            written += len(chunk)
            meter.fits(written)
            chunks.append(chunk)
        return "".join(chunks)
    except OverLimit as error:
        raise TemplateError(f"The chat template was stopped because {error}.") from None
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"The chat template is not valid Jinja: line {error.lineno}, {_reason(error)}.") from None
    except jinja2.TemplateError as error:
        raise TemplateError(f"The chat template refused the conversation: {_reason(error)}.") from None
    except Exception as error:  # a template may fail in as many ways as a program
        raise TemplateError(f"The chat template failed on the conversation: {_reason(error)}.") from None
    finally:
        _meter.reset(token)


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__
