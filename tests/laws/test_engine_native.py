"""Two executions, one meaning: the native engine computes what the reference computes, for every family it takes."""

import dataclasses
import logging
import shutil
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
import tiny
import tiny_tokenizers
from regard.engine import pack_network
from regard.engine.lowering import unsupported
from regard.engine.native import library as native
from regard.engine.native_engine import CACHES, LoadedProgram, NativeDecoder, NativeEngine, NativeTranslator
from regard.engine.pack_network import NetworkWeights
from regard.engine.reference_decoder import ReferenceDecoder, ReferenceTranslator
from regard.engine.settings import Settings
from regard.engine.slots import NativeSlots, SlotInput
from regard.errors import ConfigError, GenerationError
from regard.nn.see import watching
from regard.store.gguf import read_gguf
from regard.store.gguf_write import write_gguf
from regard.store.number_formats import FORMATS, REPACKED, quantize
from regard.store.safetensors_write import save_checkpoint
from regard.text.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(native.library() is None, reason="the native engine is not built here")
ROWS = [[7, 9, 12, 40, 33, 8, 21, 15, 6, 30, 11], [8, 14, 9], [22, 6, 19, 45, 7]]
CLOSE = 1e-4  # float32
SEQ2SEQ = [*tiny.SEQ2SEQ, *(name for name in tiny.NATIVE if name != "gru")]


def engine_of(model, **given):
    return NativeEngine(model.spec, NetworkWeights(model.net, model.spec), **given)


def loaded(where, **given) -> Any:
    """A model whose network and engine are what the test says they are: a type checker knows neither."""
    return regard.load(where, **given)


def steps(stepper, picks=([0, 0, 2, 1], [3, 3, 1])):
    """Logits of a start, of some steps, and of steps after rows were picked and repeated."""
    logits = [stepper.prefill()]
    for n, rows in enumerate(picks):
        stepper.pick(rows)
        ids = [[5 + (i + 3 * j + n) % 40 for j in range(len(rows))] for i in range(4)]
        logits += [stepper.step(new) for new in ids]
    return logits


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", tiny.DECODERS)
@torch.no_grad()
def test_decoders(name, threads, saved, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    model = loaded(saved(name))
    ours, reference = NativeDecoder(engine_of(model), ROWS, 12), ReferenceDecoder(model.net, ROWS, 12)
    for a, b in zip(steps(ours), steps(reference), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "bart"])
@torch.no_grad()
def test_coarser_keys_and_values_change_little(name, saved):
    """How far a number may be is tested with the kernels; here, that 8 bits do not go astray on the way."""
    model = loaded(saved(name))
    exact, near, coarse = (
        steps(NativeTranslator(e, ROWS, [[2, 5]] * 3, 12) if name == "bart" else NativeDecoder(e, ROWS, 12))
        for e in (engine_of(model, cache=cache) for cache in CACHES)
    )
    for a, b, c in zip(exact, near, coarse, strict=True):
        size = np.abs(a).max()
        assert 0 < np.abs(b - a).max() < 0.002 * size
        assert 0 < np.abs(c - a).max() < 0.05 * size


