"""The cost of quantization, against the definitions written out."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.engine.quality.calibration_text import PASSAGE
from regard.engine.quality.quantization_cost import EVERY, QuantizationCost, rows_of
from regard.errors import ConfigError, TaskError
from regard.store.gguf import read_gguf

TEXT = "The cat sees the dog. The dog sleeps.\n\nThe old man reads a small book.\n"


def surprise(logits: np.ndarray, ids: list[int]) -> list[float]:
    rows = torch.from_numpy(logits).double().log_softmax(-1)
    return [-float(row[id]) for row, id in zip(rows, ids, strict=True)]


def test_a_decoder() -> None:
    model, rounded = (regard.load("toy-gpt", engine="torch", **more) for more in ({}, {"quantize": "q4"}))
    cost: Any = model.rounding_cost("q4", TEXT, "letters")
    ids = model.tokenizer.encode(TEXT)
    before, after = model(ids)[0, :-1], rounded(ids)[0, :-1]
    assert cost.perplexity_before == pytest.approx(model.score(TEXT).perplexity, rel=1e-5)
    assert cost.perplexity == pytest.approx(rounded.score(TEXT).perplexity, rel=1e-5)
    assert cost.largest_difference == pytest.approx(float(np.abs(before - after).max()), rel=1e-4)
    assert (cost.format, cost.text, cost.tokens, cost.least_cosine) == ("Q4_0", "letters", len(ids), None)
    eight: Any = model.rounding_cost("q8_0", TEXT)
    assert 0 < eight.largest_difference < cost.largest_difference / 5
    assert abs(math.log(eight.perplexity / eight.perplexity_before)) < 0.02
    nothing = model.rounding_cost("f32", TEXT)
    assert nothing.largest_difference == 0
    assert nothing.perplexity == nothing.perplexity_before


def test_a_masked_language_model() -> None:
    model, rounded = (regard.load("toy-bert", **more) for more in ({}, {"quantize": "q4"}))
    cost = model.rounding_cost("q4", TEXT)
    surprises = dict[Any, list[float]]({model: [], rounded: []})
    for line in TEXT.split("\n\n"):
        ids = model.tokenizer.encode(line.strip())
        places = range(EVERY // 2, len(ids), EVERY)
        masked: list[Any] = [model.tokenizer.mask_id if i in places else id for i, id in enumerate(ids)]
        for each, found in surprises.items():
            found += surprise(each(masked)[0, list(places)], [ids[i] for i in places])
    before, after = (math.exp(sum(found) / len(found)) for found in surprises.values())
    assert (cost.perplexity_before, cost.perplexity) == pytest.approx((before, after), rel=1e-4)


def test_an_encoder_decoder_on_what_it_generates() -> None:
    model, rounded = (regard.load("toy-translate", engine="torch", **more) for more in ({}, {"quantize": "q4"}))
    line = "The cat sees the dog."
    cost: Any = model.rounding_cost("q4", line)
    source = model.tokenizer.encode(line)
    written = model.answers(source, num_beams=1, temperature=0.0, max_new_tokens=64)[0][0].ids
    start: Any = model.settings.decoder_start_token_id
    found = [surprise(each(source, [start, *written[:-1]])[0], written) for each in (model, rounded)]
    before, after = (math.exp(sum(each) / len(each)) for each in found)
    assert (cost.perplexity_before, cost.perplexity) == pytest.approx((before, after), rel=1e-4)
    assert cost.perplexity > cost.perplexity_before > 1


@pytest.mark.parametrize("name", ["toy-bert-sentiment", "toy-bert-tags"])
def test_classes_and_tags(name: str) -> None:
    model, rounded = (regard.load(name, **more) for more in ({}, {"quantize": "q4"}))
    cost = model.rounding_cost("q4", TEXT)
    rows = rows_of(TEXT, model.tokenizer, model.spec)
    assert cost.largest_difference == pytest.approx(
        max(float(np.abs(model(r) - rounded(r)).max()) for r in rows), rel=1e-4
    )
    assert cost.perplexity is None


def test_an_encoder_without_a_head(saved_encoder: Path) -> None:
    model, rounded = (regard.load(saved_encoder, engine="torch", **more) for more in ({}, {"quantize": "q4"}))
    cost: Any = model.rounding_cost("q4", "the cat\nthe quick brown fox\n")
    pairs = zip(*(each.embed(["the cat", "the quick brown fox"]) for each in (model, rounded)), strict=True)
    assert cost.least_cosine == pytest.approx(min(float(a @ b) for a, b in pairs), abs=1e-5)
    assert cost.least_cosine < 1 - 1e-5
    assert "cosine" in str(cost)


@pytest.fixture
def saved_encoder(tmp_path: Path) -> Path:
    import transformers as hf

    import tiny
    import tiny_tokenizers
    from regard.text.tokenizer import Tokenizer

    sizes = {**tiny.BERT, "vocab_size": 231, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    tiny.randomised(lambda: hf.BertModel(hf.BertConfig(**sizes))).save_pretrained(tmp_path)
    roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    Tokenizer(tiny_tokenizers.wordpiece(), specials=roles).save(tmp_path)
    return tmp_path


def test_the_cost_is_saved_in_the_file(tmp_path: Path) -> None:
    model = regard.load("toy-bert-tags")
    cost = model.rounding_cost("q4", TEXT, "letters")
    path = model.save(tmp_path / "q", format="blocks", quantize="q4", cost=cost)
    kept = QuantizationCost.read(read_gguf(path / "model.gguf").metadata)
    assert kept is not None
    assert replace(kept, largest_difference=None) == replace(cost, largest_difference=None)
    assert kept.largest_difference == pytest.approx(cost.largest_difference, rel=1e-6)  # float32
    assert str(kept) == str(cost)


def test_malformed_metadata_is_ignored() -> None:
    good = QuantizationCost("Q4_0", "x", 3, 1.5, 2.5, 0.5).metadata()
    assert QuantizationCost.read(good) == QuantizationCost("Q4_0", "x", 3, 1.5, 2.5, 0.5)
    assert QuantizationCost.read({}) is None
    for change in ({"regard.cost.tokens": "many"}, {"regard.cost.joy": 1.0}, {"regard.cost.perplexity": "low"}):
        assert QuantizationCost.read({**good, **change}) is None
    assert QuantizationCost.read({"regard.cost.perplexity": 2.5}) is None


def test_rows() -> None:
    gpt, bert = regard.load("toy-gpt"), regard.load("toy-bert")
    rows = rows_of(PASSAGE, gpt.tokenizer, gpt.spec)
    assert {len(row) for row in rows[:-1]} == {gpt.spec.context}
    assert [id for row in rows for id in row] == gpt.tokenizer.encode(PASSAGE)
    assert len(rows_of(PASSAGE, bert.tokenizer, bert.spec)) == PASSAGE.count("\n")
    assert sum(map(len, rows_of(PASSAGE * 99, bert.tokenizer, bert.spec))) <= 8192
    with pytest.raises(TaskError, match="too short"):
        gpt.rounding_cost("q8", "")
    with pytest.raises(ConfigError, match="written as"):
        gpt.rounding_cost("q3", TEXT)
