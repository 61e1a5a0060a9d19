"""A sandbox for untrusted Jinja chat templates: limits on operations, time and memory.

In: a template's source and plain values. Out: the text it renders, or a `TemplateError`.

Jinja's immutable sandbox protects Python's internals, but does not limit time. A time limit
from outside would need signals (main thread only), tracing (slow) or a process per render, so the work is metered
instead: the compiled template carries a counter in every loop and macro body, and every operator, filter, test and call
is charged for what it reads and allocates before it runs, at the prices of template_costs.py. What has no price is not
available. The same template with the same input therefore always stops at the same place, in any thread.
"""

import types
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial, wraps
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.lexer import Token, TokenStream
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from regard.errors import TemplateError, one_line
from regard.text.template_budget import (
    ELEMENT,
    OverLimit,
    TemplateBudget,
    as_text,
    each,
    joined,
    leave,
    listed,
    meter,
    size_of,
    use,
)
from regard.text.template_costs import (
    FIELD,
    FILTERS,
    LOOP,
    METHODS,
    OPERATORS,
    TESTS,
    Price,
    as_key,
    compared,
    constructed,
    contained,
    free,
    lazily,
    path_length,
    widths,
)

SOURCE = 64_000  # characters of template source
WORDS = 10_000  # names, numbers, operators …; compiling these takes a fraction of a second
_CALLS = (nodes.Call, nodes.Filter, nodes.Test, nodes.Getattr, nodes.Getitem, nodes.BinExpr, nodes.Compare)
_CALL = 5  # steps for calling anything
_JINJAS_OWN = ("_loop_vars", "_block_vars")  # arguments that Jinja adds to a call


class Generation(Extension):
    """`{% generation %}` marks assistant text, for training with transformers; here it is only a scope."""

    tags = {"generation"}  # noqa: RUF012 – Jinja's own declaration

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """The lexer's tokens, counted against a limit."""
        for count, token in enumerate(stream):
            if count >= WORDS:
                raise TemplateSyntaxError(f"it has more than {WORDS} words", token.lineno)
            yield token

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Instrument(NodeTransformer):
    """Inserts metering into a template's syntax tree, where Jinja has no hook for it."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        cost = _size(node)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "regard.each", nodes.Const(cost))
        if node.recursive:  # `loop(children)` enters the body and the condition without passing `iter`
            node.body.insert(0, _tick(cost))
            node.test = node.test and _filtered(node.test, "regard.ticked", nodes.Const(cost))
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

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        first = node.ops[0]
        if len(node.ops) == 1 and first.op in ("in", "notin"):
            found = _filtered(node.expr, "regard.in", first.expr)
            return found if first.op == "in" else nodes.Not(found, lineno=node.lineno)
        if any(operand.op in ("in", "notin") for operand in node.ops):
            _refuse(node, "a chain of comparisons with `in`")
        node.expr = _filtered(node.expr, "regard.weighed")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "regard.weighed")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        parts = (node.arg.start, node.arg.stop, node.arg.step)
        return _filtered(node.node, "regard.slice", *(part or nodes.Const(None) for part in parts))

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _filtered(node.key, "regard.key")
        return node

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return node if getattr(node, "ctx", "load") == "store" else _filtered(node, "regard.made")

    visit_Tuple = visit_Dict = visit_List

    def visit_Call(self, node: nodes.Call | nodes.Filter | nodes.Test) -> nodes.Node:
        self.generic_visit(node)
        node.dyn_args = node.dyn_args and _filtered(node.dyn_args, "regard.spread")
        node.dyn_kwargs = node.dyn_kwargs and _filtered(node.dyn_kwargs, "regard.spread")
        return node

    visit_Filter = visit_Test = visit_Call

    def visit_Block(self, node: nodes.Node) -> nodes.Node:
        _refuse(node, f"{{% {type(node).__name__.lower()} %}}")

    visit_Extends = visit_Include = visit_Import = visit_FromImport = visit_Block

    def visit_ScopedEvalContextModifier(self, node: nodes.Node) -> nodes.Node:
        _refuse(node, "{% autoescape %}")


def _refuse(node: nodes.Node, what: str) -> NoReturn:
    raise TemplateSyntaxError(f"{what} has no place in a chat template", node.lineno)


def _size(node: nodes.Node) -> int:
    """Steps for executing it once; output and calls cost more than other instructions."""
    dear = sum(len(output.nodes) for output in node.find_all(nodes.Output)) + sum(1 for _ in node.find_all(_CALLS))
    return 1 + sum(1 for _ in node.find_all(nodes.Node)) + 4 * dear


def _filtered(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _tick(cost: int) -> nodes.Node:
    return nodes.ExprStmt(_filtered(nodes.Const(cost), "regard.tick"))


def _concat(values: list[Any]) -> str:
    return joined("", [str(as_text(value)) for value in values])


def _weighed(value: Any) -> Any:
    meter().weigh(value)
    return value


def _made(value: Any) -> Any:
    meter().make(size_of(value))
    return value


def _ticked(value: Any, cost: int) -> Any:
    meter().spend(cost)
    return value


def _in(part: Any, whole: Any) -> bool:
    whole = listed(whole)
    contained(meter(), part, whole)
    return part in whole


def _slice(value: Any, start: Any, stop: Any, step: Any) -> Any:
    part = slice(start, stop, step)
    if isinstance(value, str | list | tuple):
        per_item = 1 if isinstance(value, str) else ELEMENT
        meter().make(per_item * len(range(len(value))[part]))
    return value[part]


_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "regard.concat": _concat,
    "regard.each": each,
    "regard.in": _in,
    "regard.key": as_key,
    "regard.made": _made,
    "regard.slice": _slice,
    "regard.spread": lambda values: _made(_made(listed(values))),  # as arguments, and as what is made of them
    "regard.tick": lambda cost: meter().spend(cost),
    "regard.ticked": _ticked,
    "regard.weighed": _weighed,
}


@jinja2.pass_context  # which also keeps Jinja from rendering constants while compiling, unmetered
def _finalize(context: Context, value: Any) -> Any:
    return as_text(value)


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a price on every operation; operations without a price are not available."""

    intercepted_binops = frozenset(OPERATORS)
    concat = staticmethod(lambda texts: joined("", list(texts)))

    def __init__(self, variables: Mapping[str, Callable[..., Any]]):
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # constants are computed under the meter, not by the compiler
            finalize=_finalize,
            extensions=[Generation, loopcontrols],
        )
        self.globals = {"range": self.globals["range"], **variables}
        self.filters = {name: _paid(*each) for name, each in FILTERS.items()} | _OWN_FILTERS
        self.tests = {name: _paid(*each) for name, each in TESTS.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template: nodes.Template = _Instrument().visit(super()._parse(source, name, filename))
        return template

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, Namespace):
            return super().is_safe_attribute(obj, attr, value)
        return attr in LOOP if isinstance(obj, LoopContext) else _price_of_method(obj, attr) is not None

    def wrap_str_format(self, value: Any) -> "_Format | None":
        owner = getattr(value, "__self__", None)
        named = isinstance(value, types.BuiltinMethodType) and value.__name__ in ("format", "format_map")
        return _Format(self, owner, value.__name__) if named and type(owner) is str else None

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        meter().spend(_CALL)
        if not isinstance(__obj, Macro | _Format | jinja2.Undefined):  # these charge the budget themselves, or fail
            args = tuple(listed(value) for value in args)
            given = {name: value for name, value in kwargs.items() if name not in _JINJAS_OWN}
            __self._price_of_call(__obj)(*args, **given)
        return super().call(__context, __obj, *args, **kwargs)

    def _price_of_call(self, called: Any) -> Callable[..., None]:
        if isinstance(called, LoopContext) or isinstance(getattr(called, "__self__", None), LoopContext):
            return partial(compared, meter())
        if any(called is each for each in self.globals.values()):
            return partial(constructed, meter())
        if isinstance(called, types.BuiltinMethodType | types.MethodType):  # those of Markup are written in Python
            price = _price_of_method(called.__self__, called.__name__)
            if price is not None:
                return partial(price, meter(), called.__self__)
        raise SecurityError(f"{getattr(called, '__name__', type(called).__name__)} may not be called")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        m = meter()
        m.spend(_CALL)
        m.whole(left, right)
        OPERATORS[operator](m, left, right)
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(obj, as_key(argument))


