"""Lessons show the lectures' numbers exactly, and what they claim is measured on real parts and a real model."""

import json
from typing import Any

import numpy as np
import pytest
import torch

import regard
from arrays import close as assert_close
from regard.errors import NotFound, TaskError
from regard.explain.logits import softmax
from regard.nn import MultiHead, attend
from regard.store.hub import INSTALLABLE, installed
from regard.teach.lesson import LESSONS, lesson
from regard.teach.lesson.draw import draw
from regard.teach.lesson.gradient import STACKS, flow
from regard.teach.lesson.step import matrix


@pytest.fixture(scope="module")
def worked():
    """Every lesson's steps, computed once."""
    return {name: each.steps() for name, each in LESSONS.items()}


def value(steps, formula):
    """The matrix of the only step with this formula."""
    (found,) = [step.value for step in steps if step.formula == formula]
    return found


def close(found, text, tolerance=1e-6):
    assert_close(found, matrix(text), rtol=0, atol=tolerance)


# ── the lectures' numbers ───────────────────────────────────────────────────────────────────────────────────────────


def test_three_inputs(worked):
    steps = worked["three-inputs"]
    close(value(steps, "X"), "1 0 1 0; 0 2 0 2; 1 1 1 1", 0)
    close(value(steps, "Q = X W_q"), "1 0 2; 2 2 2; 2 1 3", 0)
    close(value(steps, "K = X W_k"), "0 1 1; 4 4 0; 2 3 1", 0)
    close(value(steps, "V = X W_v"), "1 2 3; 2 8 0; 2 6 3", 0)
    close(value(steps, "S = Q Kᵀ"), "2 4 4; 4 16 12; 4 12 10", 0)
    close(
        value(steps, "A = softmax(S)"),
        ".063379 .468311 .468311; .000006 .982008 .017986; .000295 .880537 .119168",
    )
    close(
        value(steps, "Z = A V"),
        "1.936621 6.683105 1.595068; 1.999994 7.963992 .053976; 1.999705 7.759892 .358389",
    )
    close(
        value(steps, "Z = softmax(S/√3) V"),
        "1.863874 6.319371 1.704189; 1.999110 7.814124 .273472; 1.992555 7.479636 .735877",
    )


def test_what_was_rounded_by_hand_follows_from_the_exact_values(worked):
    steps = {step.formula: step for step in worked["three-inputs"]}
    by_hand = matrix("0 .5 .5; 0 1 0; 0 .9 .1")
    assert steps["A = softmax(S)"].by_hand.endswith("0.0 0.5 0.5 / 0.0 1.0 0.0 / 0.0 0.9 0.1")
    close(steps["A = softmax(S)"].value, "0 .5 .5; 0 1 0; 0 .9 .1", 0.07)
    assert steps["Z = A V"].by_hand.endswith("2.0 7.0 1.5 / 2.0 8.0 0.0 / 2.0 7.8 0.3")
    close(by_hand @ steps["V = X W_v"].value, "2.0 7.0 1.5; 2.0 8.0 0.0; 2.0 7.8 0.3")
    for step in worked["the-cat-sat"][3:5]:
        rows = step.by_hand.removeprefix("by hand: ").split(" / ")
        close(step.value, ";".join(rows), 0.011)


def test_the_cat_sat(worked):
    steps = worked["the-cat-sat"]
    close(value(steps, "E"), "1 0 1 0; 0 1 0 1; 1 1 1 1", 0)
    close(value(steps, "Q Kᵀ"), "2 0 2; 0 2 2; 2 2 4", 0)
    close(
        value(steps, "A = softmax(S)"),
        ".422319 .155362 .422319; .155362 .422319 .422319; .211942 .211942 .576117",
    )
    close(
        value(steps, "Z = A V"),
        ".844638 .577681 .844638 .577681; .577681 .844638 .577681 .844638; .788058 .788058 .788058 .788058",
    )
    close(value(steps, "softmax"), ".880797 .119203; .731059 .268941")


def test_pizza_and_layernorm(worked):
    steps = worked["pizza"]
    close(value(steps, "X"), ".1 2.13; .11 2.13; .21 3.13; .8 .9", 0)
    close(value(steps, "W"), ".78 2.0; .9 1.7", 0)
    close(value(steps, "X W"), "1.995 3.821; 2.0028 3.841; 2.9808 5.741; 1.434 3.13", 1e-12)
    close(steps[-1].value, "1.0024", 1e-12)
    steps = worked["layernorm"]
    close(value(steps, "X"), "1 2 3; 4 5 6; 7 8 9", 0)
    close(value(steps, "M"), ".5 1 1.5; 2 2.5 3; 3.5 4 4.5", 0)
    close(value(steps, "H = X + M"), "1.5 3 4.5; 6 7.5 9; 10.5 12 13.5", 0)
    close(value(steps, "μ, σ"), "3 1.224745; 7.5 1.224745; 12 1.224745")
    close(value(steps, "(H - μ)/σ"), "-1.224745 0 1.224745; -1.224745 0 1.224745; -1.224745 0 1.224745")


