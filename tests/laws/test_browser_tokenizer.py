"""The law of the browser's tokenizer: the ids, tokens, offsets and texts that it gives are those of Python's library."""

import itertools
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Raw

import regard
import tiny_tokenizers as tiny
from nasty_texts import NASTY, random_texts
from offline import NODE
from regard.errors import TokenizerError
from regard.page import WEB
from regard.page.browser_tokenizer import browser_tokenizer
from regard.page.character_classes import NORMALIZED, PUNCTUATION, WORD, packed, ranges_of
from regard.store.gguf import read_gguf
from regard.store.hub import INSTALLABLE, bundled, installed
from regard.text.gguf_vocab import tokenizer_from_gguf
from regard.text.pretokenizers import SPLITS
from regard.text.tokenizer import Tokenizer, load_tokenizer

pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node on this machine")

DRIVER = Path(__file__).parents[1] / "tokenizer.mjs"
MANY, SOME, DECODED = 10_000, 200, 150
Made = Callable[[], Tokenizer]


class Browser:
    """The page's tokenizer in Node. Each job goes through a pipe, one line of JSON each way."""

    def __init__(self) -> None:
        assert NODE is not None
        command = [NODE, str(DRIVER), str(WEB)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **job: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    assert browser.process.stdin is not None
    assert browser.process.stdout is not None
    browser.process.stdin.close()
    browser.process.stdout.close()
    browser.process.wait(timeout=20)


def check(browser: Browser, tokenizer: Tokenizer, texts: list[str]) -> None:
    """Every other text may spell control tokens, every third is without special tokens around it."""
    settings = [{"control": i % 2 == 1, "special": i % 3 != 2} for i in range(len(texts))]
    wanted = [
        (tokenizer.raw if given["control"] else tokenizer.plain).encode(text, add_special_tokens=given["special"])
        for text, given in zip(texts, settings, strict=True)
    ]
    dice, known = random.Random(1), sorted(tokenizer.vocab.values())
    sequences = [dice.choices(known, k=dice.randint(1, 9)) for _ in range(DECODED)]
    sequences += [want.ids for want in wanted[:DECODED] if want.ids]
    data, encode = browser_tokenizer(tokenizer), list(zip(texts, settings, strict=True))
    answer = browser.ask(data=data, encode=encode, decode=sequences)
    assert "error" not in answer, answer
    for text, given, want, got in zip(texts, settings, wanted, answer["encoded"], strict=True):
        assert got == {"ids": want.ids, "tokens": want.tokens, "offsets": [*map(list, want.offsets)]}, (text, given)
    for ids, there, pieces in zip(sequences, answer["decoded"], answer["pieces"], strict=True):
        assert there == [tokenizer.decode(ids), tokenizer.decode(ids, skip_special=False)], ids
        assert pieces == tokenizer.pieces(ids), ids


# ── real tokenizers ─────────────────────────────────────────────────────────────────────────────────────────────────


def real(name: str) -> Tokenizer:
    if name in bundled():
        return load_tokenizer(bundled()[name])
    path = installed(INSTALLABLE[name])
    if path is None:
        pytest.skip(f"{INSTALLABLE[name].requirement} is not installed")
    if path.is_dir():
        return load_tokenizer(path)
    return tokenizer_from_gguf(read_gguf(path).metadata, str(path))


def distinct() -> list[str]:
    """The bundled models, one of each that have the same tokenizer."""
    files = ("tokenizer.json", "tokenizer_config.json")
    return [*{tuple((path / file).read_bytes() for file in files): name for name, path in bundled().items()}.values()]


@pytest.mark.parametrize("name", [*distinct(), *INSTALLABLE])
def test_a_model_reads_a_text_as_in_python(name: str, browser: Browser) -> None:
    check(browser, real(name), [*NASTY, *random_texts(MANY)])


# ── every component ─────────────────────────────────────────────────────────────────────────────────────────────────


def with_stages(raw: Raw, **stages: Any) -> Tokenizer:
    for name, stage in stages.items():
        setattr(raw, name, stage)
    return Tokenizer(raw, where="tiny")


def later(make: Callable[[], Raw], **stages: Any) -> Made:
    return lambda: with_stages(make(), **stages)


def character_bpe(**settings: Any) -> Raw:
    """BPE on characters, most of which it does not know."""
    prefix, suffix = settings.get("continuing_subword_prefix", ""), settings.get("end_of_word_suffix", "")
    letters = [*"abcdefghijklmnopqrstuvwxyz'▁ é漢"]
    tokens = ["<unk>", *(f"{p}{c}{s}" for c in letters for p in {"", prefix} for s in {"", suffix})]
    merges = [("t", f"{prefix}h"), (f"t{'h'}", f"{prefix}e{suffix}"), ("a", f"{prefix}n"), (f"{prefix}o", f"{prefix}l")]
    tokens += [left + right.removeprefix(prefix) for left, right in merges]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    ids = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return Raw(models.BPE(ids, merges, unk_token="<unk>", **settings))


def added(raw: Raw, normalizer: Any = None) -> Tokenizer:
    """Added tokens of every kind; some contain, begin or end like others."""
    raw.normalizer = normalizer
    flags: list[dict[str, Any]] = [{}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}]
    spellings = ["Paris", "York", "New York", "[GAP]", " king", "the", "é", "🙂"]
    tokens = [
        AddedToken(spelling, normalized=i % 2 == 0, single_word=i % 3 == 0, **flags[i % 4])
        for i, spelling in enumerate(spellings)
    ]
    raw.add_tokens([*tokens, AddedToken("<s>old", special=True), AddedToken("old", normalized=False)])
    return Tokenizer(raw, where="tiny")


