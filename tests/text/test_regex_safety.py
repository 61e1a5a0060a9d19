"""Regular expressions in tokenizer files: those of real models are accepted, those that can take long are not."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

import tiny_tokenizers as tiny
from regard.errors import TokenizerError
from regard.text.pretokenizers import SPLITS
from regard.text.regex_safety import LINEAR, may_match_nothing, why_slow
from regard.text.tokenizer import load_tokenizer

HAN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REAL = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
    r"\s+(?!\S)|\s+",
    "cl100k, newer": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
    r"\s*[\r\n]|\s+(?!\S)|\s",
    "qwen3": rf"{ENDS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+",
    "deepseek-v3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek-v3 han": r"[一-龥぀-ゟ゠-ヿ]+",
    "deepseek-coder": r"\s?\p{L}+",
    "deepseek-llm": r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "deepseek-llm lines": r"[\r\n]",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "kimi": rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{HAN[0]}*{HAN[1]}+{ENDS}?|"
    rf"[^\r\n\p{{L}}\p{{N}}]?{HAN[0]}+{HAN[1]}*{ENDS}?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "clip spaces": r"\s+",
    "t5": r" {2,}",
    "falcon": r"[0-9][0-9][0-9]",
    "words": r"(?:\w+|[^\w\s]+)",
    "boundaries": r"(?<=\p{L})(?=\p{N})",
}
SLOW = [
    *(r"(a+)+$", r"(a|a)*b", r"(?:a|aa)+$", r"(.*)*x", r"(a{1,64}){1,64}", r"a{1,3}+b", r"a{1,3}{2}", r"a**"),
    *(r"a+b", r".*x", r"\s+x(?!\S)|\s", r"x*y|x", r"a*a*b|a+", r"\s*[\r\n]+|\s|\s+", r"(?i:a*b)|a+", r"a+?b|a+"),
    *(r"(?=(\d{3})+(?!\d))", r"(?!a+b)c", r"(?:a+)b", r"(?:a+|b)c|d", "a?" * 20 + "a" * 20, r"\p{L}{100}"),
    *(
        r"(a)\1",
        r"(?<n>a)\k<n>",
        r"(?>a+)b",
        r"(?i)a",
        r"(?x:a #)",
        r"\X",
        r"(?~a)",
        "(",
        ")",
        "[a",
        "[]a]",
        "a" * 10_001,
    ),
]


@pytest.mark.parametrize(
    "pattern", [*REAL.values(), *dict.fromkeys(regex for split in SPLITS.values() for regex in split.regexes)]
)
def test_the_patterns_of_real_models_are_accepted(pattern: str) -> None:
    Regex(pattern)
    assert why_slow(pattern) is None


@pytest.mark.parametrize("pattern", SLOW)
def test_what_can_take_long_or_cannot_be_judged_is_refused(pattern: str) -> None:
    assert why_slow(pattern) is not None


def test_which_patterns_match_nothing() -> None:
    assert [may_match_nothing(p) for p in ("", "x*", "a|b*", "(?!a)", "(a?)")] == [True] * 5
    assert [may_match_nothing(p) for p in (r"\s+", " {2,}", "a?b", "(a|b)")] == [False] * 4


PARTS = st.tuples(
    st.sampled_from([r"\s", r"\S", "a", "[ab]", ".", r"\w", r"[\r\n]", " ", "(?:a|b )", "(?i:ab?|c)"]),
    st.sampled_from(["", "", "?", "*", "+", "{1,3}", "{2,}", "++", "{1,3}+"]),
).map("".join)
LOOKS = st.sampled_from([r"(?!\S)", r"(?!a)", r"(?<!\s)", r"(?<!a)", "$"])
SEQUENCES = st.lists(st.one_of(PARTS, PARTS, PARTS, LOOKS), min_size=1, max_size=4).map("".join)
PATTERNS = st.lists(SEQUENCES, min_size=1, max_size=4).map("|".join)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(pattern=PATTERNS)
def test_an_accepted_pattern_takes_linear_time(pattern: str) -> None:
    assume(why_slow(pattern) is None)
    try:
        split = pre_tokenizers.Split(Regex(pattern), "removed")
    except Exception:  # the library's errors have no class of their own; a pattern that it cannot read is no example
        reject()
    n = 20_000
    for text in (
        "a" * n,
        " " * n + "a",
        "a" * n + "b",
        "\n" + " " * n + "a",
        " \n" * n,
        " " * n + "\n" + " " * n + "b",
    ):
        start = time.thread_time()
        split.pre_tokenize_str(text)
        assert time.thread_time() - start < 1  # a quadratic one takes 1.5 s at best, others hours


def saved(folder: Path, **parts: object) -> Path:
    data = json.loads(tiny.byte_level().to_str()) | parts
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize(
    ("part", "stage"),
    [
        ("pre_tokenizer", {"type": "Split", "behavior": "Isolated", "invert": False}),
        ("normalizer", {"type": "Replace", "content": " "}),
        ("decoder", {"type": "Replace", "content": " "}),
    ],
)
def test_a_tokenizer_with_a_slow_pattern_is_refused_by_name(
    tmp_path: Path, part: str, stage: dict[str, object]
) -> None:
    slow = {**stage, "pattern": {"Regex": "(a+)+$"}}
    children = {"pre_tokenizer": "pretokenizers"}.get(part, f"{part}s")
    for each in (slow, {"type": "Sequence", children: [slow]}):
        with pytest.raises(TokenizerError, match=rf"tokenizer\.json has a {part} with .*{re.escape('(a+)+$')}"):
            load_tokenizer(saved(tmp_path, **{part: each}))


def test_a_known_quadratic_pattern_is_replaced_by_an_equal_one(tmp_path: Path) -> None:
    """DeepSeek-LLM's `\\s+$` scans a run of spaces from each of them."""
    texts = ["a  ", "  a", " \n \n\n a \n", "a \t\r\n", "", "  ", "a b  c \n d "]
    for slow, quick in LINEAR.items():
        one, other = (pre_tokenizers.Split(Regex(regex), "isolated") for regex in (slow, quick))
        assert [one.pre_tokenize_str(text) for text in texts] == [other.pre_tokenize_str(text) for text in texts]
        assert why_slow(slow) is not None
        assert why_slow(quick) is None
        split = {"type": "Split", "pattern": {"Regex": slow}, "behavior": "Isolated", "invert": False}
        level = json.loads(pre_tokenizers.ByteLevel(add_prefix_space=False).__getstate__())
        tokenizer = load_tokenizer(saved(tmp_path, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, level]}))
        start = time.thread_time()
        tokenizer.encode(" " * 100_000 + "a")
        assert time.thread_time() - start < 10  # as it was, 40 seconds
