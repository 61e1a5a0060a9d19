"""The weight maps: each name in a file has exactly one rule, and saving inverts loading."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from regard.errors import CheckpointError
from regard.model.build import build
from regard.model.registry import FAMILIES, family_of, spec_of
from regard.model.spec import Spec
from regard.model.weight_map import (
    ROW,
    SAME,
    STACK,
    TRANSPOSE,
    TRANSPOSE_STACK,
    Form,
    Rule,
    Table,
    _pattern,
    both,
    pair_up,
    plan_loading,
    saved_names,
)
from regard.store.safetensors import open_checkpoint

Config = dict[str, Any]


def rules_for(table: Table, name: str) -> list[Rule]:
    """All that match, not only the first: the name as it stands, or with the prefix that files may leave out."""
    return [
        rule
        for candidate in {name, table.prefix + name}
        for rule in table.rules
        if _pattern(rule.theirs).fullmatch(candidate)
    ]


def table_of(config: Config, names: tuple[str, ...] = ()) -> tuple[Spec, Table]:
    spec = spec_of(config, names=names)
    return spec, family_of(config["model_type"]).table(config, spec)


def meta(spec: Spec) -> dict[str, torch.Size]:
    with torch.device("meta"):
        return {name: p.shape for name, p in build(spec).named_parameters(remove_duplicate=False)}


@pytest.mark.parametrize("name", tiny.MODELS)
def test_every_name_has_exactly_one_rule(saved: Callable[[str], Path], name: str) -> None:
    file = open_checkpoint(saved(name))
    _, table = table_of(json.loads((saved(name) / "config.json").read_text()), file.names)
    for theirs in file.names:
        assert len(rules_for(table, theirs)) == 1, theirs
        assert not table.ignores(theirs)


@pytest.mark.parametrize("name", tiny.MODELS)
def test_a_file_is_written_under_the_names_it_was_read_by(saved: Callable[[str], Path], name: str) -> None:
    """Read backwards, the table gives the file's own names; read forwards again, the same parameters."""
    file = open_checkpoint(saved(name))
    spec, table = table_of(json.loads((saved(name) / "config.json").read_text()), file.names)
    parameters = meta(spec)
    plan = plan_loading(table, "file", file.names, file.shape, parameters, spec.tied)
    read = {move.theirs: move.ours for move in plan.moves}
    written = {theirs: ours for theirs, ours, _ in saved_names(table, parameters, spec.tied)}
    buffers = {"final_logits_bias": ("unembed.bias",)}  # transformers writes it where it is not all zero
    assert written | buffers == read | buffers
    assert sorted(plan.passed_over) == sorted(set(file.names) - set(read))


SMALL: Config = {
    "vocab_size": 5,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
    "architectures": None,
}


@pytest.mark.parametrize("model_type", FAMILIES)
def test_no_two_rules_share_a_name(model_type: str) -> None:
    """Also among the names that no tiny model has, in Hugging Face's table and in GGUF's."""
    spec, table = table_of({"model_type": model_type, **SMALL})
    gguf = family_of(model_type).gguf
    for each in (table, *([gguf.table({"model_type": model_type}, spec)] if gguf else [])):
        for rule in each.rules:
            for part in ("weight", "bias"):
                name = rule.theirs.replace("{i}", "0").replace("{p}", part)
                assert [r.theirs for r in rules_for(each, name)] == [rule.theirs], name
        names = [name for name, _, _ in saved_names(each, meta(spec), spec.tied)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("prefixed", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "bert", "bart", "llama"])
def test_the_prefix_may_be_there_or_not(saved: Callable[[str], Path], name: str, prefixed: bool) -> None:
    file = open_checkpoint(saved(name))
    spec, table = table_of(json.loads((saved(name) / "config.json").read_text()), file.names)
    assert table.prefix

    def respelt(theirs: str) -> str:
        bare = theirs.removeprefix(table.prefix)
        outside = any(_pattern(rule.theirs).fullmatch(bare) for rule in table.rules)  # lm_head never has it
        return table.prefix + bare if prefixed and not outside else bare

    shapes = {respelt(theirs): file.shape(theirs) for theirs in file.names}
    plan = plan_loading(table, "file", shapes, shapes.__getitem__, meta(spec), spec.tied)
    original = plan_loading(table, "file", file.names, file.shape, meta(spec), spec.tied)
    assert [move.ours for move in plan.moves] == [move.ours for move in original.moves]
    assert {move.theirs for move in plan.moves} == {respelt(move.theirs) for move in original.moves}


# ── forms ────────────────────────────────────────────────────────────────────────────────────────────────────────────

