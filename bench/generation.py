"""Decode and prefill in float32 compared with `transformers`, on the shapes of SmolLM2 and GPT-2 with random weights: with
the native engine, which runs everything that is not traced, and with PyTorch. The peer computes in float32 throughout."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers

from bench.versus import Comparison, alternate
from regard.engine.native_engine import NativeDecoder, NativeEngine
from regard.engine.pack_network import engine_of_network
from regard.engine.reference_decoder import ReferenceDecoder
from regard.model.build import arrays_of, build
from regard.model.reference import reference
from regard.model.registry import spec_of
from regard.model.transformer import DecoderOnly

SMOLLM2 = transformers.LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    intermediate_size=1536,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
)
SHAPES: dict[str, tuple[Any, Any]] = {
    "SmolLM2-135M": (transformers.LlamaForCausalLM, SMOLLM2),
    "GPT-2 124M": (transformers.GPT2LMHeadModel, transformers.GPT2Config()),
}
NEW, PROMPT, LONG = 32, 64, 512
DecoderOf = Callable[[list[list[int]], int], Any]  # prompts, maximum of new tokens


def comparisons() -> Iterator[Comparison]:
    ids = torch.randint(0, 1000, (1, LONG), generator=torch.Generator().manual_seed(0))
    prompt, whole = ids[0, :PROMPT].tolist(), ids[0].tolist()
    for name, (cls, config) in SHAPES.items():
        theirs = cls(config).eval()
        theirs.generation_config.eos_token_id = None
        spec = spec_of(config.to_dict())
        net = build(spec).eval().requires_grad_(False)
        assert isinstance(net, DecoderOnly)
        plain = reference(spec, arrays_of(net))
        assert isinstance(plain, DecoderOnly)
        engine = engine_of_network(net, spec)
        narrow = engine_of_network(
            net.bfloat16().float(), spec
        )  # as in most checkpoints: float32 that was stored in 16 bits
        assert engine is not None
        assert narrow is not None
        for called, native, decoder, aims in (
            ("float32", engine, partial(NativeDecoder, engine), (3.0, 1.0)),
            ("float32 written in 16 bits", narrow, partial(NativeDecoder, narrow), (3.0, 1.0)),
            ("float32, PyTorch", engine, partial(ReferenceDecoder, net), (None, None)),
            ("float32, numpy", engine, partial(ReferenceDecoder, plain), (None, None)),
        ):
            yield alternate(
                f"{name}, {called}, decode 1 stream after {PROMPT} tokens",
                "tok/s",
                partial(decode, decoder, native, [prompt], NEW),
                partial(their_decode, theirs, ids),
                aim=aims[0],
            )
            yield alternate(
                f"{name}, {called}, prefill {LONG} tokens",
                "tok/s",
                partial(prefill, decoder, native, whole),
                partial(their_prefill, theirs, ids),
                aim=aims[1],
            )


def clear_prefix_cache(engine: NativeEngine) -> None:
    """Empty the prefix cache, so that the next prompt is prefilled whole."""
    if engine.last_cache is not None:
        engine.last_cache.truncate(0)


@torch.inference_mode()
def decode(decoder_of: DecoderOf, engine: NativeEngine, prompts: list[list[int]], new: int) -> float:
    """Tokens a second of all streams together, after the prefill."""
    clear_prefix_cache(engine)
    decoder = decoder_of(prompts, new + 1)
    logits = decoder.prefill()
    begin = time.perf_counter()
    for _ in range(new):
        logits = decoder.step(logits.argmax(-1))
    return len(prompts) * new / (time.perf_counter() - begin)


@torch.inference_mode()
def prefill(decoder_of: DecoderOf, engine: NativeEngine, prompt: list[int]) -> float:
    clear_prefix_cache(engine)
    decoder = decoder_of([prompt], 1)
    begin = time.perf_counter()
    decoder.prefill()
    return len(prompt) / (time.perf_counter() - begin)


def their_decode(model: Any, ids: torch.Tensor) -> float:
    """`generate` of many tokens less `generate` of one, so that the prompt does not count."""
    times = []
    for n in (1, NEW + 1):
        begin = time.perf_counter()
        model.generate(ids[:, :PROMPT], max_new_tokens=n, do_sample=False, pad_token_id=0)
        times.append(time.perf_counter() - begin)
    return NEW / (times[1] - times[0])


@torch.inference_mode()
def their_prefill(model: Any, ids: torch.Tensor) -> float:
    begin = time.perf_counter()
    model(ids, use_cache=True, logits_to_keep=1)
    return LONG / (time.perf_counter() - begin)
