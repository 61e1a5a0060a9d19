"""The native engine compared with llama.cpp, CTranslate2 and `transformers`, two threads each: SmolLM2's own GGUF file,
GPT-2 in float32 and in 8 bits, and a translation model of Marian's usual size. GPT-2 and Marian have random weights.

llama.cpp and CTranslate2 are installed by `make peers`; without them their rows are left out, with a message.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

import regard
from bench import generation
from bench.generation import LONG, NEW, PROMPT, their_decode, their_prefill
from bench.peer import Peer, interpreter
from bench.versus import Comparison, Share, alternate, memory_speed
from regard.engine.beam_search import beam_search
from regard.engine.native_engine import NativeDecoder, NativeEngine, NativeTranslator
from regard.engine.pack_network import engine_of_network
from regard.engine.sampling import start
from regard.engine.settings import Settings
from regard.model.build import arrays_of, build
from regard.model.registry import spec_of
from regard.store.quantize import quantize_weights

THREADS, STREAMS, FAR, ROOM = 2, 16, 4000, 4608
BATCHES, SOURCE, BEAMS, TARGET = (1, 8), 24, 4, 24  # sentences at a time, tokens of each, beams, tokens generated
MARIAN = transformers.MarianConfig(
    vocab_size=58101,
    d_model=512,
    encoder_layers=6,
    decoder_layers=6,
    encoder_attention_heads=8,
    decoder_attention_heads=8,
    encoder_ffn_dim=2048,
    decoder_ffn_dim=2048,
    max_position_embeddings=512,
    scale_embedding=True,
    activation_function="swish",
    pad_token_id=58100,
    decoder_start_token_id=58100,
    eos_token_id=0,
    forced_eos_token_id=None,
)


def comparisons() -> Iterator[Comparison | Share]:
    torch.set_num_threads(THREADS)
    yield from smollm2()
    with tempfile.TemporaryDirectory() as scratch:
        yield from gpt2(Path(scratch) / "gpt2")
        yield from marian(Path(scratch) / "marian")


# ── SmolLM2, its own numbers ─────────────────────────────────────────────────────────────────────────────────────────


def smollm2() -> Iterator[Comparison | Share]:
    python = interpreter()
    if python is None:
        return
    model = regard.load("smollm2", engine="native")
    engine = model.engine
    assert engine is not None
    name = "SmolLM2-135M, its Q4_1 file (peer: llama.cpp)"
    speeds = list[float]()  # memory bandwidth, measured between the turns

    def write() -> float:
        speeds.append(memory_speed())
        return decode(engine, 1, PROMPT, 2 * NEW)

    with Peer(python, "llama_peer.py", model.path, THREADS, ROOM) as peer:
        decoding = alternate(
            f"{name}, decode 1 stream after {PROMPT} tokens",
            "tok/s",
            write,
            lambda: peer.ask(f"decode {PROMPT} {2 * NEW}"),
            aim=1.8,
        )
        yield decoding
        yield Share(
            f"{name}, of the memory bandwidth",
            decoding.ours * engine.arena.size / 1e9 / statistics.median(speeds),
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


def decode(engine: NativeEngine, streams: int, prompt: int, new: int) -> float:
    return generation.decode(
        partial(NativeDecoder, engine), engine, [[5 + i % 1000 for i in range(prompt)]] * streams, new
    )


def prefill(engine: NativeEngine, length: int) -> float:
    return generation.prefill(partial(NativeDecoder, engine), engine, [5 + i % 1000 for i in range(length)])


# ── GPT-2 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def engines(config: Any) -> Iterator[tuple[str, str, NativeEngine]]:
    """Our engines in float32 and in 8 bits, each with CTranslate2's name for it."""
    spec = spec_of(config.to_dict())
    for name, kind in (("float32", "float32"), ("8 bits", "int8")):
        net = build(spec).eval().requires_grad_(False)
        engine = engine_of_network(net, spec, quantize_weights(arrays_of(net), "q8")[1] if kind == "int8" else None)
        assert engine is not None
        yield name, kind, engine