# ── what is measured ────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_scaling_softmax_saturates_and_its_gradient_vanishes(worked):
    steps = worked["scaling"]
    variance, softmax, gradient = value(steps, "variance of the scores"), steps[2].value, value(steps, "gradient norms")
    d_k = np.array([1, 4, 16, 64, 256, 1024])
    assert (np.abs(variance[:, 0] / d_k - 1) < 0.05).all()
    assert (np.abs(variance[:, 1] - 1) < 0.05).all()
    entropy, divided, largest, _ = softmax.T
    assert (np.diff(entropy) < 0).all()
    assert entropy[-1] < 0.2
    assert largest[-1] > 0.95
    assert ((divided > 3.3) & (divided < 3.6)).all()
    to_scores, to_scores_divided, to_queries, to_queries_divided = gradient.T
    assert to_scores[-1] < 1e-4
    assert (to_scores_divided > 0.6).all()
    assert (np.diff(to_queries) > 0).all()
    assert to_queries[-1] > 20 * to_queries_divided[-1]


def test_the_gradient_that_is_measured_is_the_jacobian_of_softmax():
    """For one query: ∂L/∂S = (diag a - a aᵀ) V g, as a backward pass finds it."""
    a = softmax(matrix("2 0 2"))[0]
    V, g = matrix("1 2; 3 4; 5 7"), matrix("1 -1")[0]
    S = torch.from_numpy(matrix("2 0 2")).requires_grad_()
    (S.softmax(-1) @ torch.from_numpy(V @ g)).sum().backward()
    assert S.grad is not None
    assert_close(S.grad[0], (np.diag(a) - np.outer(a, a)) @ V @ g)


def test_masks_hide_exactly(worked):
    steps = worked["masks"]
    causal, padded = [step for step in steps if step.formula == "A = softmax(S + mask)"]
    close(causal.value, "1 0 0; .268941 .731059 0; .211942 .211942 .576117")
    assert not np.triu(causal.value, 1).any()
    assert not padded.value[:, 2].any()
    assert padded.columns == ("The", "cat", "(pad)")
    assert np.isneginf(steps[1].value).sum() == 3
    leak = value(steps, "softmax(S with 0 there)")
    close(leak[:1], ".576117 .211942 .211942")
    change = value(steps, "Z' - Z")
    assert not change[:2].any()
    assert np.abs(change[2]).min() > 1
    assert not value(steps, "Z padded - Z alone").any()


def test_two_heads_are_two_attentions_concatenated_times_w_o(worked):
    steps = worked["multi-head"]
    E = value(steps, "X")
    one = attend(E[:, :2], E[:, :2], E[:, :2])
    two = attend(E[:, [3, 2]], E[:, 2:], E[:, 2:])
    assert_close(value(steps, "Z = [Z₁ Z₂]"), np.concatenate([one, two], 1))
    assert_close(value(steps, "M = [Z₁ Z₂] W_o"), np.concatenate([one + two, one - two], 1))
    close(value(steps, "A₁ = softmax(Q₁K₁ᵀ/√2)")[:1], ".401112 .197776 .401112")
    close(value(steps, "A₂ = softmax(Q₂K₂ᵀ/√2)")[:1], ".197776 .401112 .401112")


def test_translation_crosses_over(worked):
    crossing, longer = [step for step in worked["translation"] if step.formula == "A"]
    assert crossing.rows == ("la", "zone", "économique", "européenne")
    assert crossing.columns == ("the", "European", "Economic", "Area", "</s>")
    assert crossing.value[1:].argmax(1).tolist() == [3, 2, 1]
    assert (crossing.value[1:].max(1) > 0.85).all()
    assert longer.value.shape == (7, 6)
    for step in (crossing, longer):
        assert_close(step.value.sum(1), np.ones(len(step.value)))
    words = worked["translation"][0]
    assert words.value.tolist() == [[4, 4], [5, 7]]