def post(*stages: Any) -> Any:
    return processors.Sequence(list(stages))


SPACED = normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.NFC()])
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
TEMPLATE = processors.TemplateProcessing(
    single="<|im_start|> $A <|im_end|> <|im_end|>", special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)]
)
BERT_ENDS = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
METASPACE = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)


def parts() -> dict[str, Made]:
    spm = tiny.sentencepiece_metadata(tiny.sentencepiece_model())
    made: dict[str, Made] = {
        "bytes": lambda: Tokenizer(tiny.byte_level(added=["New York"]), where="bytes"),
        "wordpiece": lambda: Tokenizer(tiny.wordpiece(), clean_up_spaces=True),
        "unigram": lambda: Tokenizer(tiny.unigram()),
        "wordlevel": lambda: Tokenizer(tiny.wordlevel()),
        "sentencepiece": lambda: tokenizer_from_gguf(spm, "spm.gguf"),
        "sentencepiece without a prefix": lambda: tokenizer_from_gguf(
            spm | {"tokenizer.ggml.add_space_prefix": False}, "spm"
        ),
        "unigram with bytes": lambda: with_stages(
            Raw(
                models.Unigram(
                    [("<unk>", 0.0), ("▁", -2.0), ("a", -3.5), ("▁the", -1.0), ("old", -4.0), ("o", -5.0), ("ld", -2.5)]
                    + [(f"<0x{byte:02X}>", -9.0) for byte in range(256)],
                    0,
                    byte_fallback=True,
                )
            ),
            normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(" ", "▁")]),
            decoder=METASPACE,
        ),
        "roberta": lambda: with_stages(
            tiny.byte_level(),
            pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True),
            post_processor=processors.RobertaProcessing(("<|im_end|>", 2), ("<|im_start|>", 1), True, True),
        ),
        "trimmed and framed": lambda: with_stages(
            tiny.byte_level(), post_processor=post(processors.ByteLevel(trim_offsets=True), TEMPLATE)
        ),
        "framed, then trimmed": lambda: with_stages(
            tiny.byte_level(), post_processor=post(TEMPLATE, processors.ByteLevel(add_prefix_space=False))
        ),
        "clip": lambda: with_stages(
            character_bpe(end_of_word_suffix="</w>", fuse_unk=True),
            normalizer=normalizers.Sequence(
                [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
            ),
            pre_tokenizer=pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
                    pre_tokenizers.ByteLevel(False, use_regex=False),
                ]
            ),
            decoder=decoders.BPEDecoder(suffix="</w>"),
        ),
        "bpe with a prefix": lambda: with_stages(
            character_bpe(continuing_subword_prefix="##"),
            normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
            pre_tokenizer=pre_tokenizers.Whitespace(),
            decoder=decoders.WordPiece(cleanup=True),
        ),
        "bpe with some bytes": lambda: with_stages(
            character_bpe(byte_fallback=True, fuse_unk=True), pre_tokenizer=pre_tokenizers.Digits(), decoder=METASPACE
        ),
        "bpe that drops the unknown": lambda: with_stages(
            Raw(
                models.BPE(
                    {"a": 0, "é": 1, "▁": 2, "the": 3, "t": 4, "h": 5, "th": 6, "e": 7}, [("t", "h"), ("th", "e")]
                )
            ),
            pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"),
        ),
        "whole words": lambda: with_stages(
            Raw(models.BPE({**{c: i for i, c in enumerate("theold")}, "the": 9, "old": 11}, [], ignore_merges=True)),
            normalizer=SPACED,
            pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
        ),
        "added to bytes": lambda: added(tiny.byte_level()),
        "added after lower case": lambda: added(
            tiny.byte_level(), normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
        ),
        "added to wordpiece": lambda: added(tiny.wordpiece(), normalizers.BertNormalizer(strip_accents=False)),
        "bert's ends": lambda: with_stages(tiny.wordpiece(), post_processor=BERT_ENDS),
        "bert, cased": lambda: with_stages(
            tiny.wordpiece(), normalizer=normalizers.BertNormalizer(True, False, True, False), decoder=None
        ),
        "prepended": lambda: with_stages(
            tiny.unigram(),
            normalizer=normalizers.Prepend("▁▁"),
            pre_tokenizer=None,
            decoder=decoders.Metaspace(prepend_scheme="never"),
        ),
        "byte normalizer": lambda: with_stages(
            tiny.byte_level(), normalizer=normalizers.ByteLevel(), pre_tokenizer=None
        ),
        "delimiter": lambda: with_stages(tiny.wordlevel(), pre_tokenizer=pre_tokenizers.CharDelimiterSplit("e")),
        "end of line": lambda: with_stages(
            tiny.byte_level(),
            normalizer=normalizers.Sequence(
                [normalizers.Replace(Regex(r"(?<!\s)\s+$"), "_"), normalizers.Replace(Regex(r"é\z"), "E")]
            ),
        ),
    }
    for form in (normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD()):
        made[f"{form}"] = later(tiny.byte_level, normalizer=form)
    for scheme, splits in itertools.product(("always", "first", "never"), (True, False)):
        stage = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=splits)
        made[f"metaspace {scheme} {splits}"] = later(tiny.unigram, pre_tokenizer=stage)
        made[f"metaspace {scheme} {splits} and added"] = later(lambda: added(tiny.unigram()).raw, pre_tokenizer=stage)
    behaviors = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
    for behavior, invert in itertools.product(behaviors, (False, True)):
        stages = [
            pre_tokenizers.Split(Regex(r"[aeiou]|\s\S?"), behavior, invert),
            pre_tokenizers.Split("t", behavior, not invert),
            pre_tokenizers.Punctuation(behavior),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
        made[f"split {behavior} {invert}"] = later(tiny.byte_level, pre_tokenizer=pre_tokenizers.Sequence(stages))
    for split, name in {split: name for name, split in SPLITS.items()}.items():
        pipeline = {"pre_tokenizer": split.pre_tokenizer(), "normalizer": split.normalizer()}
        made[f"split of {name}"] = later(tiny.byte_level, **pipeline)
    return made


PARTS = parts()


@pytest.mark.parametrize("name", PARTS)
def test_every_component_does_the_same(name: str, browser: Browser) -> None:
    check(browser, PARTS[name](), [*NASTY, *random_texts(SOME, seed=sorted(PARTS).index(name))])


@pytest.mark.parametrize("name", ["unigram", "wordlevel"])
def test_a_control_token_that_is_a_word_is_hidden_from_texts(name: str, browser: Browser) -> None:
    tokenizer = PARTS[name]()
    control = tokenizer.raw.token_to_id("</s>")
    answer = browser.ask(
        data=browser_tokenizer(tokenizer), encode=[["a </s>", {"control": on}] for on in (False, True)]
    )
    assert [control in found["ids"] for found in answer["encoded"]] == [False, True]


def test_what_a_model_is_given_equals_its_trace(browser: Browser) -> None:
    """A masked language model's text may have the mask in it; no other model's may spell a control token."""
    for name in distinct():
        model = regard.load(name)
        text = "The old [MASK] is here.</s>"
        (found,) = browser.ask(
            data=browser_tokenizer(model.tokenizer), encode=[[text, {"control": model.spec.head.kind == "mlm"}]]
        )["encoded"]
        trace = model.trace(text)
        assert found["ids"] == list(trace.ids)
        assert browser.ask(data=browser_tokenizer(model.tokenizer), decode=[found["ids"]])["pieces"] == [trace.tokens]


# ── limits and refusals ─────────────────────────────────────────────────────────────────────────────────────────────


def test_half_a_character_is_refused(browser: Browser) -> None:
    texts = ["a\ud800b", "\udc00", "\udc00\ud83d", "🙂\ud83d"]
    for name in ("toy-gpt", "toy-bert"):
        found = browser.ask(data=browser_tokenizer(real(name)), encode=[[text, {}] for text in [*texts, "🙂"]])[
            "encoded"
        ]
        assert all("surrogate" in each["error"] for each in found[:-1]), found
        assert found[-1]["ids"] == real(name).encode("🙂")


def test_more_tokens_than_fit_are_refused(browser: Browser) -> None:
    data = browser_tokenizer(real("toy-bert"))
    text = "the " * 8
    encode: list[Any] = [[text, {"most": most}] for most in (9, 10)]
    encode += [["the " * 200_000, {"most": 128}], ["a" * (1 << 20) + "b", {}]]
    short, exact, long, longest = browser.ask(data=data, encode=encode)["encoded"]
    assert short == {"error": "The text has more than 9 tokens, which is all that fit: shorten it."}
    assert exact["ids"] == real("toy-bert").encode(text)
    assert long == {"error": "The text has more than 128 tokens, which is all that fit: shorten it."}
    assert "1,048,576 characters" in longest["error"]


LONG = ["a" * 100_000, "ab" * 20_000, "é" * 10_000, " " * 20_000, "a" + "\u0301\u0323" * 10_000, "\n \t" * 9_999]


@pytest.mark.parametrize("name", ["toy-gpt", "minilm", "unigram", "sentencepiece"])
def test_a_long_word_takes_time_in_proportion(name: str, browser: Browser) -> None:
    """100,000 letters in one word, marks on one letter, spaces: quadratic time would be minutes."""
    tokenizer = PARTS[name]() if name in PARTS else real(name)
    answer = browser.ask(data=browser_tokenizer(tokenizer), encode=[[text, {}] for text in LONG])
    for text, found in zip(LONG, answer["encoded"], strict=True):
        assert found["ids"] == tokenizer.encode(text), text[:9]
    assert answer["milliseconds"] < 20_000  # of processor time, with much to spare: it takes 700


@pytest.mark.parametrize("name", ["toy-gpt", "toy-bert", "smollm2", "minilm"])
def test_a_page_of_text_takes_milliseconds(name: str, browser: Browser) -> None:
    words = [word for text in random_texts(3000) for word in text.split() if word.isascii()][:1000]
    text = " ".join(words)
    answer = browser.ask(data=browser_tokenizer(real(name)), encode=[[text, {}]] * 5)
    assert answer["encoded"][4]["ids"] == real(name).encode(text)
    assert answer["milliseconds"] / 5 < 200  # of processor time, with much to spare: it takes 5 to 20


REFUSED: dict[str, tuple[Callable[[], Raw], dict[str, Any]]] = {
    "pre-tokenizer UnicodeScripts": (tiny.byte_level, {"pre_tokenizer": pre_tokenizers.UnicodeScripts()}),
    "decoder CTC": (tiny.byte_level, {"decoder": decoders.CTC()}),
    "normalizer Precompiled": (
        tiny.unigram,
        {"normalizer": normalizers.Sequence([normalizers.Precompiled(tiny.sentencepiece_charsmap())])},
    ),
    "the repetition ++": (tiny.byte_level, {"pre_tokenizer": pre_tokenizers.Split(Regex(r"\s++"), "isolated")}),
    r"the escape \b": (tiny.byte_level, {"pre_tokenizer": pre_tokenizers.Split(Regex(r"a\b"), "isolated")}),
    "a class within a class": (tiny.byte_level, {"pre_tokenizer": pre_tokenizers.Split(Regex(r"[a[bc]]"), "isolated")}),
    "has a ^": (tiny.byte_level, {"normalizer": normalizers.Replace(Regex(r"^a"), "b")}),
    "the case of": (tiny.byte_level, {"pre_tokenizer": pre_tokenizers.Split(Regex(r"(?i:ss)"), "isolated")}),
    "the empty text": (tiny.byte_level, {"pre_tokenizer": pre_tokenizers.Split(Regex(r"a*"), "isolated")}),
    "dropout": (lambda: Raw(models.BPE({"a": 0}, [], dropout=0.5)), {}),
    "the text 2 times": (tiny.wordpiece, {"post_processor": processors.TemplateProcessing("$A $A", None, [])}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_browser_cannot_do_is_refused_by_name(what: str) -> None:
    make, stages = REFUSED[what]
    tokenizer = with_stages(make(), **stages)
    with pytest.raises(TokenizerError, match=re.escape(what)):
        browser_tokenizer(tokenizer)


@pytest.mark.parametrize(
    "part", ["normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "behavior", "version"]
)
def test_the_browser_refuses_a_step_that_it_does_not_know(part: str, browser: Browser) -> None:
    data = browser_tokenizer(real("toy-bert"))
    if part == "version":
        data["version"] = 99
    elif part == "model":
        data["model"]["type"] = "constructor"
    elif part == "behavior":
        data["pre_tokenizer"][0]["behavior"] = "constructor"
    else:
        data[part].append({"type": "constructor"})
    answer = browser.ask(data=data)
    assert "tokenizer.json cannot run here: " in answer["error"]
    assert ("99" if part == "version" else "constructor") in answer["error"]


# ── character classes ───────────────────────────────────────────────────────────────────────────────────────────────


def test_classes_are_the_librarys_and_not_the_browsers() -> None:
    """Characters on which Unicode's versions, Oniguruma, Rust and JavaScript disagree."""

    def has(name: str, code: int) -> bool:
        return any(first <= code <= last for first, last in ranges_of(name))

    assert [code for first, last in ranges_of(r"\s") for code in range(first, last + 1)] == [
        *range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
    ]  # fmt: skip
    assert not has(r"\s", 0xFEFF)  # as JavaScript says
    assert has(WORD, 0x200D)
    assert not has(r"\w", 0x200D)
    assert has(PUNCTUATION, ord("$"))
    assert not has(r"\p{P}", ord("$"))
    assert has(r"\p{P}", 0x2E43)
    assert not has(PUNCTUATION, 0x2E43)  # which Unicode has had since its version 9
    assert not has(NORMALIZED, 0x11938)  # which decomposes since version 13
    assert [has(r"(?i:s)", ord(c)) for c in "sSſt"] == [True, True, True, False]
    assert has(r"^\p{L}", ord("1"))
    assert not has(r"^\p{L}", ord("a"))
    assert has(r"^\p{L}", 0x50000)  # in a plane without characters


def test_packed_ranges_are_those() -> None:
    ranges, at = list[tuple[int, int]](), 0
    for part in packed(r"\p{N}").split():
        skip, _, more = part.partition("-")
        ranges.append((at + int(skip, 36), at + int(skip, 36) + int(more or "0", 36)))
        at = ranges[-1][1] + 1
    assert ranges == ranges_of(r"\p{N}")
    assert ranges[0] == (ord("0"), ord("9"))
