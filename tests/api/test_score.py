"""`model.score`: of a text, of a continuation given its context, of a target given its source."""

import pytest
import torch
from tokenizers import processors

import regard
from regard.errors import TaskError, TooLong

CONTEXT, CONTINUATION = "The old king", " went to the forest."


def direct(model: regard.Model, ids: list[int], first: int) -> object:
    """The definition: log softmax of the logits at each token, at the id of the next."""
    P = torch.from_numpy(model(ids)[0]).log_softmax(-1)
    return pytest.approx([float(P[i - 1, ids[i]]) for i in range(first, len(ids))], rel=1e-5, abs=1e-5)


def test_a_continuation_given_its_context():
    toy = regard.load("toy-gpt")
    encode = toy.tokenizer.encode
    whole, before = encode(CONTEXT + CONTINUATION), encode(CONTEXT)
    assert whole[: len(before)] == before  # a boundary between words
    scores = toy.score(CONTEXT, CONTINUATION)
    assert scores.ids == whole[len(before) :]
    assert "".join(scores.tokens) == CONTINUATION
    assert list(scores) == direct(toy, whole, len(before))
    assert list(toy.score("No old king", CONTINUATION)) != list(scores)  # the context counts
    assert sum(toy.score(CONTEXT + CONTINUATION)) == pytest.approx(sum(toy.score(CONTEXT)) + sum(scores))
    assert toy.score(CONTEXT, "") == []


def test_a_boundary_inside_a_token():
    """A token with characters of both belongs to the continuation."""
    toy = regard.load("toy-gpt")
    whole = toy.tokenizer.encode("The old king went")
    for cut in range(len("The old king went")):
        context, continuation = "The old king went"[:cut], "The old king went"[cut:]
        scores = toy.score(context, continuation)
        assert scores.ids == whole[len(whole) - len(scores.ids) :]
        assert continuation in "".join(scores.tokens)


def test_an_empty_context_becomes_the_first_token():
    toy = regard.load("toy-gpt")
    ids = toy.tokenizer.encode(CONTEXT)
    scores = toy.score("", CONTEXT)
    assert scores.ids == ids
    assert list(scores) == direct(toy, [toy.first_token(), *ids], 1)


def test_no_special_token_is_in_between(tiny_model):
    model = regard.load(tiny_model("decoder"))
    for raw in (model.tokenizer.raw, model.tokenizer.plain):
        raw.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A <|im_end|>", special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)]
        )
    bare = [model.tokenizer.encode(text, add_special=False) for text in ("the cat", "the cat sat")]
    assert model.tokenizer.encode("the cat") == [0, *bare[0], 2]
    scores = model.score("the cat", " sat")
    assert scores.ids == bare[1][len(bare[0]) :]
    assert list(scores) == direct(model, [0, *bare[1]], 1 + len(bare[0]))


def test_what_cannot_be_scored(tiny_model):
    decoder, translator = regard.load(tiny_model("decoder")), regard.load(tiny_model("translator"))
    long = "the cat " * 200
    for work in (
        lambda: decoder.score(long),
        lambda: decoder.score("the cat", long),
        lambda: decoder.score(long, "a"),
        lambda: translator.score(long, "a"),
        lambda: translator.score("a", long),
        lambda: regard.load(tiny_model("chat")).score(long),  # whose positions turn, and do not end
    ):
        with pytest.raises(TooLong, match=r"has \d+ tokens, but .* reads at most 128: shorten it"):
            work()
    for name in ("encoder", "mlm", "classifier"):
        with pytest.raises(TaskError, match="cannot score"):
            regard.load(tiny_model(name)).score("the cat", " sat")
