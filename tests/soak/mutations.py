"""Damage to a model's files, drawn from a seed: what disks, networks, converters and enemies do to them.

`damage(directory, random)` changes one or two files in place and says what it did. JSON is changed as JSON (a value, a key,
a type), everything also as bytes.
"""

import json
import os
import random as chance
from pathlib import Path
from typing import Any

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, 10**9, 10**18)
FLOATS = (0.0, -0.0, 0.5, -1.0, 1e-320, 1e38, 1e39, 1e308, float("nan"), float("inf"), float("-inf"))
WORDS = (
    "",
    "a",
    "\0",
    "\x1b[2J",
    "../../etc/passwd",
    "<|im_end|>",
    "ſ" * 9,
    "\U0010ffff",
    "a" * 5000,
    "[CLS]",
    "{{ 1 }}",
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": ""}, [1, 2, 3], {"type": "Sequence"})


def damage(directory: Path, random: chance.Random) -> str:
    files = sorted(file for file in directory.iterdir() if file.is_file())
    chosen = random.sample(files, min(len(files), random.choice((1, 1, 1, 2))))
    return "; ".join(f"{file.name}: {_damage_file(file, random)}" for file in chosen)


def _damage_file(file: Path, random: chance.Random) -> str:
    if random.random() < 0.03:
        return _replace_file(file, random)
    if file.suffix == ".json" and random.random() < 0.8:
        return _damage_json(file, random)
    return _damage_bytes(file, random)


def _replace_file(file: Path, random: chance.Random) -> str:
    """By nothing, or by something that is no file."""
    file.unlink()
    how = random.choice(("missing", "directory", "fifo", "device", "loop"))
    if how == "directory":
        file.mkdir()
    elif how == "fifo":
        os.mkfifo(file)
    elif how == "device":
        file.symlink_to("/dev/zero")
    elif how == "loop":
        file.symlink_to(file.name)
    return how


def _damage_bytes(file: Path, random: chance.Random) -> str:
    data = bytearray(file.read_bytes())
    header = random.random() < 0.7  # where lengths, types and names stand
    at = random.randrange(min(len(data), 4096) if header else len(data)) if data else 0
    size = random.choice((1, 1, 2, 4, 8, 64, 1000))
    how = random.choice(("flip", "random", "zeros", "ones", "cut", "insert", "drop", "repeat", "number"))
    if how == "flip" and data:
        data[at] ^= 1 << random.randrange(8)
    elif how == "random":
        data[at : at + size] = random.randbytes(size)
    elif how == "zeros":
        data[at : at + size] = bytes(size)
    elif how == "ones":
        data[at : at + size] = b"\xff" * size
    elif how == "cut":
        del data[at:]
    elif how == "insert":
        data[at:at] = random.randbytes(size)
    elif how == "drop":
        del data[at : at + size]
    elif how == "repeat":
        data[at:at] = data[at : at + size] * random.choice((1, 2, 50))
    elif how == "number":
        data[at : at + 8] = (random.choice(NUMBERS) % 2**64).to_bytes(8, "little")
    file.write_bytes(data)
    return f"{how} of {size} at {at}"


def _damage_json(file: Path, random: chance.Random) -> str:
    whole = json.loads(file.read_bytes())
    parents = list(_containers(whole))
    parent = random.choice(parents)
    shallow = [p for p in parents[:40] if p]
    if random.random() < 0.6 and shallow:  # vocabularies are most of a tokenizer.json
        parent = random.choice(shallow)
    keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    key = random.choice(keys) if keys else None
    how = random.choice(("value", "value", "value", "other", "delete", "add", "nest", "rename", "long"))
    if key is None:
        how = "add"
    if how == "value":
        parent[key] = _near(parent[key], random)
    elif how == "other":
        container = random.choice(parents)
        inside = list(container.values()) if isinstance(container, dict) else container
        parent[key] = json.loads(json.dumps(random.choice(inside))) if inside else None
    elif how == "delete":
        del parent[key]
    elif how == "add" and isinstance(parent, dict):
        parent[random.choice(("x", "", "rope_scaling", "is_causal", "quantization_config", "head_dim"))] = _nasty(
            random
        )
    elif how == "add":
        parent.insert(random.randrange(len(parent) + 1), _nasty(random))
    elif how == "nest":
        for _ in range(random.choice((1, 70, 2000))):
            parent[key] = [parent[key]]
    elif how == "rename" and isinstance(parent, dict):
        parent[str(_nasty(random))[:100]] = parent.pop(key)
    elif how == "long":
        parent[key] = [parent[key]] * 3000 if random.random() < 0.5 else {str(i): parent[key] for i in range(3000)}
    try:
        file.write_text(json.dumps(whole, ensure_ascii=random.random() < 0.5), encoding="utf-8", errors="surrogatepass")
    except RecursionError:  # nested more deeply than this can be written
        file.write_text("[" * 5000 + "]" * 5000)
    return f"{how} of {str(key)[:60]!r}"


def _containers(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def _near(value: Any, random: chance.Random) -> Any:
    """Often something of the same kind, which gets further."""
    if random.random() < 0.4:
        return _nasty(random)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice(
            (value + 1, value - 1, -value, value * 2, value // 2, value * 1000, random.choice(NUMBERS))
        )
    if isinstance(value, float):
        return random.choice((value * 2, -value, value * 1e6, random.choice(FLOATS)))
    if isinstance(value, str):
        return random.choice((value + "x", value[:-1], value * 3, value.upper(), random.choice(WORDS)))
    return _nasty(random)


def _nasty(random: chance.Random) -> Any:
    return random.choice(random.choice((NUMBERS, FLOATS, WORDS, OTHERS)))
