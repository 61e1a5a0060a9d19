"""Lessons show the lectures' numbers exactly, and what they claim is measured on real parts and a real model."""

import json

import pytest
import torch

import regard
from regard.errors import NotFound, TaskError
from regard.explain.lesson import LESSONS, lesson
from regard.explain.lesson.draw import draw
from regard.explain.lesson.gradient import STACKS, flow
from regard.explain.lesson.step import matrix
from regard.nn import MultiHead, attend


@pytest.fixture(scope="module")
def worked():
    """Every lesson's steps, computed once."""
    return {name: each.steps() for name, each in LESSONS.items()}


def value(steps, formula):
    """The matrix of the only step with this formula."""
    (found,) = [step.value for step in steps if step.formula == formula]
    return found


def close(found, text, tolerance=1e-6):
    torch.testing.assert_close(found, matrix(text), rtol=0, atol=tolerance)


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


def test_without_the_division_softmax_saturates_and_its_gradient_goes(worked):
    steps = worked["scaling"]
    variance, softmax, gradient = value(steps, "variance of the scores"), steps[2].value, value(steps, "gradient norms")
    d_k = torch.tensor([1, 4, 16, 64, 256, 1024], dtype=torch.float64)
    assert ((variance[:, 0] / d_k - 1).abs() < 0.05).all()
    assert ((variance[:, 1] - 1).abs() < 0.05).all()
    entropy, divided, largest, _ = softmax.T
    assert (entropy.diff() < 0).all()
    assert entropy[-1] < 0.2
    assert largest[-1] > 0.95
    assert ((divided > 3.3) & (divided < 3.6)).all()
    to_scores, to_scores_divided, to_queries, to_queries_divided = gradient.T
    assert to_scores[-1] < 1e-4
    assert (to_scores_divided > 0.6).all()
    assert (to_queries.diff() > 0).all()
    assert to_queries[-1] > 20 * to_queries_divided[-1]


def test_the_gradient_that_is_measured_is_the_jacobian_of_softmax():
    """For one query: ∂L/∂S = (diag a - a aᵀ) V g, which the lesson gets from a backward pass."""
    a = matrix("2 0 2").softmax(-1)[0]
    V, g = matrix("1 2; 3 4; 5 7"), matrix("1 -1")[0]
    S = matrix("2 0 2").requires_grad_()
    (S.softmax(-1) @ V @ g).sum().backward()
    torch.testing.assert_close(S.grad[0], (torch.diag(a) - torch.outer(a, a)) @ V @ g)


def test_masks_hide_exactly(worked):
    steps = worked["masks"]
    causal, padded = [step for step in steps if step.formula == "A = softmax(S + mask)"]
    close(causal.value, "1 0 0; .268941 .731059 0; .211942 .211942 .576117")
    assert causal.value.triu(1).eq(0).all()
    assert padded.value[:, 2].eq(0).all()
    assert padded.columns == ("The", "cat", "(pad)")
    assert steps[1].value.isneginf().sum() == 3
    leak = value(steps, "softmax(S with 0 there)")
    close(leak[:1], ".576117 .211942 .211942")
    change = value(steps, "Z' - Z")
    assert change[:2].eq(0).all()
    assert change[2].abs().min() > 1
    assert value(steps, "Z padded - Z alone").eq(0).all()


def test_two_heads_are_two_attentions_side_by_side_times_w_o(worked):
    steps = worked["multi-head"]
    E = value(steps, "X")
    one = attend(E[:, :2], E[:, :2], E[:, :2])
    two = attend(E[:, [3, 2]], E[:, 2:], E[:, 2:])
    torch.testing.assert_close(value(steps, "Z = [Z₁ Z₂]"), torch.cat([one, two], 1))
    torch.testing.assert_close(value(steps, "M = [Z₁ Z₂] W_o"), torch.cat([one + two, one - two], 1))
    close(value(steps, "A₁ = softmax(Q₁K₁ᵀ/√2)")[:1], ".401112 .197776 .401112")
    close(value(steps, "A₂ = softmax(Q₂K₂ᵀ/√2)")[:1], ".197776 .401112 .401112")


def test_translation_crosses_over(worked):
    crossing, longer = [step for step in worked["translation"] if step.formula == "A"]
    assert crossing.rows == ("la", "zone", "économique", "européenne")
    assert crossing.columns == ("the", "European", "Economic", "Area", "</s>")
    assert crossing.value[1:].argmax(1).tolist() == [3, 2, 1]
    assert (crossing.value[1:].max(1).values > 0.85).all()
    assert longer.value.shape == (7, 6)
    for step in (crossing, longer):
        torch.testing.assert_close(step.value.sum(1), torch.ones(len(step.value)))
    words = worked["translation"][0]
    assert words.value.tolist() == [[4, 4], [5, 7]]


def test_translation_shows_what_a_trace_shows(worked):
    """The crossing, from the public API: the state that begins each word, pieces summed to words, mean of the heads."""
    trace = regard.load("toy-translate").trace("the European Economic Area")
    A = trace["decoder.1.cross.weights"].mean(0)
    crossing = next(step.value for step in worked["translation"] if step.formula == "A")
    assert A[7, 1] == pytest.approx(float(crossing[3, 1]), abs=1e-5)  # européenne, begun at "ique", looks at European
    assert A[1, 6:9].sum() == pytest.approx(
        float(crossing[1, 3]), abs=1e-5
    )  # zone, begun at "la", at the three of Area


def test_positions_are_what_tells_the_order(worked):
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
    from regard.explain.lesson.gradient import stack

    first = {name: stack(*parts)[0].get_submodule("attention") for name, parts in STACKS.items()}
    assert all(isinstance(each, MultiHead) for each in first.values())
    assert all(torch.equal(each.W_q.weight, first["both"].W_q.weight) for each in first.values())


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
        "stage": "attention",
        "site": "decoder.1.cross",
        "head": 0,
    }


def test_what_a_step_points_to_on_the_page_is_there(worked):
    """Every state names a bundled model, a stage, a site and head that it has, and edits that it takes."""
    models, pointed = {}, set()
    for name, steps in worked.items():
        for state in (step.state for step in steps if step.state is not None):
            pointed.add(name)
            model = models.setdefault(state["model"], regard.load(state["model"]))
            trace = model.trace(state["text"]).edit(state.get("edits", {}))
            assert state["stage"] in ("tokens", "attention", "heads", "mlp", "residual", "output")
            if "site" in state:
                assert state.get("head", 0) < len(trace[f"{state['site']}.weights"])
    assert pointed == set(LESSONS)


@pytest.mark.parametrize("name", LESSONS)
def test_as_json(name):
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


def test_what_cannot_be_drawn(tmp_path):
    with pytest.raises(TaskError, match="nothing to plot"):
        draw(lesson("pizza"), tmp_path / "pizza.svg")
    with pytest.raises(TaskError, match=r"\.svg, \.png, \.pdf"):
        draw(lesson("gradient-flow"), tmp_path / "flow.txt")
    with pytest.raises(NotFound, match="'astrology'"):
        lesson("astrology")
