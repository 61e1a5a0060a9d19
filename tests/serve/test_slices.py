"""Which part of a tensor `at` means."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import TaskError
from regard.serve.answer import Json
from regard.serve.slices import parse_at, parse_index, send_slice, shape_at

X = torch.arange(2 * 3 * 5, dtype=torch.float32).reshape(2, 3, 5)


@pytest.mark.parametrize(
    ("at", "same"),
    [
        (None, X),
        ("", X),
        ("1", X[1]),
        ("1,:,:", X[1]),
        (":,2", X[:, 2]),
        ("0:1,1:,:3", X[0:1, 1:, :3]),
        ("1, 2, 4", X[1, 2, 4]),
        ("2:2", X[2:2]),
    ],
)
def test_it_reads_as_numpy_does(at, same):
    answer = send_slice(lambda: X, X.shape, at)
    shape = [int(n) for n in answer.headers["x-shape"].split(",") if n]
    np.testing.assert_array_equal(np.frombuffer(answer.body, "<f4").reshape(shape), same.numpy())


@pytest.mark.parametrize("at", ["2", "-1", ":,:,:,:", "a", "1.5", "0:9", "::", "1,,2", "1e3", "9" * 5000, "²"])
def test_what_is_not_there_is_a_sentence(at):
    with pytest.raises(TaskError, match=r"\.$"):
        parse_at(at, X.shape)


def test_too_much_is_refused_before_it_is_computed():
    def never() -> torch.Tensor:
        raise AssertionError("computed")

    with pytest.raises(TaskError, match="That is 101 MB of numbers, and 17 MB can be had at once"):
        send_slice(never, (512, 49152), None)


def test_other_numbers_become_floats_and_views_become_whole():
    for x in (X.to(torch.bfloat16), X.half(), X.transpose(0, 2).contiguous().transpose(0, 2)):
        np.testing.assert_array_equal(np.frombuffer(send_slice(lambda x=x: x, x.shape, None).body, "<f4"), X.ravel())


def test_an_index_is_one_number():
    assert parse_index("1,2,4", X.shape) == (1, 2, 4)
    assert parse_index("", ()) == ()
    for wrong in ("1,2", "1,2,:", "1,2,5", ""):
        with pytest.raises(TaskError):
            parse_index(wrong, X.shape)


@given(st.text(alphabet="0123:,- x", max_size=12))
def test_any_text_is_an_index_or_a_sentence(at):
    try:
        index = parse_at(at, X.shape)
    except TaskError:
        return
    assert shape_at(X.shape, index) == tuple(X[index].shape)


def test_numbers_that_json_lacks_are_words():
    sent = json.loads(Json({"a": [float("-inf"), 1.5], "b": {"c": float("nan")}}).body)
    assert sent == {"a": ["-∞", 1.5], "b": {"c": "not a number"}}
    assert json.loads(Json(["\ud800 </script> é"]).body) == ["\ud800 </script> é"]
