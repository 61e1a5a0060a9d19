"""The models that come with the package: small, and good at what their recipes say."""

from typing import Any

import pytest
from toytext import opinions, reviews, stories, translate

import regard
from regard.store.hub import bundled


@pytest.mark.parametrize("name", bundled())
def test_each_is_under_two_megabytes(name):
    assert sum(file.stat().st_size for file in bundled()[name].iterdir()) <= 2_000_000


def test_translation_crosses_over():
    model = regard.load("toy-translate")
    assert model.translate("the European Economic Area") == ["la zone économique européenne"]
    trace = model.trace("the European Economic Area")
    words = [range(1, 2), range(2, 6), range(6, 9)]
    assert ["".join(trace.tokens[i] for i in word) for word in words] == [" European", " Economic", " Area"]
    A = trace["decoder.1.cross.weights"].mean(0)  # target × source
    looked = []
    for before in ("la", "one", "ique"):  # the tokens behind which zone, économique and européenne are written
        assert trace.target_tokens is not None
        row = A[trace.target_tokens.index(before)]
        looked.append(max(range(3), key=lambda n: row[list(words[n])].sum()))
    assert looked == [2, 1, 0]


def test_translation_of_held_out_pairs():
    model = regard.load("toy-translate")
    pairs = [translate.example(1, "test", i) for i in range(60)]
    written = model.translate([p.source for p in pairs])
    right = sum(w == p.target for w, p in zip(written, pairs, strict=True))
    assert right >= 0.85 * len(pairs)


def test_stories_agree_in_number_and_pronoun():
    text = regard.load("toy-gpt").generate("The pizza came out of the oven and", max_new_tokens=12, temperature=0)
    assert text.strip().startswith("it")
    held_out = [stories.example(1, "test", i).text for i in range(5)]
    model = regard.load("toy-gpt")
    assert all(model.score(text).perplexity < 4 for text in held_out)


def test_masks_are_filled_with_words_that_fit():
    """Of its own 600 tokens: what films have many of, a word for a film, and its verb."""
    model = regard.load("toy-bert")
    many = {part.noun.removesuffix("/NOUN") for part in opinions.PARTS if part.number == "many"}
    guesses: Any = model.fill("The movie had amazing [MASK], but the story was quite boring.", top_k=600)
    assert {guess["token"] for guess in guesses[:5]} < many
    assert sum(guess["probability"] for guess in guesses if guess["token"] in many) > 0.6
    for text, words in (("The [MASK] had", {"movie", "film"}), ("The movie [MASK]", {"had", "has"})):
        likely: Any = model.fill(f"{text} amazing visuals, but the story was quite boring.", top_k=2)
        assert {guess["token"] for guess in likely} == words
        assert sum(guess["probability"] for guess in likely) > 0.9


def test_sentiment_and_tags():
    examples = [reviews.example(1, "test", i) for i in range(60)]
    labels = regard.load("toy-bert-sentiment").classify([e.text for e in examples])
    assert sum(next(iter(guess)) == e.label for guess, e in zip(labels, examples, strict=True)) >= 51
    sentence = "The movie had amazing visuals, but the story was quite boring."
    (words,) = regard.load("toy-bert-tags").tag(sentence)
    assert [w.word for w in words if w.tag == "ADJ"] == ["amazing", "boring"]