@pytest.mark.parametrize("name", SEQ2SEQ)
@torch.no_grad()
def test_encoder_decoders(name, saved):
    model = loaded(saved(name))
    starts = [[2, 5]] * 3
    ours = NativeTranslator(engine_of(model, threads=2), ROWS, starts, 12)
    for a, b in zip(steps(ours), steps(ReferenceTranslator(model.net, ROWS, starts, 12)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", tiny.ENCODERS)
@torch.no_grad()
def test_encoders(name, saved):
    model = loaded(saved(name))
    for row, states in zip(ROWS, engine_of(model).states(ROWS), strict=True):
        np.testing.assert_allclose(states, model.net.states(torch.tensor([row]))[0], rtol=0, atol=CLOSE)


def test_what_it_does_not_know_is_left_to_the_reference(saved):
    assert unsupported(regard.load(saved("gru")).spec)
    assert unsupported(regard.load(saved("bart-classify")).spec)
    assert regard.load(saved("gru")).engine is None


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["gpt2", "mistral", "llama-gqa-tied"])
@torch.no_grad()
def test_a_text_gives_the_same_bits_alone_in_a_batch_and_in_pieces(name, cache, saved):
    model = loaded(saved(name))
    engine, longest = engine_of(model, max_rows=6, cache=cache), ROWS[0]
    together = NativeDecoder(engine, ROWS, 12).prefill()
    for row, logits in zip(ROWS, together, strict=True):
        assert np.array_equal(NativeDecoder(engine, [row], 12).prefill()[0], logits)
    pieces = NativeDecoder(engine, [longest[:2]], 20)
    pieces.prefill()
    for id in longest[2:]:
        last = pieces.step([id])
    assert np.array_equal(last[0], together[0])


@pytest.mark.parametrize("cache", CACHES)
@torch.no_grad()
def test_lanes_share_a_beginning_and_forget_it(cache, saved):
    model = loaded(saved("llama-gqa-tied"))
    engine = engine_of(model, cache=cache)
    lanes, whole = NativeSlots(engine, n_slots=3, capacity=30), [*ROWS[0], *ROWS[1]]
    expected = NativeDecoder(engine, [whole], 4).prefill()
    assert lanes.feed([SlotInput(1, ROWS[0], False), SlotInput(0, ROWS[2], False)]).shape == (0, model.spec.n_vocab)
    lanes.share(1, 2, len(ROWS[0]))
    both = lanes.feed([SlotInput(2, ROWS[1], True), SlotInput(0, [3], False), SlotInput(1, ROWS[1], True)])
    assert np.array_equal(both, expected.repeat(2, 0))
    lanes.share(2, 2, len(ROWS[0]))
    assert np.array_equal(lanes.feed([SlotInput(2, ROWS[1], True)]), expected)
    lanes.free(2)
    assert np.array_equal(lanes.feed([SlotInput(2, whole, True)]), expected)


def test_logits_of_several_places_are_those_of_each(saved):
    """Also where a text is longer than what goes through at a time, and another stands behind it."""
    model = loaded(saved("mistral"))
    engine, capacity = engine_of(model, max_rows=4), 32
    texts = [engine.new_cache(capacity) for _ in ROWS]
    together = engine.forward(texts, ROWS, capacity, wanted=[7, 0, 5])
    expected = [
        NativeDecoder(engine, [ROWS[i][:end]], 1).prefill()[0]
        for i, end in [*((0, n) for n in range(5, 12)), *((2, n) for n in range(1, 6))]
    ]
    assert np.array_equal(together, np.stack(expected))


@torch.no_grad()
def test_an_eight_bit_cache_is_the_reference_on_rounded_keys_and_values(saved):
    """Each head's 32 numbers share a scale, a 127th of the largest."""

    def rounded(name, X):
        if not name.endswith(("attention.K_rotated", "attention.V")):
            return X
        *_, d_k = X.shape
        blocks = np.pad(X, [*[(0, 0)] * (X.ndim - 1), (0, -d_k % 32)]).reshape(*X.shape[:-1], -1, 32)
        scale = np.abs(blocks).max(-1, keepdims=True) / 127
        return (scale * np.round(blocks / scale)).reshape(*X.shape[:-1], -1)[..., :d_k]

    model = loaded(saved("llama-gqa-tied"))
    ours = NativeDecoder(engine_of(model, cache="Q8_0"), ROWS, 1).prefill()
    plain = np.stack([model(row)[0, -1] for row in ROWS])
    with watching(rounded):
        expected = np.stack([model(row)[0, -1] for row in ROWS])
    np.testing.assert_allclose(ours, expected, atol=1e-4)
    assert np.abs(expected - plain).max() > 1e-2


# ── integers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def blocky(tmp_path_factory):
    """A tiny Llama whose rows divide into blocks of 32."""
    sizes = {**tiny.LLAMA, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    config = hf.LlamaConfig(**sizes, num_key_value_heads=2, tie_word_embeddings=True)
    directory = tmp_path_factory.mktemp("blocky")
    tiny.randomised(lambda: hf.LlamaForCausalLM(config)).save_pretrained(directory)
    return directory


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
@torch.no_grad()
def test_integers_are_the_reference_on_the_same_numbers(format, blocky):
    """But for the inputs of products, rounded to 3e-5 of their block's largest number (each product within its exact
    bound: tests/engine), and for keys and values in 16 bits: through three layers of large random weights."""
    model = loaded(blocky, quantize=format)
    assert {stored for stored, _ in model._rounded.values()} == {format.upper()}
    exact: Any = pack_network.engine_of_network(model.net, model.spec, model._rounded, cache="F32")
    reference = steps(ReferenceDecoder(model.net, ROWS, 12))
    scale = max(float(np.abs(logits).max()) for logits in reference)
    narrow: Any = pack_network.engine_of_network(model.net, model.spec, model._rounded)
    for engine, bound in ((exact, 2e-3), (narrow, 1e-2)):
        for a, b in zip(steps(NativeDecoder(engine, ROWS, 12)), reference, strict=True):
            assert float(np.abs(a - b).max()) < bound * scale


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """`files(format, v)`: a GGUF file of a Llama with rows of 256 numbers, in a format, but W_v in format `v`.

    What cannot be written here is random blocks with scales as real ones have."""
    sizes = {**tiny.LLAMA, "vocab_size": 371, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8}
    config = hf.LlamaConfig(**sizes, num_key_value_heads=2, tie_word_embeddings=True)
    directory = tmp_path_factory.mktemp("wide")
    hf.LlamaForCausalLM(config).save_pretrained(directory)
    Tokenizer(tiny_tokenizers.byte_level(), specials={"eos": "<|im_end|>"}).save(directory)
    plain = read_gguf(regard.load(directory).save(directory / "plain.gguf", format="gguf"))

    def make(format, v):
        def format_of(name, shape):
            return "F32" if len(shape) < 2 else v if "attn_v" in name else format

        def blocks(x, format):
            if FORMATS[format].encode is not None:
                return quantize(x, format)
            form, random = FORMATS[format], np.random.default_rng(x.size)
            raw = random.integers(0, 256, (x.shape[0], form.nbytes(x.shape[1:])), dtype=np.uint8)
            for field, size in (("d", 1e-4), ("m", -2e-3), ("dmin", 4e-4)):
                if field in (form.layout.names or ()):
                    raw.view(form.layout)[field] = size * (12 if form.block_elements == 32 and field == "d" else 1)
            return raw

        path = directory / f"{format}-{v}.gguf"
        rows = [(n, i.shape, format_of(n, i.shape), partial(plain.tensor, n)) for n, i in plain.tensors.items()]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regard.store.gguf_write.quantize", blocks)
            write_gguf(path, plain.metadata, rows)
        return path

    return make


@pytest.mark.parametrize(
    ("format", "v"), [("Q4_K", "Q6_K"), ("Q5_K", "Q5_K"), ("Q5_1", "Q5_0"), ("Q3_K", "Q2_K"), ("Q4_0", "F16")]
)
@torch.no_grad()
def test_files_in_other_blocks(format, v, files, caplog):
    """Turned into blocks that there are kernels for; the logits stay within 2 % of the reference's on the exact weights."""
    with caplog.at_level(logging.WARNING):
        model = loaded(files(format, v))
    said = [record.message for record in caplog.records]
    expected = sorted({f for f in (format, v) if f in REPACKED} - {"Q5_0"})
    assert len(said) == bool(expected)
    assert all(f"{name} as {REPACKED[name][0]}" in said[0] for name in expected)
    taken = {step.W.contents.format for step in model.engine.decoder.plan.steps if step.op == native.PRODUCT}
    assert taken == {native.FORMATS.index(REPACKED.get(f, (f,))[0]) for f in (format, v)}
    ours, reference = NativeDecoder(model.engine, ROWS, 12), ReferenceDecoder(model.net, ROWS, 12)
    for a, b in zip(steps(ours), steps(reference), strict=True):
        assert float(np.abs(a - b).max()) < 0.02 * float(np.abs(b).max())
    exact = loaded(files(format, v), dtype="float32")
    for a, b in zip(
        steps(NativeDecoder(exact.engine, ROWS, 12)),
        steps(reference := ReferenceDecoder(exact.net, ROWS, 12)),
        strict=True,
    ):
        assert float(np.abs(a - b).max()) < 1e-4 * float(np.abs(b).max())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@torch.no_grad()
def test_halves_are_the_reference_on_the_same_numbers(dtype, blocky):
    model = loaded(blocky, dtype=dtype)
    ours = NativeDecoder(engine_of(model), ROWS, 12)
    model.net.float()
    for a, b in zip(steps(ours), steps(ReferenceDecoder(model.net, ROWS, 12)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "mixed"])
@pytest.mark.parametrize("name", [*tiny.DECODERS, *SEQ2SEQ, *tiny.ENCODERS])
@torch.no_grad()
def test_packed_from_files_and_from_the_network_it_is_the_same_to_the_bit(name, dtype, saved, tmp_path):
    """Tensors that are stored otherwise (turned, stacked, tied), in every number format that checkpoints are written in."""
    first = regard.load(saved(name), engine="torch")
    tensors = {n: first.opened.file.tensor(n) for n in first.opened.file.names}
    kinds = {"float32": [torch.float32], "mixed": [torch.float64, torch.bfloat16, torch.float32, torch.float16]}
    for i, (n, tensor) in enumerate(tensors.items()):
        chosen = kinds.get(dtype) or [getattr(torch, dtype)]
        tensors[n] = tensor.to(chosen[i % len(chosen)])
    shutil.copytree(saved(name), tmp_path, dirs_exist_ok=True)
    save_checkpoint(tmp_path, tensors)
    model = loaded(tmp_path)
    assert model._net is None
    from_file, from_network = model.engine, engine_of(model)
    assert from_file.arena.size == from_network.arena.size
    if model.spec.kind == "encoder":
        for ours, theirs in zip(from_file.states(ROWS), from_network.states(ROWS), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        return
    begun = [
        NativeTranslator(e, ROWS, [[2, 5]] * 3, 12)
        if model.spec.kind == "encoder-decoder"
        else NativeDecoder(e, ROWS, 12)
        for e in (from_file, from_network)
    ]
    for a, b in zip(*map(steps, begun), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied"])
def test_float32_that_fits_into_16_bits_is_packed_in_16_and_no_bit_of_a_result_changes(name, dtype, saved, monkeypatch):
    """As of most checkpoints, which were written in 16 bits. One number that does not fit keeps its matrix whole."""
    model = loaded(saved(name), dtype=dtype)
    model.net.float()
    rows = [*ROWS, [5 + i % 40 for i in range(40)]]  # a few rows, and many
    narrow = engine_of(model)
    with torch.no_grad():
        model.net.decoder[1].mlp.up.weight[3, 5] += 1e-5
    odd = NetworkWeights(model.net, model.spec)
    assert odd.form("decoder.1.mlp.up.weight")[0] == "F32"
    assert odd.form("decoder.0.mlp.up.weight")[0] == {"float16": "F16", "bfloat16": "BF16"}[dtype]
    with torch.no_grad():
        model.net.decoder[1].mlp.up.weight[3, 5] -= 1e-5
    monkeypatch.setattr(pack_network, "narrowest", lambda W: "F32")
    whole = engine_of(model)
    assert narrow.arena.size < 0.6 * whole.arena.size
    for a, b in zip(steps(NativeDecoder(narrow, rows, 12)), steps(NativeDecoder(whole, rows, 12)), strict=True):
        np.testing.assert_array_equal(a, b)


# ── through the front door ───────────────────────────────────────────────────────────────────────────────────────────

ASKED: list[dict[str, Any]] = [
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"temperature": 1.0, "seed": 7, "n": 3, "top_p": 0.9},
    {"temperature": 0.7, "seed": 3, "top_k": 9, "no_repeat_ngram_size": 2},
    {"num_beams": 3, "n": 2, "length_penalty": 0.7},
]
OPTIONS: list[dict[str, Any]] = [  # each by itself, so that none is lost on the way to one of the engines
    {"temperature": 1.0, "seed": 5, "typical_p": 0.4},
    {"temperature": 1.5, "seed": 5, "min_p": 0.2},
    {"presence_penalty": 1.5, "frequency_penalty": 0.8},
    {"logit_bias": {9: 3.0, 12: -50.0}},
    {"suppress_tokens": [9, 12, 40], "begin_suppress_tokens": [7, 8, 11]},
    {"bad_words_ids": [[9], [12, 40]]},
    {"eos_token_id": list(range(5, 30)), "min_new_tokens": 4},
    {"eos_token_id": list(range(5, 30)), "min_length": 14},
    {"forced_bos_token_id": 17, "forced_eos_token_id": 2},
    {"max_length": 15},
    {"num_beams": 2, "early_stopping": True, "renormalize_logits": True, "suppress_tokens": [9]},
]
ELSEWHERE = {"stop", "prompt_lookup", "max_new_tokens"}  # tested on their own
IDS = {"decoder_start_token_id", "bos_token_id", "pad_token_id"}  # choose nothing


def test_no_option_is_forgotten():
    tried = {name for asked in ASKED + OPTIONS for name in asked}
    assert tried | ELSEWHERE | IDS == {field.name for field in dataclasses.fields(Settings)}


@pytest.mark.parametrize("asked", OPTIONS)
@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_every_option_does_the_same_on_both_engines(name, asked, saved):
    native, torch_path = regard.load(saved(name), engine="native"), regard.load(saved(name), engine="torch")
    least = {} if "max_length" in asked else {"max_new_tokens": 12}
    for row in ROWS:
        ours, theirs = (m.answers(row, **{"num_beams": 1, **least, **asked})[0] for m in (native, torch_path))
        assert [(a.ids, a.finished) for a in ours] == [(a.ids, a.finished) for a in theirs]


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_text_that_outgrows_the_context_ends_there(name, engine, saved):
    """Nothing is shifted out to make room: an answer ends with the context, and a prompt that fills it is refused."""
    model = loaded(saved(name), engine=engine)
    context = model.spec.context
    prompt = [5 + i % 40 for i in range(context)]
    answer = model.answers(prompt[:-3], max_new_tokens=10, eos_token_id=[])[0][0]
    assert (len(answer.ids), answer.finished) == (3, "length")
    if engine == "native":
        assert model.answers(prompt[:-3], max_new_tokens=10, eos_token_id=[], prompt_lookup=9)[0][0] == answer
    for too_long in (prompt, [*prompt, 5]):
        with pytest.raises(GenerationError, match=f"context holds {context}"):
            model.answers(too_long, max_new_tokens=1)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", ["gpt2", "mistral", "bart", "vaswani-pre"])
def test_what_is_written_is_what_the_reference_writes(name, asked, saved):
    native, torch_path = regard.load(saved(name), engine="native"), regard.load(saved(name), engine="torch")
    for row in ROWS:
        ours, theirs = (m.answers(row, max_new_tokens=12, **asked)[0] for m in (native, torch_path))
        assert [a.ids for a in ours] == [a.ids for a in theirs]
        assert [a.finished for a in ours] == [a.finished for a in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=CLOSE)


def test_rewritten_weights_are_packed_again(saved):
    model = loaded(saved("gpt2"))
    first = model.engine
    assert model.engine is first
    before = model.answers(ROWS[0], max_new_tokens=6)[0][0].logprobs
    with torch.no_grad():
        model.net.final_norm.weight.mul_(0.5)
    after = model.answers(ROWS[0], max_new_tokens=6)[0][0]
    assert model.engine is not first
    again = loaded(saved("gpt2"), engine="torch")
    again.net.final_norm.weight.data = model.net.final_norm.weight.data
    assert after.logprobs == pytest.approx(again.answers(ROWS[0], max_new_tokens=6)[0][0].logprobs, abs=CLOSE)
    assert after.logprobs != pytest.approx(before, abs=CLOSE)


def test_whoever_watches_sees_the_reference(saved):
    model, names = regard.load(saved("gpt2")), set[str]()

    def note(name, x):
        names.add(name)
        return x

    with watching(note):
        model.answers(ROWS[0], max_new_tokens=2)
    assert "decoder.0.attention.weights" in names


def test_choosing_the_engine(saved, monkeypatch, caplog):
    with pytest.raises(ConfigError, match="auto, native, numpy, torch"):
        regard.load(saved("gpt2"), engine="fast")
    with pytest.raises(ConfigError, match=r"it does not know how to compute `pick` at decoder\.dense"):
        regard.load(saved("gru"), engine="native")
    assert regard.load(saved("gpt2"), engine="torch").engine is None
    monkeypatch.setenv("REGARD_LIBRARY", "/nowhere/engine.so")
    native.library.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            models = [regard.load(saved("gpt2")) for _ in "12"]
        assert all(model.engine is None for model in models)
        assert sum("numpy computes instead" in record.message for record in caplog.records) == 1  # said once
    finally:
        native.library.cache_clear()


# ── going on ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(same=st.integers(0, 30), first=st.integers(1, 30), more=st.integers(1, 12), new=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_a_text_that_begins_like_the_last_one_goes_on_from_there(talker, same, first, more, new):
    """A prompt takes over the keys and values of what it has in common with the text before it: equal to the bit."""
    before = [5 + 7 * i % 40 for i in range(first)]
    prompt = [*before[:same], *(6 + 11 * i % 40 for i in range(more))]
    earlier = NativeDecoder(talker, [before], new + 8)
    earlier.prefill()
    for i in range(new):
        earlier.step([9 + i])
    going_on, alone = NativeDecoder(talker, [prompt], 3), NativeDecoder(talker, [prompt, [3]], 3)
    assert np.array_equal(going_on.prefill(), alone.prefill()[:1])
    assert going_on.caches[0].ids == prompt
    assert np.array_equal(going_on.step([8]), alone.step([8, 8])[:1])


def test_a_text_that_nobody_writes_any_more_is_gone_on_with_in_place(talker):
    before, prompt = list(range(5, 25)), [*range(5, 15), 30, 31]
    earlier = NativeDecoder(talker, [before], 8)
    earlier.prefill()
    place = earlier.caches[0].pointer
    first = NativeDecoder(talker, [prompt], 8)
    alone = [first.prefill(), first.step([8])]
    assert first.caches[0].pointer != place, "the earlier one may still be written"
    expected = NativeDecoder(talker, [[*before, 9]], 8).prefill()
    assert np.array_equal(earlier.step([9]), expected)
    del earlier, first
    second = NativeDecoder(talker, [before], 8)
    second.prefill()
    place = second.caches[0].pointer
    del second
    again = NativeDecoder(talker, [prompt], 14)
    assert np.array_equal(again.prefill(), alone[0])
    assert again.caches[0].pointer == place
    assert np.array_equal(again.step([8]), alone[1])


@pytest.mark.parametrize("room", [200, 2])  # more than the last text has, and much less
def test_a_text_of_another_size_has_memory_of_its_own(talker, room):
    earlier = NativeDecoder(talker, [[5, 6, 7]], 100)
    earlier.prefill()
    place = earlier.caches[0].pointer
    del earlier
    other = NativeDecoder(talker, [[5, 6, 8]], room)
    other.prefill()
    assert other.caches[0].pointer != place


def test_a_prompt_that_was_interrupted_is_not_taken_for_read(talker, monkeypatch):
    prompt = list(range(5, 25))
    expected = NativeDecoder(talker, [prompt, [3]], 8).prefill()[:1]

    def interrupted(side, *given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LoadedProgram, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            NativeDecoder(talker, [prompt], 8).prefill()
    assert np.array_equal(NativeDecoder(talker, [prompt], 8).prefill(), expected)


@pytest.fixture(scope="module")
def talker(saved):
    return engine_of(regard.load(saved("llama-gqa-tied")))


def test_a_conversation_does_not_read_itself_again(saved, monkeypatch):
    model = loaded(saved("llama-gqa-tied"), engine="native")
    read, forward = [], NativeEngine.forward

    def listen(engine, texts, tokens, *more):
        read.append(len(tokens[0]))
        return forward(engine, texts, tokens, *more)

    monkeypatch.setattr(NativeEngine, "forward", listen)
    first = model.answers([5, 6, 7, 8, 9], temperature=0, max_new_tokens=4)[0][0].ids
    model.answers([5, 6, 7, 8, 9, *first, 11, 12], temperature=0, max_new_tokens=2)
    assert read == [5, 1, 1, 1, 3, 1], "of the second prompt, what the first answer's last token and the new words are"
