"""JSON files of a model or run directory: an object, or a sentence."""

from pathlib import Path

import pytest

from regard import safe_open
from regard.errors import CheckpointError, ConfigError, NotFound, TokenizerError
from regard.safe_open import BadJSON, parse_json, read_json
from regard.store.atomic_write import write_json_atomically
from regard.text.tokenizer import load_tokenizer


def test_an_object_survives_the_way_to_the_disk_and_back(tmp_path: Path) -> None:
    value = {"name": "naïve \ud800", "sizes": [1, 2.5, None, True], "deep": {"er": {}}, "big": 10**30}
    write_json_atomically(tmp_path / "config.json", value)
    assert read_json(tmp_path / "config.json", "the configuration") == value
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


REFUSED = [
    (b"", "is not valid JSON"),
    (b'{"a": 1', "is not valid JSON"),
    (b'{"a": 1} x', "is not valid JSON"),
    (b"[1]", "holds a list instead of an object"),
    (b"3", "holds a number instead of an object"),
    (b"null", "holds null instead of an object"),
    (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' is given twice"),
    (b'{"x": {"y": 1, "y": 2}}', "the key 'y' is given twice"),
    (b'{"a": NaN}', "NaN is not a JSON number"),
    (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
    (b'{"a": "\xff"}', "is not UTF-8"),
    (b'{"a":' * 70 + b"1" + b"}" * 70, "nested more than 64 deep"),
    (b'{"a":' + b"[" * 100_000, "nested more than 64 deep"),
    (b'{"a":' + b"9" * 5000 + b"}", "is not valid JSON"),
]


@pytest.mark.parametrize(("data", "says"), REFUSED)
def test_anything_else_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=says) as refusal:
        read_json(path, "the model's configuration", ConfigError)
    assert str(refusal.value).startswith(f"{path}, the model's configuration, ")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json"])
@pytest.mark.parametrize(("data", "says"), REFUSED)
def test_the_files_of_a_tokenizer_are_read_by_the_same_rules(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TokenizerError, match=says) as refusal:
        load_tokenizer(tmp_path)
    assert str(refusal.value).startswith(f"{tmp_path / name} ")


def test_a_text_of_too_many_values_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_open, "MAX_VALUES", 3)
    assert parse_json(b"[1, 2, 3]") == [1, 2, 3]
    with pytest.raises(BadJSON, match="has more than 3 values"):
        parse_json(b"[1, 2, 3, 4")


def test_nesting_up_to_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}")
    assert read_json(tmp_path / "x.json", "it")["a"]
    (tmp_path / "x.json").write_bytes(b'{"a":' + b"[" * 64 + b"]" * 64 + b"}")
    with pytest.raises(CheckpointError, match="nested"):
        read_json(tmp_path / "x.json", "it")


def test_a_huge_file_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_open, "LARGE", 1 << 20)
    (tmp_path / "x.json").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(CheckpointError, match="larger than 1 MB"):
        read_json(tmp_path / "x.json", "it")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"config\.json, the configuration, does not exist"):
        read_json(tmp_path / "config.json", "the configuration")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_json_atomically(tmp_path / "x.json", {"old": True})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_atomically(tmp_path / "x.json", {"new": float("nan")})
    assert read_json(tmp_path / "x.json", "it") == {"old": True}
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot be written to"):
        write_json_atomically(tmp_path / "file" / "x.json", {})
