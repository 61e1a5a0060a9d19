"""Beam search with max_new_tokens=0: n empty answers, as without beams."""

import pytest

import regard
from regard.api import Model


@pytest.fixture(scope="module", params=["native", "torch"])
def model(request) -> Model:
    return regard.load("toy-gpt", engine=request.param)


@pytest.mark.parametrize("beams", [1, 3])
def test_max_new_tokens_0_gives_an_empty_answer(model: Model, beams: int) -> None:
    assert model.generate("The old king", num_beams=beams, max_new_tokens=0) == ""
    assert model.generate(["The old king", "Sara"], num_beams=beams, max_new_tokens=0) == ["", ""]
    (answer,) = model.answers("Sara", num_beams=beams, max_new_tokens=0)[0]
    assert (answer.ids, answer.logprobs, answer.finished) == ([], [], "length")


def test_n_empty_answers(model: Model) -> None:
    assert model.generate("Sara", num_beams=3, n=2, max_new_tokens=0) == ["", ""]


def test_translation_with_max_new_tokens_0() -> None:
    model = regard.load("toy-translate")
    assert model.translate("the house", max_new_tokens=0) == [""]
    assert model.translate(["the house", "a tree"], max_new_tokens=0) == ["", ""]
