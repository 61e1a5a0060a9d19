"""Which part of a tensor `at` means."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import TaskError
from regard.page.json_response import JsonResponse
from regard.page.tensor_slices import parse_at, parse_index, send_slice, shape_at

X = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)


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
def test_indices_are_read_as_in_numpy(at, same):
    answer = send_slice(lambda: X, X.shape, at)
    shape = [int(n) for n in answer.headers["x-shape"].split(",") if n]
    np.testing.assert_array_equal(np.frombuffer(answer.body, "<f4").reshape(shape), same)


@pytest.mark.parametrize("at", ["2", "-1", ":,:,:,:", "a", "1.5", "0:9", "::", "1,,2", "1e3", "9" * 5000, "²"])
def test_indices_out_of_range_are_refused(at):
    with pytest.raises(TaskError, match=r"\.$"):
        parse_at(at, X.shape)


def test_a_large_slice_is_refused_before_it_is_computed():
    def never() -> Any:
        raise AssertionError("computed")

    with pytest.raises(TaskError, match="That is 101 MB of numbers, and 17 MB is the most per request"):
        send_slice(never, (512, 49152), None)


def test_other_dtypes_become_float32_and_views_contiguous():
    for x in (X.astype(np.float16), np.ascontiguousarray(X.swapaxes(0, 2)).swapaxes(0, 2)):
        sent = send_slice(x.view, x.shape, None)
        np.testing.assert_array_equal(np.frombuffer(sent.body, "<f4"), X.ravel())


def test_an_index_is_one_number():
    assert parse_index("1,2,4", X.shape) == (1, 2, 4)
    assert parse_index("", ()) == ()
    for wrong in ("1,2", "1,2,:", "1,2,5", ""):
        with pytest.raises(TaskError):
            parse_index(wrong, X.shape)


@given(st.text(alphabet="0123:,- x", max_size=12))
def test_any_text_is_an_index_or_refused(at):
    try:
        index = parse_at(at, X.shape)
    except TaskError:
        return
    assert shape_at(X.shape, index) == tuple(X[index].shape)


def test_infinities_and_nan_are_strings_in_json():
    sent = json.loads(bytes(JsonResponse({"a": [float("-inf"), 1.5], "b": {"c": float("nan")}}).body))
    assert sent == {"a": ["-∞", 1.5], "b": {"c": "not a number"}}
    assert json.loads(bytes(JsonResponse(["\ud800 </script> é"]).body)) == ["\ud800 </script> é"]