def test_translation_shows_what_a_trace_shows(worked):
    """The crossing, from the public API: the state that begins each word, pieces summed to words, mean of the heads."""
    trace = regard.load("toy-translate").trace("the European Economic Area")
    A = trace.tensor("decoder.1.cross.weights").mean(0)
    crossing = next(step.value for step in worked["translation"] if step.formula == "A")
    assert A[7, 1] == pytest.approx(float(crossing[3, 1]), abs=1e-5)  # européenne, begun at "ique", looks at European
    assert A[1, 6:9].sum() == pytest.approx(
        float(crossing[1, 3]), abs=1e-5
    )  # zone, begun at "la", at the three of Area


def test_only_positions_encode_the_order(worked):
    without, with_positions = [step for step in worked["translation"] if step.formula == "largest change"]
    assert without.value.max() < 1e-4
    assert with_positions.value.min() > 0.1
    last = worked["translation"][-1]
    assert last.value.tolist() == [[0], [1]]
    assert last.say.count("la zone économique européenne") == 3


def test_gradients_arrive_with_residuals_and_norms_only(worked):
    ratio = dict(zip(STACKS, value(worked["gradient-flow"], "ratio")[0].tolist(), strict=True))
    assert 0.3 < ratio["both"] < 10
    assert ratio["no norm"] > 1e3
    assert ratio["neither"] < 1e-3
    spread = dict(zip(STACKS, value(worked["gradient-flow"], "‖x - x̄‖/‖x‖")[-1].tolist(), strict=True))
    assert spread["both"] > 0.3
    assert spread["no residual"] < 1e-10


def test_the_four_stacks_have_the_same_weights_and_the_gradient_begins_at_one():
    flows = {name: flow(*parts) for name, parts in STACKS.items()}
    for each in flows.values():
        assert each.gradient[-1] == pytest.approx(1)
        assert len(each.activation) == len(each.weights) == 12
    from regard.teach.lesson.gradient import stack

    first: dict[str, Any] = {name: stack(*parts)[0].get_submodule("attention") for name, parts in STACKS.items()}
    assert all(isinstance(each, MultiHead) for each in first.values())
    assert all(torch.equal(each.W_q.weight, first["both"].W_q.weight) for each in first.values())


# ── how words become pieces, where they stand, what is kept, and which comes next ───────────────────────────────────


def test_byte_pairs_are_merged_as_a_trainer_merges_them(worked):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from regard.teach.lesson.merges import CORPUS

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    text = [word for word, count in CORPUS.items() for _ in range(count)]
    letters = len(set("".join(text)))
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=letters + 4, show_progress=False))
    assert tokenizer.encode("lowest").tokens == list(worked["bpe"][5].columns) == ["low", "est"]
    counts = [step.value[0, 0] for step in worked["bpe"][1:5]]
    assert counts == [9, 9, 7, 7]
    assert worked["bpe"][-1].value.ravel().tolist() == regard.load("toy-gpt").tokenizer.encode(
        "The old king and the old woman"
    )


def test_rotary_positions_know_the_distance_only(worked):
    dots = value(worked["rotary"], "q·k = cos((i - j) θ)")
    assert_close(dots, np.cos(np.subtract.outer(np.arange(5), np.arange(5))), rtol=0, atol=1e-6)
    assert np.abs(worked["rotary"][4].value).max() < 1e-6
    assert_close(np.linalg.norm(value(worked["rotary"], "R q"), axis=1), np.ones(5), rtol=0, atol=1e-6)


def test_grouped_queries_are_heads_that_repeat_keys_and_values(worked):
    steps = worked["grouped-queries"]
    Q = [value(steps, "Q₁"), value(steps, "Q₂")]
    K = value(steps, "K, for both heads")
    Z = np.concatenate([attend(q, K, K) for q in Q], 1)
    assert_close(value(steps, "Z = [Z₁ Z₂]"), Z, rtol=0, atol=1e-12)
    assert value(steps, "numbers per token").ravel().tolist() == [34560, 11520, 3840]


@pytest.mark.skipif(installed(INSTALLABLE["smollm2"]) is None, reason="smollm2 is not installed (regard pull smollm2)")
def test_the_sizes_of_smollm2_are_its_own():
    from regard.teach.lesson import grouped

    stack = regard.load("smollm2").spec.stacks["decoder"]
    found = (stack.n_layers, stack.attention.heads, stack.attention.kv_heads, stack.attention.d_k)
    assert found == (grouped.LAYERS, grouped.HEADS, grouped.GROUPS, grouped.D_K)


def test_a_kv_cache_changes_nothing(worked):
    steps = worked["kv-cache"]
    assert (value(steps, "M (4 words) - M (3 words)") == 0).all()
    assert_close(value(steps, "M cached - M whole"), np.zeros((1, 4)), rtol=0, atol=1e-12)
    assert value(steps, "A of the new word").sum() == pytest.approx(1)
    assert value(steps, "rows computed").tolist()[-1] == [524800, 1024]


