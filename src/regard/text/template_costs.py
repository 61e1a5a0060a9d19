"""The allowlist of a chat template: filters, tests, methods and operators, and what each costs.

The tables below are complete: a filter, test or method that is not in them is refused by name. Each has a price, a function
that is called with the same arguments before the real one and charges the budget for what will be read and allocated. They
contain what the templates of published chat models use.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jinja2
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context
from jinja2.tests import TESTS as JINJA_TESTS

from regard.text.template_budget import (
    CONTAINERS,
    ELEMENT,
    ENTRY,
    ESCAPED,
    TemplateBudget,
    as_text,
    escaped,
    joined,
    listed,
    meter,
    size_of,
    walk,
)

Price = Callable[..., None]
NUMBER = 1_000  # characters of a text that is read as a number
DIGITS = 100  # that one is rounded to
FIELD = 400  # characters of a number in a format: a float has up to 309 digits before its point


def free(m: TemplateBudget, *args: Any, **kwargs: Any) -> None:
    """No cost beyond that of any call."""


def text(m: TemplateBudget, value: Any, *args: Any, **kwargs: Any) -> None:
    m.make(m.shown(value))


def compared(m: TemplateBudget, *args: Any, **kwargs: Any) -> None:
    m.weigh(args, kwargs)


def hashed(m: TemplateBudget, owner: Any, *args: Any) -> None:
    m.weigh(args)


def copied(m: TemplateBudget, value: Any, *args: Any) -> None:
    m.make(size_of(value))


def cased(m: TemplateBudget, value: Any, *args: Any) -> None:
    """Upper, lower and so on, which may lengthen a text: ﬃ becomes FFI."""
    size = m.shown(value)
    m.spend(size // 8)
    m.make(size if isinstance(value, str) and value.isascii() else 3 * size)


def titled(m: TemplateBudget, value: Any) -> None:
    """Jinja's own, word by word."""
    size = m.shown(value)
    m.spend(size)
    m.make(ELEMENT * size)


