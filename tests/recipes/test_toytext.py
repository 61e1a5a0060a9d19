"""The text the toy models learn from: the same for everybody, split cleanly, and right."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from toytext import opinions, plots, reviews, stories, translate
from toytext.__main__ import main
from toytext.draw import Dice, split_of
from toytext.reviews import Review

import regard
from regard.errors import DataError
from regard.train.read import Layout, Tally, find_sources, read_rows

KINDS: dict[str, Any] = {"translate": translate, "stories": stories, "reviews": reviews}
TAGS = "NOUN VERB ADJ ADV DET PRON ADP CCONJ SCONJ PART NUM PUNCT AUX PROPN".split()


def text_of(example: Any) -> str:
    return example.source if isinstance(example, translate.Pair) else example.text


@cache
def sample(kind: str, n: int, split: str = "train") -> list[Any]:
    return [KINDS[kind].example(0, split, i) for i in range(n)]


class Wishful(Dice):
    """Dice that, where a choice is between words, throw words of the wanted text: what they make, dice can make."""

    def __init__(self, key: str, wanted: str) -> None:
        super().__init__(key)
        self.wanted = f" {re.sub('[.,]', ' ', wanted.lower())} "

    def pick(self, options: Sequence[Any]) -> Any:
        return super().pick([option for option in options if self.wishes(option)] or options)

    def two(self, options: Sequence[Any]) -> Any:
        wished = [option for option in options if self.wishes(option)]
        return super().two(wished if len(wished) > 1 else options)

    def wishes(self, option: Any) -> bool:
        words = re.sub("/[A-Z]+", "", option.noun if isinstance(option, opinions.Part) else str(option))
        return f" {words.lower()} " in self.wanted


def made_from(make: Callable[[Dice], Any], wanted: str, found: Callable[[Any], bool], tries: int = 5000) -> Any:
    """Something `make` makes, of the wanted words, that is what was looked for."""
    made = (make(Wishful(str(i), wanted)) for i in range(tries))
    return next(one for one in made if found(one))


# What every kind promises.


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_a_function_of_seed_split_and_index(kind: str) -> None:
    in_order = [KINDS[kind].example(3, "train", i) for i in range(30)]
    assert [KINDS[kind].example(3, "train", i) for i in reversed(range(30))] == in_order[::-1]
    assert [KINDS[kind].example(4, "train", i) for i in range(30)] != in_order


def test_examples_do_not_depend_on_the_hash_seed_and_need_no_torch() -> None:
    code = (
        "import sys; from toytext import reviews, stories, translate as t; assert 'torch' not in sys.modules;"
        "print([m.example(7, 'dev', 5) for m in (t, stories, reviews)])"
    )
    said = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": p}, **RUN).stdout
        for seed, p in (("1", PATH), ("2", PATH))
    }
    assert said == {f"{[m.example(7, 'dev', 5) for m in (translate, stories, reviews)]}\n"}


PATH = os.pathsep.join(str(Path(module.__file__ or "").parents[1]) for module in (translate, regard))
RUN: dict[str, Any] = {"capture_output": True, "text": True, "check": True}


@pytest.mark.parametrize("kind", KINDS)
def test_splits_share_no_text(kind: str) -> None:
    texts = {split: {text_of(one).lower() for one in sample(kind, 150, split)} for split in ("train", "dev", "test")}
    assert all(len(found) > 100 for found in texts.values())
    assert all(split_of(text) == split for split, found in texts.items() for text in found)


def test_the_split_of_a_text_ignores_case_and_punctuation() -> None:
    assert split_of("The red car") == split_of("the  red car.") == split_of("THE RED CAR!")
    shares = [split_of(f"text {i}") for i in range(4000)]
    assert 0.88 < shares.count("train") / 4000 < 0.92
    assert 0.04 < shares.count("dev") / 4000 < 0.06


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(DataError, match="no split 'valid'"):
        translate.example(0, "valid", 0)


@pytest.mark.parametrize(("kind", "least"), [("translate", 0.85), ("stories", 0.99), ("reviews", 0.85)])
def test_examples_seldom_repeat(kind: str, least: float) -> None:
    texts = [text_of(one) for one in sample(kind, 3000)]
    assert len(set(texts)) >= least * len(texts)


def test_the_command_writes_what_the_modules_generate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--n", "5", "--seed", "2", "--split", "dev", "--out", str(tmp_path / "pairs.tsv")]) == 0
    rows = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert [tuple(row.split("\t")) for row in rows] == [
        (pair.source, pair.target) for pair in (translate.example(2, "dev", i) for i in range(5))
    ]
    assert main(["stories", "--n", "4", "--out", str(tmp_path / "stories.txt")]) == 0
    assert (tmp_path / "stories.txt").read_text().splitlines() == [one.text for one in sample("stories", 4)]
    assert main(["reviews", "--out", str(tmp_path / "reviews.csv")]) == 2
    assert "end it in .tsv, .jsonl, .conllu" in capsys.readouterr().err


def test_reviews_are_written_three_ways(tmp_path: Path) -> None:
    made = sample("reviews", 6)
    for ending in ("tsv", "jsonl", "conllu"):
        reviews.write(tmp_path / f"reviews.{ending}", 6, seed=0, split="train")
    rows = (tmp_path / "reviews.tsv").read_text().splitlines()
    assert rows == [f"{one.text}\t{one.label}" for one in made]
    records = [json.loads(line) for line in (tmp_path / "reviews.jsonl").read_text().splitlines()]
    assert [(r["text"], r["label"], tuple(r["tokens"]), tuple(r["tags"])) for r in records] == [
        (one.text, one.label, one.words, one.tags) for one in made
    ]
    blocks = (tmp_path / "reviews.conllu").read_text().removesuffix("\n\n").split("\n\n")
    for block, one in zip(blocks, made, strict=True):
        tokens = [line.split("\t") for line in block.splitlines() if not line.startswith("#")]
        assert {len(token) for token in tokens} == {10}
        assert [int(token[0]) for token in tokens] == list(range(1, len(tokens) + 1))
        assert (tuple(t[1] for t in tokens), tuple(t[3] for t in tokens)) == (one.words, one.tags)
        spaced = "".join(t[1] + ("" if t[9] == "SpaceAfter=No" else " ") for t in tokens).rstrip()
        assert f"# text = {spaced}" in block
        assert spaced == one.text


@pytest.mark.parametrize(
    ("kind", "name", "fields"),
    [
        ("translate", "pairs.tsv", ("source", "target")),
        ("stories", "stories.txt", ("text",)),
        ("reviews", "reviews.tsv", ("text", "label")),
        ("reviews", "reviews.jsonl", ("text", "label")),
        ("reviews", "reviews.jsonl", ("tokens", "tags")),
        ("reviews", "reviews.conllu", ("tokens", "tags")),
    ],
)
def test_what_is_written_can_be_trained_on(tmp_path: Path, kind: str, name: str, fields: tuple[str, ...]) -> None:
    KINDS[kind].write(tmp_path / name, 8, seed=0, split="train")
    layout = Layout(fields, document="line")
    (source,) = find_sources([str(tmp_path / name)], layout)
    rows = [tuple(row[field] for field in fields) for row in read_rows(source, layout, Tally())]
    attributes = ["words" if field == "tokens" else field for field in fields]
    wanted = [tuple(getattr(one, name) for name in attributes) for one in sample(kind, 8)]
    assert [tuple(map(_plain, row)) for row in rows] == [tuple(map(_plain, row)) for row in wanted]


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else list(value)


# Stories.


def test_the_pizza_tastes_good() -> None:
    wanted = "the pizza came out of the oven and it tasted good"
    assert made_from(stories.story, wanted, lambda story: wanted in story.text)


def test_stories_are_short_and_their_words_few() -> None:
    made = sample("stories", 3000)
    counts = [len(re.findall(r"\.(?: |$)", one.text)) for one in made]
    assert min(counts) >= 3
    assert max(counts) <= 8
    words = {word for one in made for word in re.findall(r"\w+", one.text.lower())}
    assert 400 <= len(words) <= 600


def test_a_story_has_one_character_to_a_pronoun() -> None:
    spoken = 0
    for one in sample("stories", 1500):
        words = set(re.findall(r"\w+", one.text))
        for names, people in ((plots.BOYS, plots.MEN), (plots.GIRLS, plots.WOMEN)):
            assert len(words & set(names)) + sum(f" {p} " in one.text for p in people) <= 1, one
            said = {"he", "He"} if names is plots.BOYS else {"she", "She"}
            if words & said:
                assert words & set(names) or any(p in one.text for p in people), one
                spoken += 1
    assert spoken > 300


def test_verbs_of_stories_agree_across_what_stands_between() -> None:
    texts = " ".join(one.text for one in sample("stories", 3000))
    many, one = "|".join(plots.BESIDE_ONE), "|".join(plots.BESIDE_MANY)
    after_many = set(re.findall(rf"(?:{'|'.join(plots.GROUPS)}) (?:{many}) (\w+)", texts))
    after_one = set(re.findall(rf"(?:{'|'.join(plots.MEN + plots.WOMEN)}) (?:{one}) (\w+)", texts))
    assert {"are", "were", "have"} <= after_many
    assert {"is", "was", "has"} <= after_one
    assert not after_many & {"is", "was", "has", "wants", "keeps"}
    assert not after_one & {"are", "were", "have", "want", "keep"}


def test_a_story_keeps_its_tense() -> None:
    for one in sample("stories", 1500):
        words = set(re.findall(r"\w+", one.text))
        assert not (words & {"is", "are", "has", "goes"} and words & {"was", "were", "went", "had"}), one


# Reviews.

LECTURE = (
    "Yesterday, my friends went to the cinema because the weather was nasty. "
    "The movie had amazing visuals, but the story was quite boring."
)


def test_the_lecture_s_review_can_be_made_and_has_three_adjectives() -> None:
    went, thought = (f"{sentence.strip()}." for sentence in LECTURE.split(".")[:2])
    said = "movie/NOUN"
    context = made_from(opinions.context, went, lambda text: reviews.compose([text], (), said).text == went)
    text, held = made_from(
        opinions.contrast, thought, lambda one: reviews.compose([one[0]], one[1], said).text == thought
    )
    made = reviews.compose([context, text], held, said)
    assert made.text == LECTURE
    assert made.label == "neutral"
    adjectives_in_it = [word for word, tag in zip(made.words, made.tags, strict=True) if tag == "ADJ"]
    assert adjectives_in_it == ["nasty", "amazing", "boring"]


@pytest.mark.parametrize(
    ("text", "label", "tags"),
    [
        ("The film was not very good.", "negative", "DET NOUN AUX PART ADV ADJ PUNCT"),
        ("The film was not boring.", "positive", "DET NOUN AUX PART ADJ PUNCT"),
        ("We did not like the music.", "negative", "PRON AUX PART VERB DET NOUN PUNCT"),
        ("This movie felt like a dream.", "positive", "DET NOUN VERB ADP DET NOUN PUNCT"),
        ("Nobody liked the songs.", "negative", "PRON VERB DET NOUN PUNCT"),
        ("The film lasted two hours.", "neutral", "DET NOUN VERB NUM NOUN PUNCT"),
        ("There were funny jokes in that film.", "positive", "PRON VERB ADJ NOUN ADP DET NOUN PUNCT"),
    ],
)
def test_reviews_with_known_labels_and_tags(text: str, label: str, tags: str) -> None:
    made = made_from(reviews.review, text, lambda review: review.text == text)
    assert (made.label, " ".join(made.tags)) == (label, tags)


def test_the_rule_that_makes_the_label() -> None:
    def opinion(whole: bool, sign: int) -> opinions.Opinion:
        return opinions.Opinion(whole, sign)

    assert reviews.label_of([]) == "neutral"
    assert reviews.label_of([opinion(False, 1), opinion(False, 1)]) == "positive"
    assert reviews.label_of([opinion(False, 1), opinion(False, -1)]) == "neutral"
    assert reviews.label_of([opinion(False, 1), opinion(True, -1)]) == "negative"
    assert reviews.label_of([opinion(True, 1), opinion(False, -1)]) == "positive"


def test_reviews_hold_together() -> None:
    made: list[Review] = sample("reviews", 5000)
    for one in made:
        assert len(one.words) == len(one.tags)
        assert reviews.joined(one.words) == one.text
        assert one.words[-1] == "."
        assert not ("film" in one.words and "movie" in one.words)
    assert {tag for one in made for tag in one.tags} == set(TAGS)
    counts = {label: sum(one.label == label for one in made) for label in reviews.LABELS}
    assert all(count > 0.25 * len(made) for count in counts.values())
    assert len({word.lower() for one in made for word in one.words}) <= 300
    tags_of = {(word.lower(), tag) for one in made for word, tag in zip(one.words, one.tags, strict=True)}
    assert {
        ("that", "DET"),
        ("that", "SCONJ"),
        ("like", "ADP"),
        ("like", "VERB"),
        ("to", "PART"),
        ("to", "ADP"),
    } <= tags_of
    assert {one.words for one in made if "boring" in one.words and one.label == "positive"}  # denied, or outweighed
