"""The law of why: for every node of every family, what is recomputed from the operands is what was captured."""

import math
import random
import re
from typing import Any

import numpy as np
import pytest
import torch

import regard
import tiny
from arrays import close, equal
from regard.errors import NotFound, TaskError

SOURCE, TARGET = [7, 9, 12, 40, 33, 8], [3, 22, 6, 19]
ASKED = 4  # numbers of each node


@pytest.fixture(params=[*tiny.MODELS, *tiny.NATIVE])
def trace(request, saved):
    model = regard.load(saved(request.param))
    return model.trace(SOURCE, TARGET if hasattr(model.net, "encode") else None)


def test_recomputed_is_captured(trace):
    dice = random.Random(0)
    assert trace.nodes() == list(trace.graph.nodes), "every number that was seen can be asked"
    for name in trace.nodes():
        for _ in range(ASKED):
            why = trace.why(name, [dice.randrange(n) for n in trace.shape(name)])
            assert why.agrees, str(why)
            assert why.value == float(trace.tensor(name)[why.index])
            python = eval(why.python, {"trace": trace, "np": np, "math": math})
            assert float(python) == pytest.approx(why.recomputed, rel=1e-9, abs=1e-12)
            for term in why.terms[:3]:
                for operand in term.factors:
                    if operand.node:
                        assert operand.value == float(trace[operand.node][operand.index])


def test_the_terms_of_a_sum_are_the_sum(trace):
    for node in trace.graph:
        if node.op in ("linear", "dot", "mix", "add", "affine", "mean", "mean_square", "variance", "blend"):
            why = trace.why(node.name, [0] * len(trace.shape(node.name)))
            sizes = [abs(term.value) for term in why.terms]
            assert sizes == sorted(sizes, reverse=True)
            assert math.fsum(term.value for term in why.terms) == pytest.approx(why.recomputed, rel=1e-9, abs=1e-12)
            count, total = why.rest(2)
            assert count == max(0, len(why.terms) - 2)
            assert total == pytest.approx(math.fsum(term.value for term in why.terms[2:]), rel=1e-9, abs=1e-12)


def test_a_term_is_what_it_is_written_as(trace):
    """A product of its factors, or what its signs make of them: (x - μ) / √(σ² + ε) is no product."""
    known = {name: getattr(math, name) for name in ("erf", "tanh", "sin", "cos", "inf", "sqrt")} | {
        "max": max,
        "E": math.e,
    }
    for node in trace.graph:
        for term in trace.why(node.name, [0] * len(trace.shape(node.name))).terms[:4]:
            written = term.written([f"({factor.value!r})" for factor in term.factors])
            if node.op == "softmax":
                total = np.exp(trace[node.inputs[0]][(0,) * (len(node.axes) - 1)].astype(float)).sum()
                written = written.replace("Σ", f"{float(total)!r}")
            python = written.replace("²", "**2").replace("³", "**3").replace("√", "sqrt").replace("×", "*")
            python = python.replace("e^", "E**").replace("^", "**")
            assert float(eval(python, known)) == pytest.approx(term.value, rel=1e-6, abs=1e-12), python


def test_a_norm_divides_by_the_root_of_its_variance(saved):
    trace = regard.load(saved("gpt2")).trace(SOURCE)
    (term,) = trace.why("decoder.1.norm_1.normalised", (2, 5)).terms
    assert term.label == "(0.out[2, 5] - μ[2, 0]) / √(σ²[2, 0] + ε)"
    (first, *_) = trace.why("decoder.1.norm_1.variance", (2, 0)).terms
    assert first.label.startswith("(0.out[2, ")
    assert first.label.endswith("] - μ[2, 0])² / 24")


def test_a_wrong_number_disagrees(saved):
    """The law can fail: one captured number changed by a thousandth is noticed."""
    trace = regard.load(saved("gpt2")).trace(SOURCE)
    for name in ("decoder.1.attention.scores", "decoder.0.mlp.up", "decoder.2.norm_1.normalised", "logits"):
        index = (0, *[1] * (len(trace.shape(name)) - 1))
        trace._find(name)[index] += 1e-3
        assert not trace.why(name, index).agrees


