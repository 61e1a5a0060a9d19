"""What is said of a run is true of that run: what divides its scores, whom its mask hides, which tokens have tags."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.stages import predictions
from regard.errors import TaskError
from regard.explain import lens
from regard.explain.caption import captions
from regard.explain.predictions import first_pieces, tagged
from regard.explain.trace import Trace
from regard.page.trace_json import trace_json
from regard.store.hub import bundled
from regard.teach.handout import handout

TEXT, SITE = "One day the cat", "decoder.1.attention"
ONE = "; 1 of 25 numbers changed by an edit"


@pytest.fixture(scope="module")
def plain() -> Trace:
    return regard.load("toy-gpt").trace(TEXT)


def said(trace: Trace, site: str = SITE, head: int = 2) -> dict[str, str]:
    """By what a node is called within its site."""
    found = captions(trace, next(each for each in trace.graph.sites if each.site == site), head)
    return {name.removeprefix(f"{site}."): words for name, words in found.items()}


def variant(folder: Path, **change: Any) -> Trace:
    """toy-gpt with another config."""
    path = folder / "gpt"
    shutil.copytree(bundled()["toy-gpt"], path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | change))
    return regard.load(path).trace(TEXT)


def test_captions_of_an_unedited_run(plain):
    assert said(plain) == {
        "dots": "dot products",
        "scores": "divided by √32 = 5.657",
        "masked": "later tokens are hidden",
        "weights": "each row sums to 1",
        "Z": "the weighted sum of its values",
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale_attn_weights": False}, "not divided (this model takes the dot products as they are)"),
        (
            {"scale_attn_by_inverse_layer_idx": True},
            "divided by √32 and by the layer's number, 2: by 11.314",
        ),
        (
            {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
            "divided by the layer's number, 2, and not by √32",
        ),
    ],
)
def test_the_caption_of_scaling_follows_the_config(tmp_path, change, words):
    trace = variant(tmp_path, **change)
    assert said(trace)["scores"] == words
    (node,) = [node for node in trace_json(trace)["nodes"] if node["name"] == f"{SITE}.scores"]
    assert node["facts"]["said"] == words
    sheet = handout(trace, seed=3)
    assert "(q·k)/√d" not in sheet
    assert "The scores of this model are" in sheet


def test_a_worksheet_of_an_encoder_mentions_no_mask():
    trace = regard.load("toy-bert").trace("The movie was [MASK].")
    assert "every key is seen" in handout(trace)
    assert "mask hides has" not in handout(trace)


@pytest.mark.parametrize(
    ("edits", "step", "words"),
    [
        ({f"{SITE}.scaling": "off"}, "scores", "not divided (an edit switched the scaling off)"),
        ({f"{SITE}.scores[2, 3, 1]": "set 9"}, "scores", f"divided by √32 = 5.657{ONE}"),
        ({f"{SITE}.scores[0, 3, 1]": "set 9"}, "scores", "divided by √32 = 5.657"),  # another head's
        ({f"{SITE}.mask": "off"}, "masked", "nothing is hidden"),
        ({f"{SITE}.mask[4, 1]": "hide"}, "masked", "later tokens are hidden, and 1 more pair"),
        ({f"{SITE}.mask[1, 4]": "show"}, "masked", "9 of 25 pairs of query and key are hidden"),
        ({f"{SITE}.weights[2, 3, 1]": "set 0.9"}, "weights", f"1 of 5 rows do not sum to 1{ONE}"),
        ({f"{SITE}.head.2": "zero"}, "Z", "0: an edit switched this head off"),
        ({f"{SITE}.head.1": "zero"}, "Z", "the weighted sum of its values"),
        ({f"{SITE}.Z[2, 3, 0]": "set 9"}, "Z", "the weighted sum of its values; 1 of 160 numbers changed by an edit"),
    ],
)  # fmt: skip
def test_an_edit_changes_the_caption(plain, edits, step, words):
    assert said(plain.edit(edits))[step] == words


def test_windows_and_other_masks(saved):
    trace = regard.load(saved("mistral")).trace([7, 9, 12, 40, 33, 8, 21, 15])  # a window of 5
    assert said(trace, "decoder.0.attention", 0)["masked"] == "later tokens are hidden, and those 5 or more places back"
    encoder = regard.load("toy-bert").trace("The movie was [MASK].")
    assert "masked" not in said(encoder, "encoder.0.attention", 0)


# ── tags ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_first_piece_of_a_word_is_tagged():
    model, text = regard.load("toy-bert-tags"), "The old king sees a garden."
    trace = model.trace(text)
    first = [trace.tokens[i] for i in tagged(trace)]
    assert first == ["The", "old", "k", "see", "a", "g", "."]
    assert [token for token, _ in predictions(trace)] == first
    assert [best.piece for _, (best, *_) in predictions(trace)] == [each.tag for each in model.tag(text)[0]]
    whose = trace_json(trace)["deciding"]
    assert whose[0] is None
    assert whose[-1] is None
    assert whose[4] == 3  # ##ing
    assert first_pieces(model.trace(trace.ids)) == whose  # also where only ids were given
    assert trace_json(regard.load("toy-bert").trace("A [MASK]."))["deciding"] is None


def test_a_figure_of_a_tag_is_of_a_word(tmp_path):
    trace = regard.load("toy-bert-tags").trace("The old king")
    assert "of The" in trace.svg("output", tmp_path / "a.svg").read_text()
    with pytest.raises(TaskError, match="first piece of a word"):
        trace.svg("output", tmp_path / "a.svg", position=0)


def test_the_tag_that_changed_most_is_a_word_s():
    before = regard.load("toy-bert-tags").trace("The old king")
    after = before.edit({"logits[0, :]": "scale -5", "logits[2, :]": "scale 0.5"})  # [CLS] moves most
    change = after.tensor("probabilities") - before.tensor("probabilities")
    (most,) = before.compare(after).output(most=1)
    assert most.b - most.a == pytest.approx(float(change[2, most.id]), abs=1e-6)
    assert abs(most.b - most.a) == pytest.approx(float(change[2].abs().max()), abs=1e-6)


# ── lenses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_head_that_is_off_contributes_nothing(plain):
    for edits in ({f"{SITE}.head.2": "zero"}, {f"{SITE}.M": "zero"}):
        found = lens.contribution(plain.edit(edits), SITE, 2)
        assert not found.norms.any()
        assert found.disagreement is None
    assert lens.contribution(plain.edit({f"{SITE}.head.2": "zero"}), SITE, 1).norms.any()


def test_the_logit_lens_refuses_a_run_with_an_edited_head(plain):
    with pytest.raises(TaskError, match=r"final_norm\.out"):
        lens.logit_lens(plain.edit({"final_norm": "off"}))
    assert lens.logit_lens(plain.edit({"decoder.3.norm_2": "off"}))


def test_why_reports_that_a_number_was_edited(plain):
    why = plain.edit({f"{SITE}.scaling": "off"}).why(f"{SITE}.scores", (2, 3, 1))
    assert "without the edit: S[2, 3, 1] = QKᵀ" in str(why)
    hidden = plain.edit({f"{SITE}.mask[4, 1]": "hide"}).why(f"{SITE}.masked", (2, 4, 1))
    assert hidden.to_json()["value"] == "-∞"
    assert "inf" not in str(plain.why(f"{SITE}.masked", (2, 1, 3))).replace("infty", "").split("captured")[0]
