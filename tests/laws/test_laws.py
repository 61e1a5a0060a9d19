"""The equalities that hold everything together, for every family."""

import dataclasses

import numpy as np
import pytest
import torch

import regard
import tiny
from regard.engine.quality.verify import batch_or_single, cached_or_not, largest, one_or_other, readable_or_fused, run
from regard.model import reference
from regard.model.transformer import EncoderOnly
from regard.nn.see import watching

ROWS = [[7, 9, 12, 40, 33, 8, 21, 15, 6, 30, 11], [8, 14, 9], [22, 6, 19, 45, 7]]
CLOSE = 5e-5  # float32, through layers of weights large enough that a wrong wiring shows
WRITERS = [*tiny.DECODERS, *tiny.SEQ2SEQ, *tiny.NATIVE]


@pytest.fixture(params=[*(name for name in tiny.MODELS if name != "bart-classify"), *tiny.NATIVE])
def model(request, saved):
    return regard.load(saved(request.param))


@pytest.fixture(params=["reference", "net"])
def net(model, request):
    """The network on numpy arrays, and as PyTorch's module."""
    return getattr(model, request.param)


def test_batch_is_single_and_padded_is_unpadded(net):
    assert batch_or_single(net, ROWS) < CLOSE


def test_readable_is_fused(model):
    assert readable_or_fused(model.net, ROWS) < CLOSE


def test_a_few_queries_at_a_time_is_all_at_once(model, monkeypatch):
    whole = run(model.reference, ROWS)
    monkeypatch.setattr(reference, "SCORES", 150)
    assert largest(whole, run(model.reference, ROWS)) < CLOSE


def test_numpy_is_pytorch(model):
    assert one_or_other(model.reference, model.net, ROWS) < CLOSE


def test_cached_is_uncached(net):
    difference = cached_or_not(net, ROWS)
    assert isinstance(net, EncoderOnly) if difference is None else difference < CLOSE


@pytest.mark.parametrize("name", [*tiny.DECODERS, "bert", "bert-mlm", "bert-tag", "roberta-mlm", "roberta-tag"])
@torch.no_grad()
def test_left_padding_is_no_padding(name, saved):
    """A mask with padding in front gives what the text alone gives."""
    model = regard.load(saved(name))
    ids = torch.tensor([[1, 1, 1, *ROWS[2]]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    out, alone = model(ids, mask=mask), model([ROWS[2]])
    np.testing.assert_allclose(out[:, 3:].numpy(), alone, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(model(ids.numpy(), mask=mask.numpy())[:, 3:], alone, rtol=0, atol=CLOSE)


def test_seen_is_unseen(model, net):
    """A watcher that changes nothing changes nothing, and every name is shown once."""
    names: list[str] = []

    def note(name, x):
        names.append(name)
        return x

    plain = run(net, ROWS)
    with watching(note):
        assert largest(plain, run(net, ROWS)) < CLOSE
    assert len(names) == len(set(names))
    both = model.spec.kind == "encoder-decoder"
    embeds = [name for name in names if name.endswith("embed.out")]
    assert sorted(embeds) == (["decoder.embed.out", "encoder.embed.out"] if both else ["embed.out"])
    layers = sum(stack.n_layers for stack in model.spec.stacks.values())
    assert sum(name.endswith("attention.weights") for name in names) == layers


@torch.no_grad()
def test_save_then_load_is_identity(model, tmp_path):
    model.save(tmp_path / "copy")
    again = regard.load(tmp_path / "copy")
    first, second = model.net.state_dict(), again.net.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert dataclasses.asdict(again.spec) == dataclasses.asdict(model.spec)


@pytest.mark.parametrize("engine", ["auto", "numpy", "torch"])
@pytest.mark.parametrize("name", WRITERS)
def test_generating_in_a_batch_is_generating_alone(name, engine, saved):
    model = regard.load(saved(name), engine=engine)
    for settings in ({"temperature": 0.0}, {"temperature": 1.0, "seed": 7, "n": 2}, {"num_beams": 3}):
        together = answers(model, ROWS, settings)
        alone = [answers(model, [row], settings)[0] for row in ROWS]
        assert together == alone


def answers(model, rows, settings):
    """Ids generated for each row: through the same door as text, which takes batches of ids only inside."""
    from regard.api.generation import prepare
    from regard.engine.generate import Answer, generate, search

    request = prepare(model, rows, {"max_new_tokens": 10, **settings})
    if settings.get("num_beams", 1) > 1:
        return [[a.ids for a in each] for each in search(request.decoder, request.rows)]
    done = [a.ids for a in generate(request.decoder, request.rows, request.prompt_of) if isinstance(a, Answer)]
    n = settings.get("n", 1)
    return [done[i * n : (i + 1) * n] for i in range(len(rows))]


@torch.no_grad()
def test_classifying_in_a_batch_is_classifying_alone(saved):
    model = regard.load(saved("bart-classify"))
    rows = [[*row, 2] for row in ROWS]
    together = model(rows)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(together[i], model([row])[0], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", ["gpt2", "llama", "llama-gqa-tied", "llama3", "qwen2", "mistral"])
@torch.no_grad()
def test_laying_out_for_decoding_changes_no_weight(name, saved):
    from regard.model.module import pack_for_decoding

    model = regard.load(saved(name))
    before, out = {k: v.clone() for k, v in model.net.state_dict().items()}, model(torch.tensor(ROWS[0]))
    pack_for_decoding(model.net)
    assert all(torch.equal(v, before[k]) for k, v in model.net.state_dict().items())
    torch.testing.assert_close(model(torch.tensor(ROWS[0])), out, rtol=0, atol=CLOSE)