def test_a_block_run_again_gives_the_numbers_of_the_run(trace):
    """What is not kept from the start is what was computed, to the bit."""
    at_once = type(trace)(trace.run, None, sites=["*"])
    later = type(trace)(trace.run, None)
    blocks = {name.removesuffix(".out") for name in trace.nodes() if re.fullmatch(r"(encoder|decoder)\.\d+\.out", name)}
    assert len(blocks) == sum(stack.n_layers for stack in trace.spec.stacks.values() if trace.spec.family != "gru")
    assert set(at_once._cache.inside) == blocks
    weights = {site.weights for site in trace.graph.sites}
    assert {name for held in later._cache.inside.values() for name in held} == (weights if blocks else set())
    assert (later.nbytes < at_once.nbytes) == bool(blocks)
    for name in trace.nodes():
        assert equal(later.tensor(name), at_once.tensor(name)), name
    assert later.nbytes == at_once.nbytes


def test_a_block_is_not_run_again_with_other_weights(saved):
    model = regard.load(saved("gpt2"))
    before, kept = model.trace(SOURCE), model.trace(SOURCE, sites=["*"])
    up = kept.tensor("decoder.0.mlp.up").clone()
    with torch.no_grad():
        model.net.get_parameter("decoder.0.mlp.up.bias").add_(1)
    with pytest.raises(TaskError, match=r"weights have changed since this run, so decoder\.0 .*sites="):
        before.tensor("decoder.0.mlp.up")
    assert equal(kept.tensor("decoder.0.mlp.up"), up)
    close(model.trace(SOURCE)["decoder.0.mlp.up"], up + 1)


def test_little_memory_gives_the_same_numbers(trace):
    whole = {name: trace.tensor(name) for name in trace.nodes()}
    outside = sum(x.nbytes for name, x in trace._cache.outside.items())
    blocks = [sum(x.nbytes for x in held.values()) for held in trace._cache.inside.values()]
    limit = outside + max(blocks, default=0)  # room for one block, or for some that are smaller
    assert (limit < trace.nbytes) == (len(blocks) > 1)
    small = type(trace)(trace.run, None, memory_limit=limit)
    for name in reversed(trace.nodes()):
        assert equal(small.tensor(name), whole[name]), name
        held = [small._cache.outside, *small._cache.inside.values()]
        assert sum(x.nbytes for each in held for x in each.values()) == small.nbytes <= limit


def test_a_derivation_goes_down_to_the_weights(saved):
    trace = regard.load(saved("llama-gqa-tied")).trace(SOURCE)
    why, levels = trace.why("probabilities", (5, 3)), 0
    while why.op != "weight":
        operands = [operand for term in why.terms for operand in term.factors if operand.node]
        why = trace.why(operands[-1].node, operands[-1].index)
        levels += 1
    assert levels >= 2
    assert "learned weight" in why.note
    net: Any = trace.run.net
    assert why.value == float(net.unembed.weight[why.index[1], why.index[0]])


def test_beyond_the_limit_there_is_a_sentence(saved):
    model = regard.load(saved("gpt2"))
    with pytest.raises(TaskError, match=r"6 tokens takes .* GB, and the limit is .* sites=.*memory_limit"):
        model.trace(SOURCE, memory_limit=1000)
    few = model.trace(SOURCE, sites=["*.weights"])
    assert few.nodes() == [f"decoder.{i}.attention.weights" for i in range(3)]
    with pytest.raises(NotFound, match=r"no node 'decoder\.0\.mlp\.up'"):
        few.tensor("decoder.0.mlp.up")


def test_an_index_outside_gets_a_sentence(saved):
    trace = regard.load(saved("gpt2")).trace(SOURCE)
    with pytest.raises(NotFound, match=r"has the shape \(3, 6, 6\), so \(3, 0, 0\) is not"):
        trace.why("decoder.0.attention.weights", (3, 0, 0))
    with pytest.raises(NotFound, match=r"has the shape"):
        trace.why("decoder.0.attention.weights", (0, 0))
    wrong: list[Any] = [(1.5, 2), "ab", None, (10**30, 0), torch.tensor([1.0])]
    for index in wrong:
        with pytest.raises(NotFound, match=r"has the shape \(6, 24\), so .* is not one"):
            trace.why("decoder.0.H", index)
    place: Any = (torch.tensor(5), 23)
    last, first = trace.why("decoder.0.H", (-1, -1)), trace.why("decoder.0.H", place)
    assert last.index == first.index == (5, 23)
    with pytest.raises(NotFound, match=r"no node 'decoder\.0\.attention\.weight'; did you mean"):
        trace.tensor("decoder.0.attention.weight")


