"""Tokenizer files as they come from strangers: read them, and refuse the damaged ones by name.

In: paths. Out: text and JSON objects that are safe to hand to the `tokenizers` library, which trusts its input more
than it should: some contradictions make it panic, which prints to stderr and is no `Exception`.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from regard.errors import RegardError, TokenizerError
from regard.modelfile import LARGE, read_file

T = TypeVar("T")


def read_text(file: Path, limit: int = LARGE) -> str:
    try:
        text = read_file(file, limit, TokenizerError).decode()
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} is not UTF-8 text (byte {error.start}).") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")  # as Python reads text files


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
    return parse_object(read_text(file), file) if file.exists() else {}


def check_model(model: Any, file: Path) -> None:
    """Refuse a vocabulary with shared ids, and merges of or into missing tokens, on which the library panics."""
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):  # a unigram model: pieces with scores, their place is their id
        return
    if not isinstance(vocab, dict):
        raise TokenizerError(f"{file} has no model with a vocabulary.")
    _check_ids(vocab, file)
    prefix = model.get("continuing_subword_prefix")
    merges = model.get("merges", [])
    for merge in merges if isinstance(merges, list) else []:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise TokenizerError(f"{file} has a merge that is not a pair of tokens: {merge!r}.")
        made = pair[0] + pair[1].removeprefix(prefix if isinstance(prefix, str) else "")
        for token in (*pair, made):
            if token not in vocab:
                raise TokenizerError(f"{file} merges {pair[0]!r} and {pair[1]!r}, but has no token {token!r}.")


def _check_ids(vocab: dict[str, Any], file: Path) -> None:
    seen: dict[int, str] = {}
    for token, i in vocab.items():
        if type(i) is not int or i < 0:
            raise TokenizerError(f"{file} gives the token {token!r} the id {i!r}; ids are whole numbers from 0.")
        if i in seen:
            raise TokenizerError(f"{file} gives the id {i} to both {seen[i]!r} and {token!r}.")
        seen[i] = token


def check_normalizer(data: dict[str, Any], file: Path) -> None:
    """Refuse a damaged SentencePiece character map, on which the library panics."""
    for stage in _stages(data.get("normalizer"), "normalizers"):
        if stage.get("type") == "Precompiled" and not _is_charsmap(stage.get("precompiled_charsmap")):
            raise TokenizerError(f"{file} has a damaged precompiled_charsmap.")


def check_frame(data: dict[str, Any], file: Path) -> None:
    """Refuse a template of unknown special tokens, on which the library panics later; it has parsed the file by now."""
    for stage in _stages(data.get("post_processor"), "processors"):
        for piece in [*stage.get("single", []), *stage.get("pair", [])]:
            token = piece.get("SpecialToken")
            if token and token["id"] not in stage["special_tokens"]:
                raise TokenizerError(f"{file} puts {token['id']!r} around texts without saying which token that is.")


def _stages(stage: Any, children: str) -> Iterator[dict[str, Any]]:
    """A serialised stage of a pipeline and, if it is a sequence, the stages in it."""
    if isinstance(stage, dict):
        yield stage
        inside = stage.get(children)
        for child in inside if isinstance(inside, list) else []:
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
