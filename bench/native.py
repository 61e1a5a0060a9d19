"""The native engine: SmolLM2's GGUF file beside llama.cpp, and GPT-2 in float32 beside `transformers`; two threads each.

llama.cpp runs in a process of its own, under the interpreter that REGARD_PEERS names or `make peers` has made, and takes
turns with us; without it those rows are left out, and a sentence says so.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers

import regard
from bench.generation import LONG, NEW, PROMPT, their_decode, their_prefill
from bench.versus import Comparison, Share, alternate, memory_speed
from regard.engine.choose import engine_of_network
from regard.engine.fast import Engine, FastDecoder
from regard.model.registry import spec_of
from regard.model.transformer import build

THREADS, STREAMS, FAR = 2, 16, 4000
PEERS = Path(__file__).parent.parent / ".venv-peers" / "bin" / "python"


def comparisons() -> Iterator[Comparison | Share]:
    torch.set_num_threads(THREADS)
    yield from beside_llama_cpp()
    yield from beside_transformers()


# ── SmolLM2, its own numbers ─────────────────────────────────────────────────────────────────────────────────────────


class Peer:
    """llama.cpp in its own process: a line in, a rate out."""

    def __init__(self, python: Path, model: Path) -> None:
        command = [str(python), "-P", str(Path(__file__).with_name("llama_peer.py")), str(model), str(THREADS)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def beside_llama_cpp() -> Iterator[Comparison | Share]:
    python = Path(os.environ.get("REGARD_PEERS") or PEERS)
    model = regard.load("smollm2", engine="native")
    engine = model.engine
    assert engine is not None
    name = "SmolLM2-135M, its Q4_1 file (peer: llama.cpp)"
    if not python.exists():
        print(f"llama.cpp is not here ({python}): run `make peers` to compare with it.", file=sys.stderr)
        return
    peer = Peer(python, model.path)
    try:
        decoding = alternate(
            f"{name}, decode 1 stream after {PROMPT} tokens",
            "tok/s",
            lambda: decode(engine, 1, PROMPT, 2 * NEW),
            lambda: peer.ask(f"decode {PROMPT} {2 * NEW}"),
            rounds=9,
            aim=1.8,
        )
        yield decoding
        yield Share(
            f"{name}, of the memory bandwidth",
            decoding.ours * engine.arena.size / 1e9 / max(memory_speed() for _ in range(5)),
            at_least=0.7,
        )
        yield alternate(
            f"{name}, prefill {LONG} tokens",
            "tok/s",
            lambda: prefill(engine, LONG),
            lambda: peer.ask(f"prefill {LONG}"),
            aim=1.5,
        )
        yield alternate(
            f"{name}, decode after {FAR} tokens",
            "tok/s",
            lambda: decode(engine, 1, FAR, 16),
            lambda: peer.ask(f"decode {FAR} 16"),
            rounds=3,
            aim=1.5,
        )
        yield alternate(
            f"{name}, decode {STREAMS} streams after {PROMPT} tokens",
            "tok/s",
            lambda: decode(engine, STREAMS, PROMPT, 8),
            lambda: peer.ask(f"streams {STREAMS} {PROMPT} 8"),
            aim=1.5,
        )
    finally:
        peer.close()


def decode(engine: Engine, streams: int, prompt: int, new: int) -> float:
    """Tokens a second of all streams together, after the prompts were read."""
    decoder = FastDecoder(engine, [[5 + i % 1000 for i in range(prompt)]] * streams, new + 1)
    decoder.start()
    ids = torch.full((streams,), 5)
    begin = time.perf_counter()
    for _ in range(new):
        decoder.step(ids)
    return streams * new / (time.perf_counter() - begin)


def prefill(engine: Engine, length: int) -> float:
    decoder = FastDecoder(engine, [[5 + i % 1000 for i in range(length)]], 1)
    begin = time.perf_counter()
    decoder.start()
    return length / (time.perf_counter() - begin)


# ── GPT-2, float32 ───────────────────────────────────────────────────────────────────────────────────────────────────


def beside_transformers() -> Iterator[Comparison]:
    config = transformers.GPT2Config()
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.generation_config.eos_token_id = None
    spec = spec_of(config.to_dict())
    engine = engine_of_network(build(spec).eval().requires_grad_(False), spec)
    ids = torch.randint(0, 1000, (1, LONG), generator=torch.Generator().manual_seed(0))
    yield alternate(
        f"GPT-2 124M, float32, native, decode 1 stream after {PROMPT} tokens",
        "tok/s",
        lambda: decode(engine, 1, PROMPT, NEW),
        lambda: their_decode(theirs, ids),
        aim=3.0,
    )
    yield alternate(
        f"GPT-2 124M, float32, native, prefill {LONG} tokens",
        "tok/s",
        lambda: prefill(engine, LONG),
        lambda: their_prefill(theirs, ids),
        aim=1.0,
    )