def gpt2(directory: Path) -> Iterator[Comparison]:
    config = transformers.GPT2Config()
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.generation_config.eos_token_id = None
    theirs.save_pretrained(directory)
    ids, python = torch.randint(0, 1000, (1, LONG), generator=torch.Generator().manual_seed(0)), interpreter()
    after, whole = f"decode 1 stream after {PROMPT} tokens", f"prefill {LONG} tokens"
    for name, kind, engine in engines(config):

        def write(engine: NativeEngine = engine) -> float:
            return decode(engine, 1, PROMPT, NEW)

        def read(engine: NativeEngine = engine) -> float:
            return prefill(engine, LONG)

        if kind != "float32":  # which bench/generation.py compares with transformers
            yield alternate(f"GPT-2 124M, {name}, {after}", "tok/s", write, lambda: their_decode(theirs, ids), aim=3.0)
            yield alternate(f"GPT-2 124M, {name}, {whole}", "tok/s", read, lambda: their_prefill(theirs, ids))
        if python is not None:
            with Peer(python, "ctranslate2_peer.py", directory, kind, THREADS) as peer:
                label = f"GPT-2 124M, {name} (peer: CTranslate2)"
                yield alternate(
                    f"{label}, {after}", "tok/s", write, lambda: peer.ask(f"decode {PROMPT} {NEW}"), aim=1.0
                )
                yield alternate(f"{label}, {whole}", "tok/s", read, lambda: peer.ask(f"prefill {LONG}"), aim=1.0)


# ── translation ──────────────────────────────────────────────────────────────────────────────────────────────────────


def marian(directory: Path) -> Iterator[Comparison]:
    theirs = transformers.MarianMTModel(MARIAN).eval()
    theirs.save_pretrained(directory)
    python = interpreter()
    for name, kind, engine in engines(MARIAN):
        for n in BATCHES:
            what = f"translate {n} × {SOURCE} tokens into {TARGET}, {BEAMS} beams"
            asked = f"translate {n} {SOURCE} {BEAMS} {TARGET}"

            def write(engine: NativeEngine = engine, n: int = n) -> float:
                return translate(engine, n)

            def their_turn(n: int = n) -> float:
                return their_translation(theirs, n)

            yield alternate(f"Marian 6 + 6 × 512, {name}, {what}", "tok/s", write, their_turn, aim=3.0)
            if python is not None:
                with Peer(python, "ctranslate2_peer.py", directory, kind, THREADS) as peer:
                    label = f"Marian 6 + 6 × 512, {name} (peer: CTranslate2), {what}"
                    yield alternate(label, "tok/s", write, partial(peer.ask, asked), aim=1.0)


def sources(n: int) -> list[list[int]]:
    return [[5 + (7 * i + j) % 1000 for j in range(SOURCE)] for i in range(n)]


@torch.inference_mode()
def translate(engine: NativeEngine, n: int) -> float:
    first = MARIAN.decoder_start_token_id
    settings = Settings(num_beams=BEAMS, max_new_tokens=TARGET, min_new_tokens=TARGET, eos_token_id=(0,))
    begin = time.perf_counter()
    rows = [row for _ in range(n) for row in start(settings, [first], TARGET)]
    found = beam_search(NativeTranslator(engine, sources(n), [[first]] * n, TARGET), rows)
    rate = n * TARGET / (time.perf_counter() - begin)
    assert all(len(beams[0].ids) == TARGET for beams in found)
    return rate


@torch.inference_mode()
def their_translation(model: Any, n: int) -> float:
    begin = time.perf_counter()
    model.generate(
        torch.tensor(sources(n)), num_beams=BEAMS, max_new_tokens=TARGET, min_new_tokens=TARGET, do_sample=False
    )
    return n * TARGET / (time.perf_counter() - begin)
