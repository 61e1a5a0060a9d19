"""Chat templates from strangers: kept in their sandbox, stopped when they work too long or write too much."""

import threading
import time
import tracemalloc
from typing import Any

import pytest

import tiny_tokenizers as tiny
from regard.errors import TemplateError
from regard.text.chat_template import encode_chat, render_chat
from regard.text.tokenizer import Tokenizer

HI = [{"role": "user", "content": "hi"}]
TWICE = "{{% set ns = namespace(x={0}, y={0}) %}}{{% for i in range(60) %}}{{% set ns.x = {1} %}}{{% endfor %}}"
LONG = "{% set s = 'a' * 900000 %}"
BOMBS = {
    "a long range": "{% for i in range(10**9) %}{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a loop that filters all": "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "a long body": "{% for i in range(99999) %}" + "{% set a = i %}" * 2000 + "{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a tree of calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a recursive loop": "{% for x in [1] recursive %}{{ loop(range(99999)) }}{% endfor %}",
    "calls in calls": "{% macro m() %}{% for i in range(99999) %}{{ caller() }}{% endfor %}{% endmacro %}"
    "{% call m() %}{% for j in range(99999) %}{% endfor %}{% endcall %}",
    "repetition": "{{ 'a' * 10**9 }}",
    "list repetition": "{% set x = [0] * 10**9 %}",
    "powers": "{% set ns = namespace(x=7) %}{% for i in range(99) %}{% set ns.x = ns.x ** 9 %}{% endfor %}",
    "doubling": TWICE.format("'a'", "ns.x + ns.x"),
    "doubling by ~": TWICE.format("'a'", "ns.x ~ ns.x"),
    "nested lists shown": TWICE.format("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
    "nested lists as text": TWICE.format("[1]", "[ns.x, ns.x]") + "{% set t = ns.x | string %}",
    "nested lists as JSON": TWICE.format("[1]", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "nested lists compared": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "nested tuples hashed": TWICE.format("(1,)", "(ns.x, ns.x)") + "{% set d = {ns.x: 1} %}",
    "padding": "{{ 'a'.ljust(10**9) }}",
    "centring": "{{ 'a' | center(10**9) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format width by argument": "{{ '{:{}}'.format(1, 10**9) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent width by argument": "{{ '%*d' % (10**9, 1) }}",
    "percent filter": "{{ '%1000000000s' | format('a') }}",
    "replacing": LONG + "{{ s.replace('a', s) }}",
    "replacing, as a filter": LONG + "{{ s | replace('a', s) }}",
    "joining": LONG + "{{ s.join(s) }}",
    "joining, as a filter": LONG + "{{ s | join(s) }}",
    "indenting": "{% set s = 'a\n' * 400000 %}{{ s | indent(9999) }}",
    "JSON indents": "{{ [[1]] | tojson(indent=10**9) }}",
    "rounding": "{{ 1.5 | round(10**9, 'ceil') }}",
    "translating": LONG + "{{ s.translate({97: s}) }}",
    "bytes": LONG + "{% set b = s.encode() %}{{ b.replace(b[:1], b) }}",
    "slices": "{{ [1] | slice(10**9) | list }}",
    "batches": "{{ [1] | batch(10**9, 0) | list }}",
    "a string sorted": LONG + "{{ s | sort | first }}",
    "a string sliced": LONG + "{% for i in range(99999) %}{% set t = s[1:] %}{% endfor %}",
    "a string searched": LONG + "{% for i in range(99999) %}{% set t = 'b' in s %}{% endfor %}",
    "a string changed": LONG + "{% for i in range(99999) %}{% set t = s.upper() %}{% endfor %}",
    "sums": "{% for i in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "maps": "{% for i in range(99999) %}{{ range(99999) | map('string') | join | length }}{% endfor %}",
    "output": "{% for i in range(99999) %}" + "b" * 9999 + "{% endfor %}",
    "output kept": "{% set x %}{% for i in range(99999) %}" + "b" * 9999 + "{% endfor %}{% endset %}",
    "a long source": "{{ a.b }}" * 20_000,
    "a deep expression": "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
    "deep loops": "{% for i in [1] %}" * 90 + "{% endfor %}" * 90,
}


ALWAYS, END = "{% for i in range(99999) %}", "{% endfor %}"
# x and y, t, d: structures that are small in memory and have 2^60 values inside
DEEP = (
    "{% set ns = namespace(x=[1], y=[1], t=(1,), d={}) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% set ns.y = [ns.y, ns.y] %}{% set ns.t = (ns.t, ns.t) %}{% set ns.d = {'a': ns.d, 'b': ns.d} %}{% endfor %}"
)
KEPT = "{% set ns = namespace(x=[]) %}" + ALWAYS + "{% set ns.x = [ns.x, %s] %}" + END
COLLIDING = "[" + ",".join(f"({','.join('-1' if i >> b & 1 else '-2' for b in range(10))})" for i in range(400)) + "]"

# what one step of Jinja could do without limit: the work is in a filter, method, operator or format
BUILT_IN = {
    "lists summed": "{{ ([[1]] * 150000) | sum(start=[]) }}",
    "short lists summed": ALWAYS + "{{ (([[1]] * 900) | sum(start=[])) | length }}" + END,
    "titles": LONG + ALWAYS + "{% set t = s | title %}" + END,
    "titles, as a method": LONG + ALWAYS + "{% set t = s.title() %}" + END,
    "letters that grow": "{% set s = '\u0390' * 300000 %}" + ALWAYS + "{% set t = s | upper %}" + END,
    "a width in a text": "{{ '{:{}}'.format(1, '3' ~ '0' * 9) }}",
    "a width in two texts": "{{ '{0:{1}{2}}'.format(1, '9', '99999999') }}",
    "a width in Arabic digits": "{{ '{:٩٩٩٩٩٩٩٩٩}'.format(1) }}",
    "a precision": "{{ '{:.999999999f}'.format(1.5) }}",
    "a width for a mapping": "{{ '{a:>999999999}'.format_map({'a': 1}) }}",
    "many fields": "{{ ('{0:9999}' * 9999).format(1) }}",
    "one text in many fields": LONG + "{{ ('{0}' * 9999).format(s) }}",
    "a deep list formatted": DEEP + "{{ '{}'.format(ns.x) }}",
    "a deep list converted": DEEP + "{{ '{!r}'.format(ns.x) }}",
    "an attribute formatted": DEEP + "{{ '{0.x}'.format(ns) }}",
    "percent precision": "{{ '%.999999999f' % 1.5 }}",
    "one text in many percents": LONG + "{{ ('%(a)s' * 99999) % {'a': s} }}",
    "percents in a test": "{{ '%999999999d' is even }}",
    "percents in another": "{{ '%999999999d' is divisibleby(1) }}",
    "a text rounded": "{{ 'aaaa' | round(9, 'ceil') }}",
    "a number rounded": "{{ 5 | round(-999999999) }}",
    "powers of powers": "{{ 10 ** 10 ** 10 }}",
    "squares": "{% set ns = namespace(x=3) %}" + ALWAYS + "{% set ns.x = ns.x * ns.x %}" + END,
    "a huge number": "{% set x = 0x" + "f" * 3000 + " %}" + ALWAYS + "{% set y = x % 7 %}" + END,
    "a huge number read": LONG + "{% set x = ('f' * 400000) | int(base=16) %}",
    "numbers whose hashes collide": "{{ range(0, 99999 * 0x1fffffffffffffff, 0x1fffffffffffffff) | unique | list }}",
    "tuples whose hashes collide": "{% set l = "
    + COLLIDING
    + " %}"
    + ALWAYS
    + "{{ l | unique | list | length }}"
    + END,
    "tuples as keys": "{% set l = " + COLLIDING + " %}" + ALWAYS + "{% set d = {l[0]: 1, l[1]: 2} %}" + END,
    "tuples as keys of pairs": "{{ dict([[(1, 2), 3]]) }}",
    "deep lists in another": DEEP + "{{ ns.x in [ns.y] }}",
    "deep lists in a generator": DEEP + "{{ ns.x in ([ns.y] | select) }}",
    "deep lists looked for": DEEP + "{{ [ns.y].index(ns.x) }}",
    "deep lists counted": DEEP + "{{ [ns.y].count(ns.x) }}",
    "deep lists tested": DEEP + "{{ [ns.x] | select('eq', ns.y) | list }}",
    "deep lists sorted": DEEP + "{{ [ns.x, ns.y] | sort }}",
    "deep lists as a flag": DEEP + "{{ [1] | sort(ns.x) }}",
    "numbers in a format": "{% set s = '1 ' * 400000 %}" + ALWAYS + "{% set t = s % 1 %}" + END,
    "deep lists joined": DEEP + "{{ [ns.x] | join }}",
    "deep lists in a refusal": DEEP + "{{ raise_exception(ns.x) }}",
    "deep lists that change": DEEP + "{% for x in [ns.x, ns.y] %}{{ loop.changed(x) }}{% endfor %}",
    "deep tuples hashed": DEEP + "{{ [ns.t, ns.t] | unique | list }}",
    "deep mappings shown": DEEP + "{{ ns.d }}",
    "views of deep mappings": DEEP + "{{ ns.d.items() }}",
    "JSON of deep mappings": DEEP + "{{ ns.d | tojson }}",
    "JSON with deep indents": KEPT.replace("%s", "1").replace("99999", "900") + "{{ ns.x | tojson(indent=9999) }}",
    "JSON with long separators": LONG + "{{ ([1] * 9999) | tojson(separators=(s, s)) }}",
    "JSON in ASCII": "{% set s = '\U0001f600' * 400000 %}{{ s | tojson(ensure_ascii=true) }}",
    "arguments spread": "{% macro m() %}{{ varargs }}{% endmacro %}" + ALWAYS + "{{ m(*range(99999)) }}" + END,
    "generators nested": ALWAYS + "{{ range(99999)" + " | select" * 20 + " | list | length }}" + END,
    "a long path": "{{ range(99999) | map(attribute='" + "a." * 2000 + "a', default=1) | list }}",
    "a long path to sort by": "{{ range(99999) | sort(attribute='" + "a." * 2000 + "a') }}",
    "a search from the end": "{% set s = 'a' * 400000 %}{{ s.rfind('b' + s[:150000]) }}",
    "a split from the end": "{% set s = 'a' * 400000 %}{{ s.rsplit('b' + s[:150000]) }}",
    "a cut from the end": "{% set s = 'a' * 400000 %}{{ s.rpartition('b' + s[:150000]) }}",
    "searches": "{% set s = 'a' * 29000 %}" + ALWAYS + "{{ s.count('b' ~ s[:90]) }}" + END,
    "searches by an operator": "{% set s = 'a' * 29000 %}" + ALWAYS + "{{ (s[:90] ~ 'b') in s }}" + END,
    "stripping of many characters": LONG + "{{ ('c' * 300000).strip('b' * 300000 ~ 'c') }}",
    "trimming of many characters": LONG + "{{ ('c' * 300000) | trim('b' * 300000 ~ 'c') }}",
    "lines": "{% set s = 'aa\n' * 100000 %}" + ALWAYS + "{% set t = s.splitlines() %}" + END,
    "words": "{% set s = 'aa ' * 100000 %}" + ALWAYS + "{% set t = s.split() %}" + END,
    "letters": "{{ ('a' * 1900000) | list | length }}",
    "letters joined": "{{ ('a' * 1900000) | join }}",
    "blank lines indented": "{{ ('\u2028' * 100000) | indent('x' * 500, true, true) }}",
    "escapes": '{{ ("\'" * 1900000) | e }}',
    "escapes by adding": '{{ ("<" * 900000) + ("a" | safe) }}',
    "a condition in a recursive loop": "{% for x in [1] if x == 1 recursive %}{% set outer = loop %}"
    + ALWAYS
    + "{{ outer(range(2, 99999)) }}{% endfor %}{% endfor %}",
    "a block called": "{% block a %}" + "{{ 1 }}" * 999 + "{% endblock %}" + ALWAYS + "{{ self.a() }}" + END,
    "a pattern for the date": "{{ strftime_now('%c' * 99999) }}",
    "many lists": KEPT.replace("%s", "[0] * 900000"),
    "many shorter lists": KEPT.replace("%s", "[0] * 9000"),
    "many slices": "{% set l = [0] * 9000 %}" + KEPT.replace("%s", "l[1:]"),
    "many sums": "{% set l = [0] * 9000 %}" + KEPT.replace("%s", "l + [1]"),
    "many splits": "{% set s = 'aa ' * 9000 %}" + KEPT.replace("%s", "s.split()"),
    "many literals": KEPT.replace("%s", "[" + "[]," * 200 + "]"),
    "many mappings": KEPT.replace("%s", "[" + "{'a': 1}," * 100 + "]"),
    "many texts": KEPT.replace("%s", "i ~ 'a'") * 20,
    "a method by its name": "{{ 'a'['ljust'](999999999) }}",
    "a text kept": "{% set x | title %}" + ALWAYS + "b" * 500 + END + "{% endset %}",
    "a text called for": "{% macro m() %}" + ALWAYS + "{{ caller() }}" + END + "{% endmacro %}"
    "{% call m() %}" + "{{ 1 }}" * 999 + "{% endcall %}",
    "words of source": "{{ a }}" * 5000,
}
BOMBS |= BUILT_IN


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_defused_in_about_a_second(name: str) -> None:
    start = time.thread_time()
    with pytest.raises(TemplateError) as caught:
        render_chat(BOMBS[name], HI)
    assert time.thread_time() - start < 5  # of a busy machine; alone it is about one
    assert "\n" not in str(caught.value)


WALKS = ("a long path", "a text called for", "a condition in a recursive loop", "generators nested")
GREEDY = [name for name in BUILT_IN if DEEP not in BUILT_IN[name] and name not in WALKS]  # where memory could grow


@pytest.mark.parametrize("name", GREEDY)
def test_a_bomb_is_small(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            render_chat(BUILT_IN[name], HI)
        assert tracemalloc.get_traced_memory()[1] < 24e6, "all that one rendering may make, and its compilation"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ 'a' | wordwrap(1) }}", "wordwrap"),
        ("{{ 'a' | attr('upper') }}", "attr"),
        ("{{ 'a' is escaped }}", "escaped"),
        ("{{ 'a'.encode() }}", "encode"),
        ("{{ 'a'.expandtabs(9) }}", "expandtabs"),
        ("{{ lipsum() }}", "lipsum"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape"),
        ("{% block a %}{% endblock %}", "block"),
    ],
)
def test_what_has_no_price_is_refused_by_name(template: str, name: str) -> None:
    with pytest.raises(TemplateError, match=name):
        render_chat(template, HI)


def test_a_refusal_is_one_short_line_without_control_characters() -> None:
    with pytest.raises(TemplateError) as caught:
        render_chat("{{ raise_exception('\x1b[2J\x9b\u202e\nOnly ' ~ 'users ' * 9999) }}", HI)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_a_bomb_is_defused_in_any_thread() -> None:
    caught: list[str] = []

    def work() -> None:
        try:
            render_chat(BOMBS["nested loops"], HI)
        except TemplateError as error:
            caught.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == ["The chat template was stopped because it takes too long."] * 4


def test_where_it_stops_does_not_depend_on_the_machine() -> None:
    template = (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% if j == 7 %}.{% endif %}{% endfor %}{% endfor %}"
    )
    sentences = set()
    for _ in range(2):
        with pytest.raises(TemplateError) as caught:
            render_chat(template, HI)
        sentences.add(str(caught.value))
    assert sentences == {"The chat template was stopped because it takes too long."}


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ raise_exception.__globals__['os'].system('true') }}",
        "{{ namespace(__class__=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{% import 'os' as os %}",
        "{% include '/etc/passwd' %}",
        "{% extends 'base' %}",
        "{{ self.__init__.__globals__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ ''.format.__globals__.os }}",
    ],
)
def test_the_sandbox_holds(template: str) -> None:
    with pytest.raises(TemplateError):
        render_chat(template, HI)