def test_sampling_draws_what_generation_draws(worked):
    from regard.teach.lesson import sampling

    model, steps = regard.load("toy-gpt"), worked["sampling"]
    logits = torch.from_numpy(model(model.tokenizer.encode(sampling.TEXT))[0, -1]).double()
    for column, temperature in enumerate((0.5, 1.0, 2.0)):
        expected = (logits / temperature).softmax(-1).sort(descending=True).values[: sampling.SHOWN]
        assert_close(value(steps, "softmax(logits/T)")[:, column], expected.numpy(), rtol=0, atol=1e-6)
    said = model.generate(sampling.TEXT, max_new_tokens=1, temperature=1.0, top_k=0, top_p=1.0, seed=sampling.SEED)
    assert f"falls on “{said.strip()}”" in steps[-1].say
    kept = value(steps, "after the cut")
    assert (kept[:, 1] > 0).sum() == sampling.K
    assert kept[:, 1].sum() == pytest.approx(1)


def test_the_residual_stream_adds_up_and_its_sums_can_be_switched_off(worked):
    from regard.teach.lesson import stream

    trace, steps = regard.load("toy-gpt").trace(stream.TEXT), worked["residual-stream"]
    lengths = [
        np.linalg.norm(trace[f"decoder.{i}.{part}"][-1]) for i in range(4) for part in ("attention.M", "mlp.out")
    ]
    assert_close(value(steps, "‖·‖")[:, 1:3].ravel(), np.array(lengths), rtol=1e-4, atol=1e-5)
    assert value(steps, "max |out - x - attention - MLP|").max() < 1e-5
    best = int(trace["probabilities"][-1].argmax())
    without = [trace.edit({f"decoder.{i}.residual_1": "off"})["probabilities"][-1, best] for i in range(4)]
    assert_close(value(steps, "P(woman)").ravel(), np.array(without), rtol=1e-3, atol=1e-7)


# ── how they are used ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_caller_says_how_a_model_is_loaded():
    asked = []

    def load(name):
        asked.append(name)
        return regard.load(name)

    steps = lesson("translation").steps(load)
    assert asked == ["toy-translate"]
    assert steps[1].state == {
        "model": "toy-translate",
        "text": "the European Economic Area",
        "depth": 2,
        "site": "decoder.1.cross",
        "head": 0,
    }


def test_the_page_state_of_a_step_exists(worked):
    """Every state names a model, a depth of the scene, a site, a head and a step that it has, and edits that it takes."""
    models, pointed = dict[str, regard.Model](), set[str]()
    for name, steps in worked.items():
        for state in (step.state for step in steps if step.state is not None):
            pointed.add(name)
            if state["model"] in INSTALLABLE and installed(INSTALLABLE[state["model"]]) is None:
                continue  # the page leaves out the link, too
            if state["model"] not in models:
                models[state["model"]] = regard.load(state["model"])
            model = models[state["model"]]
            trace = model.trace(state["text"]).edit(state.get("edits", {}))
            assert state["depth"] in range(3)
            assert state.get("stage", "scene") in ("scene", "output")
            if "site" in state:
                assert state.get("head", 0) < len(trace[f"{state['site']}.weights"])
            if "matrix" in state:
                assert state["matrix"] in {name for site in trace.graph.sites for name in site.steps}
    assert pointed == set(LESSONS)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_as_json(name):
    told = LESSONS[name].to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    for step in told["steps"]:
        assert step["shape"] == [len(step["value"]), len(step["value"][0])]
        assert len(step["rows"]) in (0, step["shape"][0])
        assert len(step["columns"]) in (0, step["shape"][1])
        assert step["say"].endswith((".", ":"))


def test_minus_infinity_is_null_in_json():
    told = LESSONS["masks"].to_json()["steps"][1]
    assert told["value"] == [[1.0, None, None], [0.0, 1.0, None], [1.0, 1.0, 2.0]]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_bars_are_drawn(tmp_path, ending):
    path = draw(lesson("gradient-flow"), tmp_path / "new" / f"flow.{ending}")
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<?xml" in head


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(TaskError, match="nothing to plot"):
        draw(lesson("pizza"), tmp_path / "pizza.svg")
    with pytest.raises(TaskError, match=r"\.svg, \.png, \.pdf"):
        draw(lesson("gradient-flow"), tmp_path / "flow.txt")
    with pytest.raises(NotFound, match="'astrology'"):
        lesson("astrology")