sizes = st.integers(1, 5)


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(sizes, min_size=3, max_size=3), columns=sizes)
@pytest.mark.parametrize(
    "form", [SAME, TRANSPOSE, STACK, TRANSPOSE_STACK], ids=["same", "flip", "stack", "flip and stack"]
)
def test_a_form_is_inverted_by_loading(form: Form, rows: list[int], columns: int) -> None:
    ours = [torch.randn(n, columns) for n in (rows if form in (STACK, TRANSPOSE_STACK) else rows[:1])]
    theirs = form.save(ours)
    back = form.load(theirs, [each.shape for each in ours])
    assert all(torch.equal(a, b) for a, b in zip(ours, back, strict=True))
    stacked = (sum(len(each) for each in ours), columns)
    assert theirs.shape == (stacked[::-1] if form in (TRANSPOSE, TRANSPOSE_STACK) else stacked)


def test_a_row_form() -> None:
    ours = torch.randn(4)
    assert torch.equal(ROW.save([ours]), ours[None])
    assert torch.equal(ROW.load(ours[None], [ours.shape])[0], ours)


@settings(max_examples=25, deadline=None)
@given(heads=sizes, pairs=sizes, columns=st.none() | sizes)
def test_rotary_pairs_are_adjacent_in_gguf(heads: int, pairs: int, columns: int | None) -> None:
    """Row (head, half, i) here is row (head, i, half) there."""
    ours = torch.randn(heads * 2 * pairs, *([columns] if columns else []))
    form = pair_up(heads)
    theirs = form.save([ours])
    assert torch.equal(form.load(theirs, [ours.shape])[0], ours)
    for head in range(heads):
        for half in range(2):
            for i in range(pairs):
                here, there = (head * 2 + half) * pairs + i, (head * pairs + i) * 2 + half
                assert torch.equal(theirs[there], ours[here])


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────────────

TABLE = Table(
    rules=(
        Rule("top.embed", "embed"),
        both("top.layers.{i}.up", "blocks.{i}.up"),
        Rule("head", "head", extra=True),
        Rule("bias", "bias", ROW, extra=True),
    ),
    prefix="top.",
    ignore=(r"layers\.\d+\.mask",),
    renamed=(("old_up", "up"),),
    zero=("bias",),
    unsaved=("note",),
)
PARAMETERS = {
    "embed": torch.Size([4, 3]),
    "blocks.0.up.weight": torch.Size([5, 3]),
    "blocks.0.up.bias": torch.Size([5]),
    "head": torch.Size([4, 3]),
}
SHAPES = {"top.embed": (4, 3), "layers.0.old_up.weight": (5, 3), "top.layers.0.up.bias": (5,), "head": (4, 3)}


def plan(shapes: dict[str, tuple[int, ...]], tied: tuple[tuple[str, ...], ...] = ()) -> dict[str, tuple[str, ...]]:
    made = plan_loading(TABLE, "file", shapes, shapes.__getitem__, PARAMETERS, tied)
    return {move.theirs: move.ours for move in made.moves}


def test_names_with_and_without_prefix_and_renamed() -> None:
    assert plan(SHAPES) == {
        "top.embed": ("embed",),
        "layers.0.old_up.weight": ("blocks.0.up.weight",),
        "top.layers.0.up.bias": ("blocks.0.up.bias",),
        "head": ("head",),
    }


def test_extra_tensors_are_ignored() -> None:
    shapes = {**SHAPES, "layers.7.mask": (9, 9), "bias": (1, 4)}
    made = plan_loading(TABLE, "file", shapes, shapes.__getitem__, PARAMETERS, (("embed", "head"),))
    assert sorted(made.passed_over) == ["bias", "head", "layers.7.mask"]
    assert made.twins == [("top.embed", "head")]


def test_one_of_a_tied_pair_is_enough() -> None:
    for missing in ("top.embed", "head"):
        shapes = {name: shape for name, shape in SHAPES.items() if name != missing}
        assert missing not in plan(shapes, tied=(("embed", "head"),))
        with pytest.raises(CheckpointError, match=f"lacks the weights for {missing.removeprefix('top.')}"):
            plan(shapes)


def test_a_parameter_without_a_rule_cannot_be_saved() -> None:
    saved = {name: ours for name, ours, _ in saved_names(TABLE, [*PARAMETERS, "note"])}
    assert saved == {
        "top.embed": ("embed",),
        "top.layers.0.up.weight": ("blocks.0.up.weight",),
        "top.layers.0.up.bias": ("blocks.0.up.bias",),
        "head": ("head",),
    }
    with pytest.raises(CheckpointError, match="no name for elsewhere"):
        list(saved_names(TABLE, ["elsewhere"]))
