"""The models that come with the package: small, and good at what their recipes say."""

import pytest

import regard
from regard.store.hub import bundled
from regard.train.toy import reviews, stories, translate


@pytest.mark.parametrize("name", bundled())
def test_each_is_under_two_megabytes(name):
    assert sum(file.stat().st_size for file in bundled()[name].iterdir()) <= 2_000_000


def test_translation_crosses_over():
    model = regard.load("toy-translate")
    assert model.translate("the European Economic Area") == ["la zone économique européenne"]
    trace = model.trace("the European Economic Area")
    A = trace["decoder.1.cross.weights"].mean(0)  # target × source
    assert A.shape == (len(trace.target_tokens), len(trace.tokens))


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
    guesses = regard.load("toy-bert").fill("The movie had amazing [MASK], but the story was quite boring.")
    assert guesses[0]["probability"] > 0.02
    assert all(guess["token"].isalpha() for guess in guesses)


def test_sentiment_and_tags():
    examples = [reviews.example(1, "test", i) for i in range(60)]
    labels = regard.load("toy-bert-sentiment").classify([e.text for e in examples])
    assert sum(next(iter(guess)) == e.label for guess, e in zip(labels, examples, strict=True)) >= 51
    sentence = "The movie had amazing visuals, but the story was quite boring."
    (words,) = regard.load("toy-bert-tags").tag(sentence)
    assert [w.word for w in words if w.tag == "ADJ"] == ["amazing", "boring"]