def tested(m: TemplateBudget, value: Any) -> None:
    m.spend(m.shown(value) // 32)


def html(m: TemplateBudget, value: Any) -> None:
    m.make(ESCAPED * m.shown(value))


def stripped(m: TemplateBudget, value: Any, chars: Any = None) -> None:
    size, among = m.shown(value), len(chars) if isinstance(chars, str) else 2
    m.spend(size * among // 256)
    m.make(escaped(size, value))


def searched(m: TemplateBudget, owner: str, part: Any = "", *args: Any) -> None:
    for each in part if isinstance(part, tuple) else (part,):
        m.search(owner, each)


def searched_backwards(m: TemplateBudget, owner: str, part: Any = "", *args: Any) -> None:
    m.search(owner, part, backwards=True)


def cut(m: TemplateBudget, owner: str, part: Any = None, *args: Any) -> None:
    """Partition, removeprefix and removesuffix."""
    searched_backwards(m, owner, part)
    m.make(escaped(len(owner), owner))


def split(m: TemplateBudget, owner: str, sep: Any = None, maxsplit: Any = -1) -> None:
    pieces = len(owner) // 2
    if isinstance(sep, str) and sep:
        m.search(owner, sep, backwards=True)
        pieces = owner.count(sep)
    if isinstance(maxsplit, int) and maxsplit >= 0:
        pieces = min(pieces, maxsplit)
    m.make(len(owner) + ELEMENT * (pieces + 1))


def split_lines(m: TemplateBudget, owner: str, *args: Any, **kwargs: Any) -> None:
    m.make(len(owner) * (1 + ELEMENT // 2))


def replaced(m: TemplateBudget, value: Any, old: Any, new: Any, count: Any = None) -> None:
    whole = as_text(value)
    if isinstance(old, str) and isinstance(new, str):
        m.search(whole, old)
        times = whole.count(old)
        if isinstance(count, int) and count >= 0:
            times = min(times, count)
        m.spend(times // 8)
        m.make(len(whole) + times * escaped(len(new), whole, old, new))


def padded(m: TemplateBudget, owner: str, width: Any, *args: Any) -> None:
    m.make(max(len(owner), width) if isinstance(width, int) else len(owner))


def joined_method(m: TemplateBudget, owner: str, items: Any) -> None:
    """`str.join`: the items may be a list, or a string, which is a sequence of characters."""
    if isinstance(items, str):
        m.make(escaped(len(items) * (1 + len(owner)), owner))
        m.spend(len(items) // 8)
        return
    m.weigh(items)
    lengths = sum(len(item) for item in items if isinstance(item, str))
    m.make(escaped(lengths + len(owner) * len(items), owner))


def indented(m: TemplateBudget, value: Any, width: Any = 4, *args: Any, **kwargs: Any) -> None:
    whole = as_text(value)
    split_lines(m, whole)
    step = len(width) if isinstance(width, str) else max(0, width) if isinstance(width, int) else 0
    lines = len(whole.splitlines()) + 1
    m.spend(lines)
    m.make(escaped(len(whole) + lines * (step + 1), whole, width))


def percent(m: TemplateBudget, template: Any, *args: Any, **kwargs: Any) -> None:
    """The % operator and the filter `format`: for each %, the widest field or all arguments."""
    template = as_text(template)
    m.spend(len(template))
    field = FIELD + m.shown((args, kwargs)) + max(widths(template), default=0)
    if "*" in template:
        field += max((abs(n) for n in walk((args, kwargs)) if isinstance(n, int)), default=0)
    m.make(escaped(len(template) + template.count("%") * field, template, *args))


def widths(spec: str) -> Iterator[int]:
    """The numbers in a format: in digits of any script, as Python reads them."""
    return (int(digits[0][:12]) for digits in re.finditer(r"\d+", spec))


def number(m: TemplateBudget, value: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(value, str) and len(value) > NUMBER:
        raise TypeError(f"a text of {len(value)} characters is no number")


def rounded(m: TemplateBudget, value: Any, precision: Any = 0, *args: Any, **kwargs: Any) -> None:
    if not isinstance(value, int | float) or not isinstance(precision, int) or abs(precision) > DIGITS:
        raise TypeError(f"only a number can be rounded, to at most {DIGITS} digits")
    m.whole(value)


def divided(m: TemplateBudget, *values: Any) -> None:
    if not all(isinstance(value, int | float) for value in values):
        raise TypeError("only a number can be divided")
    m.whole(*values)


def ordered(m: TemplateBudget, value: Any, *args: Any, **kwargs: Any) -> None:
    """Sort, min, max and unique: each item is compared with the logarithm of their number, in lower case."""
    count = len(value) if isinstance(value, (str, CONTAINERS)) else 0
    rounds = 2 + count.bit_length()
    m.spend(count * (rounds + 10 + path_length(*args, *kwargs.values())))
    m.make(2 * ELEMENT * count)
    for item in walk(value):
        length = len(item) if isinstance(item, str) else 0
        m.spend(rounds + length // 8 + length * rounds // 256)
        m.make(3 * length)


def hashed_items(m: TemplateBudget, value: Any, *args: Any, **kwargs: Any) -> None:
    """The same, and the hashes of tuples can be made to collide, which those of texts cannot."""
    ordered(m, value, *args, **kwargs)
    m.spend(sum(isinstance(item, tuple) for item in value) ** 2 if isinstance(value, CONTAINERS) else 0)


def lazily(m: TemplateBudget, value: Any, *args: Any, **kwargs: Any) -> None:
    """Map, select and so on: the cost of an item is charged when it is consumed."""
    m.weigh(args, kwargs)


def path_length(*given: Any) -> int:
    """Steps for looking up a path `a.b.c`, per item."""
    return 3 * sum(len(value) for value in given if isinstance(value, str))


def contained(m: TemplateBudget, part: Any, whole: Any) -> None:
    """`part in whole`."""
    if isinstance(whole, str):
        m.search(whole, part)
    elif not isinstance(whole, dict):
        m.weigh(whole)
    m.weigh(part)


def constructed(m: TemplateBudget, *args: Any, **kwargs: Any) -> None:
    """Arguments of range, namespace, dict and so on: copied at the first level, and keys are hashed."""
    m.whole(*args)
    m.spend(10 + 5 * len(kwargs))
    m.weigh(args, kwargs)
    for value in args:
        m.make(ENTRY * len(value) if isinstance(value, CONTAINERS) else 0)
        for pair in value if isinstance(value, list | tuple) else ():
            if isinstance(pair, list | tuple) and pair:
                as_key(pair[0])


def as_key(value: Any) -> Any:
    """A dictionary's key; the hashes of tuples can be made to collide."""
    if isinstance(value, tuple):
        raise TypeError("a tuple cannot be a key")
    return value


def power(m: TemplateBudget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        m.whole(left, right)
        m.whole(1 << min(max(0, left.bit_length() * right), 1 << 10))


def times(m: TemplateBudget, left: Any, right: Any) -> None:
    for many, often in ((left, right), (right, left)):
        if isinstance(many, str | list | tuple) and isinstance(often, int):
            m.make(size_of(many) * max(0, often))


def plus(m: TemplateBudget, left: Any, right: Any) -> None:
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        m.make(escaped(size_of(left) + size_of(right), left, right))


def modulo(m: TemplateBudget, left: Any, right: Any) -> None:
    if isinstance(left, str):
        percent(m, left, right)


OPERATORS: dict[str, Price] = {"+": plus, "*": times, "**": power, "%": modulo, "-": free, "/": free, "//": free}


# ── methods ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT_METHODS: dict[str, Price] = {
    **dict.fromkeys(("capitalize", "casefold", "lower", "swapcase", "title", "upper"), cased),
    **dict.fromkeys(("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower"), tested),
    **dict.fromkeys(("isnumeric", "isprintable", "isspace", "istitle", "isupper"), tested),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), stripped),
    **dict.fromkeys(("count", "endswith", "find", "index", "startswith"), searched),
    **dict.fromkeys(("rfind", "rindex"), searched_backwards),
    **dict.fromkeys(("partition", "rpartition", "removeprefix", "removesuffix"), cut),
    **dict.fromkeys(("split", "rsplit"), split),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), padded),
    "splitlines": split_lines,
    "replace": replaced,
    "join": joined_method,
}
METHODS: dict[type, dict[str, Price]] = {
    str: TEXT_METHODS,
    dict: {"items": free, "keys": free, "values": free, "get": hashed, "copy": copied},
    list: {"count": compared, "index": compared, "copy": copied},
    tuple: {"count": compared, "index": compared},
}
LOOP = {"changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"}
LOOP |= {"revindex", "revindex0"}


# ── filters and tests ───────────────────────────────────────────────────────────────────────────────────────────────


def attributes(environment: jinja2.Environment, value: Any, attribute: Any) -> Any:
    """The items of a value, or an attribute of each."""
    items = listed(value)
    if attribute is None:
        return items
    meter().spend(len(items) * (5 + path_length(attribute)))
    return map(make_attrgetter(environment, attribute), items)


@jinja2.pass_environment
def join(environment: jinja2.Environment, value: Any, d: Any = "", attribute: Any = None) -> str:
    if isinstance(value, str):
        meter().make(ELEMENT * len(value))
    return joined(str(as_text(d)), [str(as_text(item)) for item in attributes(environment, value, attribute)])


@jinja2.pass_context
def total(context: Context, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    """The sum, item by item, so that each addition is charged."""
    environment: Any = context.environment
    for item in attributes(environment, iterable, attribute):
        start = environment.call_binop(context, "+", start, item)
    return start


def tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON without the HTML escapes of Jinja's own filter, as `transformers` has it."""
    meter().make(meter().as_json(value, indent, separators, ensure_ascii))
    if sort_keys:
        ordered(meter(), value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


_PRICES: dict[str, Price] = {
    **dict.fromkeys(("abs", "count", "d", "default", "first", "items", "last", "length"), free),
    **dict.fromkeys(("capitalize", "lower", "upper"), cased),
    **dict.fromkeys(("map", "reject", "rejectattr", "select", "selectattr"), lazily),
    **dict.fromkeys(("dictsort", "max", "min", "sort"), ordered),
    **dict.fromkeys(("float", "int"), number),
    **dict.fromkeys(("safe", "string"), text),
    **dict.fromkeys(("e", "escape"), html),
    **dict.fromkeys(("list", "reverse"), copied),
    "format": percent,
    "indent": indented,
    "replace": replaced,
    "round": rounded,
    "title": titled,
    "trim": stripped,
    "unique": hashed_items,
}
# name → the filter and its price; those defined in this file charge the budget themselves
FILTERS: dict[str, tuple[Any, Price]] = {name: (JINJA_FILTERS[name], price) for name, price in _PRICES.items()}
FILTERS |= {"join": (join, free), "sum": (total, free), "tojson": (tojson, free)}

_COMPARED = ("!=", "<", "<=", "==", ">", ">=", "eq", "equalto", "ge", "greaterthan", "gt", "le", "lessthan", "lt", "ne")
_KINDS = ("boolean", "callable", "defined", "false", "float", "integer", "iterable", "mapping", "none", "number")
_MORE_KINDS = ("sameas", "sequence", "string", "true", "undefined")
_TEST_PRICES: dict[str, Price] = {
    **dict.fromkeys((*_KINDS, *_MORE_KINDS), free),
    **dict.fromkeys(_COMPARED, compared),
    **dict.fromkeys(("lower", "upper"), text),
    **dict.fromkeys(("divisibleby", "even", "odd"), divided),
    "in": contained,
}
TESTS: dict[str, tuple[Any, Price]] = {name: (JINJA_TESTS[name], price) for name, price in _TEST_PRICES.items()}
