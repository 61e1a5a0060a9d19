"""Parameter counts of described models, against published ones and against `transformers`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tiny
from regard.model.describe import Branch, describe, summary
from regard.model.known import ALIASES, CONFIGS, known_config
from regard.model.registry import spec_of
from regard.store.safetensors import open_checkpoint


def count(name: str) -> int:
    config = known_config(name)
    assert config is not None
    return describe(spec_of(config)).parameters


# As the models' own files have them. BART's counts the 50,265 biases of its logits, which its files hold as zeros.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "bart-base": 139_420_416 + 50_265,
    "bart-large": 406_291_456 + 50_265,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
}
# As their papers round them.
ROUNDED = {
    "bert-base": (110e6, 0.01),
    "bert-large": (340e6, 0.02),
    "llama-65b": (65.29e9, 0.001),
    "transformer-base": (65e6, 0.04),
    "transformer-big": (213e6, 0.02),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name: str) -> None:
    assert count(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", ROUNDED)
def test_counts_in_the_papers(name: str) -> None:
    said, tolerance = ROUNDED[name]
    assert count(name) == pytest.approx(said, rel=tolerance)


def test_every_known_name_can_be_described() -> None:
    assert set(PUBLISHED) | set(ROUNDED) >= set(CONFIGS)
    assert set(ALIASES.values()) <= set(CONFIGS)
    assert known_config("openai-community/gpt2") == known_config("gpt2")
    assert known_config("gpt-5") is None


@pytest.mark.parametrize("name", tiny.MODELS)
def test_transformers_counts_the_same(saved: Callable[[str], Path], name: str) -> None:
    config = json.loads((saved(name) / "config.json").read_text())
    spec = spec_of(config, names=open_checkpoint(saved(name)).names)
    model = tiny.make(name)
    theirs = sum(p.numel() for p in model.parameters() if p.requires_grad)  # not Marian's sinusoids
    buffers = dict(model.named_buffers())
    theirs += buffers["final_logits_bias"].numel() if "final_logits_bias" in buffers else 0  # a parameter here
    if name == "bert-mlm-untied":
        theirs -= model.cls.predictions.bias.numel()  # kept there although nothing uses it
    assert describe(spec).parameters == theirs


def walk(branch: Branch) -> Iterator[Branch]:
    yield branch
    for child in branch.children:
        yield from walk(child)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_branch_is_the_sum_of_its_children(name: str) -> None:
    for branch in walk(describe(spec_of(CONFIGS[name]))):
        if branch.children:
            assert branch.parameters == branch.times * sum(child.parameters for child in branch.children)
        assert branch.parameters % branch.times == 0


def test_the_tree_of_gpt2() -> None:
    tree = describe(spec_of(CONFIGS["gpt2"]))
    by_name = {branch.name: branch for branch in walk(tree)}
    assert by_name["tokens"].about == "50,257 × 768"
    assert by_name["positions"].parameters == 1024 * 768
    assert by_name["unembed"].parameters == 0
    assert by_name["unembed"].about.endswith("(tied to the embedding)")
    blocks = by_name["0…11"]
    assert (blocks.times, blocks.parameters) == (12, 12 * 7_087_872)
    assert by_name["W_q"].about == "768 → 768 + bias"
    assert tree.as_dict()["children"][1]["children"][0]["times"] == 12


def test_the_summary() -> None:
    facts = summary(spec_of(CONFIGS["llama-7b"]))
    assert (facts["family"], facts["kind"], facts["head"]) == ("llama", "decoder", "lm")
    assert (facts["width"], facts["vocabulary"], facts["context"]) == (4096, 32000, 2048)
    stack = facts["stacks"]["decoder"]
    assert (stack["layers"], stack["heads"], stack["d_k"], stack["d_ff"]) == (32, 32, 128, 11008)
    assert (stack["norm"], stack["activation"], stack["positions"]) == ("RMSNorm", "silu, gated", "rotary (θ = 10000)")
    json.dumps(facts)
