"""Chat templates from strangers: kept in their sandbox, stopped when they work too long or write too much."""

import threading
import time
from typing import Any

import pytest

import tiny_tokenizers as tiny
from regard.errors import TemplateError
from regard.text.chat import encode_chat, render_chat
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


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_defused_in_about_a_second(name: str) -> None:
    start = time.thread_time()
    with pytest.raises(TemplateError) as caught:
        render_chat(BOMBS[name], HI)
    assert time.thread_time() - start < 5  # of a busy machine; alone it is about one
    assert "\n" not in str(caught.value)


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