def _price_of_method(owner: Any, name: str) -> Price | None:
    return next((prices.get(name) for kind, prices in METHODS.items() if isinstance(owner, kind)), None)


def _paid(function: Any, price: Price) -> Callable[..., Any]:
    """A filter or test that charges its price first."""
    passed = 0 if getattr(function, "jinja_pass_arg", None) is None else 1  # Jinja's context, or its environment

    @wraps(function)
    def paid(*args: Any, **kwargs: Any) -> Any:
        meter().spend(_CALL)
        given = list(args[passed:])
        if price is not free and price is not lazily:
            given = [listed(value) for value in given]
        price(meter(), *given, **kwargs)
        result = function(*args[:passed], *given, **kwargs)
        return (
            each(result, _CALL + path_length(*given[1:], *kwargs.values())) if isinstance(result, Iterator) else result
        )

    return paid


class _Format(SandboxedFormatter):
    """`'…'.format` of a template: every field is charged for its width, however it is specified."""

    def __init__(self, environment: MeteredEnvironment, template: str, name: str):
        super().__init__(environment)
        self.template, self.name = template, name

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        meter().make(len(self.template))
        meter().spend(10 * self.template.count("{"))
        if self.name == "format_map":
            (mapping,) = args
            return self.vformat(self.template, (), mapping)
        return self.vformat(self.template, args, kwargs)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is not None:
            meter().make(10 * meter().shown(value))
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        meter().spend(len(format_spec))
        meter().make(FIELD + sum(widths(format_spec)) + 2 * meter().shown(value))
        return str(super().format_field(value, format_spec))


@lru_cache(maxsize=16)
def compiled(environment: MeteredEnvironment, source: str) -> jinja2.Template:
    return environment.from_string(source)


def run(environment: MeteredEnvironment, source: str, variables: Mapping[str, Any]) -> str:
    """Render a template; a TemplateError says why it failed."""
    if len(source) > SOURCE:
        raise TemplateError(f"The chat template has {len(source)} characters; {SOURCE} are allowed.")
    budget = TemplateBudget(variables)
    token = use(budget)
    try:
        chunks: list[str] = []
        for chunk in compiled(environment, source).generate(variables):
            budget.make(len(chunk))
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
        leave(token)


def _reason(error: Exception) -> str:
    return one_line(str(error)).rstrip(".") or type(error).__name__