def test_what_cannot_be_traced_gets_a_sentence(saved):
    gpt, bart = regard.load(saved("gpt2")), regard.load(saved("bart"))
    texts: list[Any] = [None, 5, [1.5], ["a"]]
    for wrong in texts:
        with pytest.raises(TaskError, match="a text, or token ids, which are whole numbers"):
            gpt.trace(wrong)
    for ids, said in (([10**6], "hold 1000000"), ([-1], "vocabulary ends"), ([1] * 5000, "5000 tokens long")):
        with pytest.raises(TaskError, match=said):
            gpt.trace(ids)
    with pytest.raises(TaskError, match="is not one"):
        gpt.trace(SOURCE, [1, 2])
    with pytest.raises(TaskError, match="give it, or max_new_tokens, not both"):
        bart.trace(SOURCE, [1, 2], max_new_tokens=3)
    with pytest.raises(TaskError, match="hold 1000000"):
        bart.trace(SOURCE, [10**6])
    with pytest.raises(NotFound, match="no node '3'"):
        gpt.trace(SOURCE)[3]  # type: ignore[index]


def test_an_empty_text_is_the_token_that_begins_texts():
    toy = regard.load("toy-gpt")
    empty, written = toy.trace(""), toy.trace("", max_new_tokens=2)
    assert empty.ids == written.ids[:1]
    assert [step.position for step in written.steps] == [1, 2]
    assert toy.generate("", max_new_tokens=2, temperature=0) == toy.tokenizer.decode(written.ids[1:])


def test_one_pattern_may_stand_without_a_list(saved):
    model = regard.load(saved("gpt2"))
    assert model.trace(SOURCE, sites="*.weights").nodes() == model.trace(SOURCE, sites=["*.weights"]).nodes()


def test_what_is_hidden_says_why(saved):
    trace = regard.load(saved("mistral")).trace([7, 9, 12, 40, 33, 8, 21, 15])  # a window of 5
    later, far = (trace.why("decoder.0.attention.masked", (0, *pair)) for pair in ((2, 4), (7, 1)))
    assert later.value == far.value == -math.inf
    assert later.agrees
    assert far.agrees
    assert "comes later" in later.note
    assert "it is 6 back, and the last 5 are seen" in far.note
    assert later.to_json()["value"] == "-∞"


def test_text_the_model_writes_is_traced_with_its_steps():
    model = regard.load("toy-gpt")
    trace = model.trace("One day the", max_new_tokens=5)
    prompt = len(model.tokenizer.encode("One day the"))
    assert len(trace.ids) == prompt + 5 == len(trace.tokens)
    assert [step.id for step in trace.steps] == trace.ids[prompt:]
    assert [step.cached for step in trace.steps] == [0, *range(prompt, prompt + 4)]
    for step in trace.steps:
        likely = float(trace.tensor("probabilities")[step.position - 1, step.id])
        assert step.probability == pytest.approx(likely, abs=1e-5)
        assert step.candidates[0][1] == step.id  # greedy
        assert [p for _, _, p in step.candidates] == sorted((p for _, _, p in step.candidates), reverse=True)


def test_a_translation_is_traced_as_it_is_written():
    model = regard.load("toy-translate")
    trace = model.trace("the European Economic Area")
    assert trace.target_ids is not None
    assert model.tokenizer.decode(trace.target_ids[1:]) == model.translate("the European Economic Area", num_beams=1)[0]
    assert trace.ids[:1] == model.tokenizer.encode("the European Economic Area")[:1]
    assert trace.target_ids[1:] == [step.id for step in trace.steps][: len(trace.target_ids) - 1]
    assert "la" in str(trace.why("decoder.0.cross.weights", (0, 1, 2)))


def test_a_mask_in_the_text_is_the_mask_token():
    model = regard.load("toy-bert")
    trace = model.trace("the cat sat on the [MASK] .")
    assert "[MASK]" in trace.tokens
    place = trace.tokens.index("[MASK]")
    likeliest: Any = model.fill("the cat sat on the [MASK] .")[0]
    assert int(trace.tensor("probabilities")[place].argmax()) == likeliest["id"]
