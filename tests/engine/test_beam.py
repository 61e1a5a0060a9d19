"""Beam search where nothing is to be written: an empty answer for each that was asked for, as without beams."""

import pytest

import regard
from regard.api import Model


@pytest.fixture(scope="module", params=["native", "torch"])
def model(request) -> Model:
    return regard.load("toy-gpt", engine=request.param)


@pytest.mark.parametrize("beams", [1, 3])
def test_no_new_tokens_are_an_empty_text(model: Model, beams: int) -> None:
    assert model.generate("The old king", num_beams=beams, max_new_tokens=0) == ""
    assert model.generate(["The old king", "Sara"], num_beams=beams, max_new_tokens=0) == ["", ""]
    (answer,) = model.answers("Sara", num_beams=beams, max_new_tokens=0)[0]
    assert (answer.ids, answer.logprobs, answer.finished) == ([], [], "length")


def test_as_many_empty_texts_as_asked_for(model: Model) -> None:
    assert model.generate("Sara", num_beams=3, n=2, max_new_tokens=0) == ["", ""]


def test_translating_into_nothing() -> None:
    model = regard.load("toy-translate")
    assert model.translate("the house", max_new_tokens=0) == [""]
    assert model.translate(["the house", "a tree"], max_new_tokens=0) == ["", ""]
