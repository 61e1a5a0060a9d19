"""Every family against `transformers` on tiny random models with awkward sizes, in float32."""

import numpy as np
import pytest
import torch

import regard
import tiny

EOS = 5  # an ordinary id that random weights do choose now and then


def inputs(n_vocab: int, rows: int = 3, length: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and a mask with padding on the right."""
    generator = torch.Generator().manual_seed(n_vocab)
    ids = torch.randint(6, n_vocab - 1, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for i in range(1, rows):
        mask[i, length - 2 * i :] = 0
    return ids, mask


@torch.no_grad()
def compare(name, theirs, model, by_numpy=False):
    def ours(*given, **more):
        if not by_numpy:
            return model(*given, **more)
        arrays = [x.numpy() if isinstance(x, torch.Tensor) else x for x in given]
        out = model(*arrays, **{key: None if x is None else x.numpy() for key, x in more.items()})
        assert isinstance(out, np.ndarray)
        return torch.from_numpy(out)

    ids, mask = inputs(model.spec.stacks[next(iter(model.spec.stacks))].n_vocab)
    if name in tiny.DECODERS:
        return theirs(ids, attention_mask=mask).logits, ours(ids, mask=mask), mask
    if name in tiny.ENCODERS:
        types = (torch.arange(ids.shape[1]) > 5).long().expand_as(ids) if model.spec.encoder.n_types > 1 else None
        out = theirs(ids, attention_mask=mask, **({} if types is None else {"token_type_ids": types}))
        logits = out.logits if "logits" in out else out.last_hidden_state
        return logits, ours(ids, mask=mask, types=types), mask if logits.dim() == 3 else None
    if name == "bart-classify":
        ids[:, 4] = 2  # the text's end, where BART's classifier looks
        return theirs(ids, attention_mask=mask).logits, ours(ids, mask=mask), None
    target, target_mask = inputs(model.spec.n_vocab, length=8)
    out = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=target, decoder_attention_mask=target_mask)
    return out.logits, ours(ids, target, mask=mask), target_mask


@pytest.mark.parametrize("by_numpy", [False, True])
@pytest.mark.parametrize("name", tiny.MODELS)
def test_logits(name, by_numpy, saved):
    theirs, ours, mask = compare(name, tiny.make(name), regard.load(saved(name)), by_numpy)
    if mask is not None:
        theirs, ours = theirs[mask.bool()], ours[mask.bool()]
    assert theirs.std() > 0.05
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


def hidden_states(out, kind):
    return out.decoder_hidden_states if kind == "decoder" and "decoder_hidden_states" in out else out.hidden_states


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama-gqa-tied", "qwen2"])
@torch.no_grad()
def test_every_layers_states(name, saved):
    """Hidden states after each block, and the embedding, by our trace's names."""
    model, theirs = regard.load(saved(name)), tiny.make(name)
    ids = inputs(model.spec.n_vocab, rows=1)[0]
    trace, out = model.trace(ids[0].tolist()), theirs(ids, output_hidden_states=True)
    stack = model.spec.kind
    names = ["embed.out", *(f"{stack}.{i}.out" for i in range(model.spec.stacks[stack].n_layers))]
    if f"final_norm.{'out'}" in trace:
        names[-1] = "final_norm.out"  # transformers reports the last state after its norm
    for mine, reference in zip(names, out.hidden_states, strict=True):
        torch.testing.assert_close(trace.tensor(mine), reference[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["bart", "m2m_100"])
@torch.no_grad()
def test_cross_attention_weights(name, saved):
    model, theirs = regard.load(saved(name)), tiny.make(name)
    theirs.set_attn_implementation("eager")
    ids, target = inputs(model.spec.n_vocab, rows=1)[0], inputs(model.spec.n_vocab, rows=1, length=6)[0]
    out = theirs(input_ids=ids, decoder_input_ids=target, output_attentions=True)
    start = model.settings.decoder_start_token_id
    trace = model.trace(ids[0].tolist(), target[0].tolist())
    assert trace["decoder.0.cross.weights"].shape == (2, 7, 11)
    full = torch.cat([torch.tensor([[start]]), target], 1)
    out = theirs(input_ids=ids, decoder_input_ids=full, output_attentions=True)
    for i in range(3):
        torch.testing.assert_close(
            trace.tensor(f"decoder.{i}.cross.weights"), out.cross_attentions[i][0], rtol=0, atol=1e-5
        )
        weights = out.decoder_attentions[i][0]
        torch.testing.assert_close(trace.tensor(f"decoder.{i}.attention.weights"), weights, rtol=0, atol=1e-5)


def their_answers(model, ids, **settings):
    """Sequences without prompt and padding, and scores."""
    out = model.generate(
        ids,
        do_sample=False,
        max_new_tokens=14,
        eos_token_id=EOS,
        pad_token_id=1,
        output_scores=True,
        return_dict_in_generate=True,
        **settings,
    )
    start = 1 if model.config.is_encoder_decoder else ids.shape[1]
    rows = []
    for row in out.sequences.tolist():
        new = row[start:]
        new = new[: new.index(EOS) + 1] if EOS in new else new
        while new and new[-1] == 1:
            new.pop()
        rows.append(new)
    return rows, out.sequences_scores.tolist() if settings.get("num_beams", 1) > 1 else None


BEAMS = [
    {"num_beams": 1},
    {"num_beams": 3, "length_penalty": 1.0, "early_stopping": False},
    {"num_beams": 4, "length_penalty": 0.5, "early_stopping": True},
    {"num_beams": 4, "length_penalty": 2.0, "early_stopping": "never"},
    {"num_beams": 2, "length_penalty": -1.0, "early_stopping": False, "no_repeat_ngram_size": 2},
    {"num_beams": 3, "repetition_penalty": 1.3, "min_new_tokens": 5},
]


@pytest.mark.parametrize("settings", BEAMS, ids=lambda s: "-".join(str(v) for v in s.values()))
@pytest.mark.parametrize("name", ["gpt2", "llama-gqa-tied", "mistral", "bart", "bart-scaled", "marian", "m2m_100"])
def test_greedy_and_beam(name, settings, saved):
    theirs, ours = tiny.make(name), regard.load(saved(name))
    theirs.generation_config.max_length = None
    k = settings["num_beams"]
    ids = inputs(ours.spec.n_vocab, rows=1)[0]
    extra = {"num_return_sequences": k} if k > 1 else {}
    expected, scores = their_answers(theirs, ids, **settings, **extra)
    answers = ours.answers(ids[0].tolist(), max_new_tokens=14, eos_token_id=[EOS], n=k, **settings)[0]
    assert [a.ids for a in answers] == expected
    if scores is not None:
        assert [a.score for a in answers] == pytest.approx(scores, abs=2e-4)


@pytest.mark.parametrize("name", [n for n in tiny.MODELS if n != "bert-mlm-untied"])
@torch.no_grad()
def test_transformers_opens_what_is_saved(name, saved, tmp_path):
    """Save from here, load there: no missing or unexpected names, identical logits."""
    regard.load(saved(name)).save(tmp_path / "copy")
    original = tiny.make(name)
    copy, info = type(original).from_pretrained(tmp_path / "copy", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    again, first = copy.eval().state_dict(), original.state_dict()
    assert again.keys() == first.keys()
    assert all(torch.equal(again[key], first[key]) for key in first)


@torch.no_grad()
def test_untied_masked_lm_saves_the_bias_that_counts(saved, tmp_path):
    regard.load(saved("bert-mlm-untied")).save(tmp_path / "copy")
    original = tiny.make("bert-mlm-untied")
    copy = type(original).from_pretrained(tmp_path / "copy").eval()
    ids = inputs(59)[0]
    torch.testing.assert_close(copy(ids).logits, original(ids).logits, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_shards(name, saved, tmp_path):
    tiny.make(name).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ids = inputs(60, rows=1)[0]
    assert torch.equal(regard.load(tmp_path)(ids), regard.load(saved(name))(ids))
