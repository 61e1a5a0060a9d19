"""Tokenizer files as they come from strangers: read them, and refuse the damaged ones by name.

In: paths. Out: text and JSON objects that are safe to hand to the `tokenizers` library, which trusts its input more
than it should: some contradictions make it panic, which prints to stderr and is no `Exception`.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import RegardError, TokenizerError

T = TypeVar("T")


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} is not UTF-8 text (byte {error.start}).") from None
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}.") from None


def parse_object(text: str, file: Path) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{file} is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise TokenizerError(f"{file} holds a JSON {type(data).__name__}; an object was expected.")
    return data


def read_object(file: Path) -> dict[str, Any]:
    """A JSON object, empty if there is no such file."""
    return parse_object(read_text(file), file) if file.is_file() else {}


def check_model(model: Any, file: Path) -> None:
    """Refuse a vocabulary with shared ids and merges of or into missing tokens, some of which panic the library."""
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise TokenizerError(f"{file} has no model with a vocabulary.")
    vocab = model["vocab"]
    if isinstance(vocab, list):
        return
    check_ids(vocab, file)
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or []:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise TokenizerError(f"{file} has a merge that is not a pair of tokens: {merge!r}.")
        for token in (*pair, pair[0] + pair[1].removeprefix(prefix)):
            if token not in vocab:
                raise TokenizerError(f"{file} merges {pair[0]!r} and {pair[1]!r}, but has no token {token!r}.")


def check_ids(vocab: dict[str, Any], file: Path) -> None:
    seen: dict[int, str] = {}
    for token, i in vocab.items():
        if type(i) is not int or i < 0:
            raise TokenizerError(f"{file} gives the token {token!r} the id {i!r}; ids are whole numbers from 0.")
        if i in seen:
            raise TokenizerError(f"{file} gives the id {i} to both {seen[i]!r} and {token!r}.")
        seen[i] = token


def check_stages(data: dict[str, Any], file: Path) -> None:
    """Two more things the library panics on: a template naming unknown special tokens, a damaged character map."""
    for stage in _stages(data.get("post_processor"), "processors"):
        known = stage.get("special_tokens") or {}
        used = [
            p.get("SpecialToken") for key in ("single", "pair") for p in stage.get(key) or [] if isinstance(p, dict)
        ]
        for token in used:
            if token and token.get("id") not in known:
                raise TokenizerError(
                    f"{file} puts {token.get('id')!r} around texts without saying which token that is."
                )
    for stage in _stages(data.get("normalizer"), "normalizers"):
        if stage.get("type") == "Precompiled" and not _is_charsmap(stage.get("precompiled_charsmap")):
            raise TokenizerError(f"{file} has a damaged precompiled_charsmap.")


def _stages(stage: Any, children: str) -> Iterable[dict[str, Any]]:
    if isinstance(stage, dict):
        yield stage
        for child in stage.get(children) or []:
            yield from _stages(child, children)


def _is_charsmap(text: Any) -> bool:
    """A SentencePiece character map: the size of a trie in 4 bytes, the trie, then its strings."""
    try:
        blob = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return False
    size = int.from_bytes(blob[:4], "little")
    return len(blob) > 4 and size % 4 == 0 and 4 + size <= len(blob)


def guarded(where: str, work: Callable[[], T]) -> T:
    """Run the library and turn what it raises, panics included, into a sentence naming `where`."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError, RegardError):
        raise
    except BaseException as error:
        reason = str(error).strip().rstrip(".")
        raise TokenizerError(f"{where} cannot be used as a tokenizer: {reason}.") from None
