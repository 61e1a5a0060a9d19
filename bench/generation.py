"""Decoding and prefilling in float32 beside `transformers`, on the shapes of SmolLM2 and GPT-2 with random weights."""

import time
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from bench.versus import Comparison, alternate
from regard.engine.decode import Decoder
from regard.model.registry import spec_of
from regard.model.transformer import DecoderOnly, build

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
SHAPES: dict[str, tuple[Any, Any, float]] = {
    "SmolLM2-135M": (transformers.LlamaForCausalLM, SMOLLM2, 3.0),
    "GPT-2 124M": (transformers.GPT2LMHeadModel, transformers.GPT2Config(), 1.2),
}
NEW, PROMPT, LONG = 32, 64, 512


def comparisons() -> Iterator[Comparison]:
    for name, (cls, config, decode_aim) in SHAPES.items():
        theirs = cls(config).eval()
        theirs.generation_config.eos_token_id = None
        ours = build(spec_of(config.to_dict())).eval().requires_grad_(False)
        assert isinstance(ours, DecoderOnly)
        ids = torch.randint(0, 1000, (1, LONG), generator=torch.Generator().manual_seed(0))
        yield alternate(
            f"{name}, float32, decode 1 stream after {PROMPT} tokens",
            "tok/s",
            lambda ours=ours, ids=ids: our_decode(ours, ids),  # type: ignore[misc]
            lambda theirs=theirs, ids=ids: their_decode(theirs, ids),  # type: ignore[misc]
            aim=decode_aim,
        )
        yield alternate(
            f"{name}, float32, prefill {LONG} tokens",
            "tok/s",
            lambda ours=ours, ids=ids: our_prefill(ours, ids),  # type: ignore[misc]
            lambda theirs=theirs, ids=ids: their_prefill(theirs, ids),  # type: ignore[misc]
            aim=1.0,
        )


@torch.inference_mode()
def our_decode(net: DecoderOnly, ids: torch.Tensor) -> float:
    decoder = Decoder(net, [ids[0, :PROMPT].tolist()], NEW + 1)
    logits = decoder.start()
    begin = time.perf_counter()
    for _ in range(NEW):
        logits = decoder.step(logits.argmax(-1))
    return NEW / (time.perf_counter() - begin)


def their_decode(model: Any, ids: torch.Tensor) -> float:
    """`generate` of many tokens less `generate` of one, so that the prompt does not count."""
    times = []
    for n in (1, NEW + 1):
        begin = time.perf_counter()
        model.generate(ids[:, :PROMPT], max_new_tokens=n, do_sample=False, pad_token_id=0)
        times.append(time.perf_counter() - begin)
    return NEW / (times[1] - times[0])


@torch.inference_mode()
def our_prefill(net: DecoderOnly, ids: torch.Tensor) -> float:
    decoder = Decoder(net, [ids[0].tolist()], 1)
    begin = time.perf_counter()
    decoder.start()
    return LONG / (time.perf_counter() - begin)


@torch.inference_mode()
def their_prefill(model: Any, ids: torch.Tensor) -> float:
    begin = time.perf_counter()
    model(ids, use_cache=True, logits_to_keep=1)
    return LONG / (time.perf_counter() - begin)