def test_attributes_behind_a_format_string_are_hidden() -> None:
    assert "class" not in render_chat("{{ '{0.__class__}'.format(1) }}", HI)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{% if %}", "not valid Jinja: line 1"),
        ("a\n{{ 'x' | nothing }}", "not valid Jinja: line 2"),
        ("{{ raise_exception('Only users!') }}", "refused the conversation: Only users!"),
        ("{{ messages[0].nothing.more }}", "nothing"),
        ("{{ 1 // 0 }}", "failed on the conversation: .*zero"),
        ("{{ messages[0].content + 1 }}", "failed on the conversation"),
    ],
)
def test_a_template_that_fails_says_why(template: str, sentence: str) -> None:
    with pytest.raises(TemplateError, match=sentence):
        render_chat(template, HI)


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "at least one message"),
        ("hi", "a list of at least one message"),
        ({"role": "user", "content": "hi"}, "a list of at least one message"),
        (None, "a list of at least one message"),
        (["hi"], "Message 0 is str"),
        ([*HI, {"content": "hi"}], "Message 1 has no role"),
        ([{"role": 5, "content": "hi"}], "Message 0 has no role"),
        ([{"role": "user"}], r"Message 0 \(user\) has no text"),
        ([{"role": "user", "content": None}], "has no text"),
        ([{"role": "user", "content": 5}], "has no text"),
        ([{"role": "user", "content": ["hi"]}], "has no text"),
        ([{"role": "user", "content": "hi", "extra": object()}], "A object in message 0"),
    ],
)
def test_messages_are_checked(messages: Any, sentence: str) -> None:
    with pytest.raises(TemplateError, match=sentence):
        render_chat(tiny.CHATML, messages)
    with pytest.raises(TemplateError, match=sentence):
        encode_chat(Tokenizer(tiny.byte_level(), chat_templates={"default": tiny.CHATML}), messages)


def test_a_model_without_a_template() -> None:
    with pytest.raises(TemplateError, match=r"^that model has no chat template"):
        encode_chat(Tokenizer(tiny.byte_level(), where="that model"), HI)


def test_a_template_does_not_see_our_objects_change() -> None:
    messages = [{"role": "user", "content": "hi", "tags": ["a"]}]
    assert render_chat("{{ messages[0].tags }}", messages) == "['a']"
    assert messages == [{"role": "user", "content": "hi", "tags": ["a"]}]
