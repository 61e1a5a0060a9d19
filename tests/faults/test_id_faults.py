"""Ids without a row in the embedding, whichever way they come, are refused in words; nothing is read beyond a table."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import processors

import regard
import tiny_tokenizers
from regard.engine.native_engine import NativeDecoder
from regard.engine.slots import NativeSlots, SlotInput
from regard.errors import GenerationError, RegardError, TaskError, TokenizerError, TooLong, UnknownId
from regard.text import gguf_vocab
from regard.text.tokenizer import Tokenizer

BEYOND = 10**7


def template(id: int) -> Any:
    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A $B", special_tokens=[("[CLS]", 2), ("[SEP]", id)]
    )


FRAMES: dict[str, Callable[[int], Any]] = {
    "template": template,
    "bert": lambda id: processors.BertProcessing(("[SEP]", id), ("[CLS]", 2)),
    "roberta": lambda id: processors.RobertaProcessing(("[SEP]", id), ("[CLS]", 2)),
    "sequence": lambda id: processors.Sequence([processors.ByteLevel(), template(id)]),
}


# ── when a model is opened ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("id", [300, BEYOND, 2**31, 2**32 - 1])
@pytest.mark.parametrize("kind", FRAMES)
def test_ids_of_a_post_processor(tiny_model: Any, tmp_path: Path, kind: str, id: int) -> None:
    folder = shutil.copytree(tiny_model("encoder"), tmp_path / "model")
    file = folder / "tokenizer.json"
    said = json.loads(file.read_text())
    said["post_processor"] = json.loads(FRAMES[kind](id).__getstate__())
    file.write_text(json.dumps(said))
    sentence = rf"tokenizer\.json puts the id {id} around texts, but none of its tokens has that id"
    with pytest.raises(TokenizerError, match=sentence):
        regard.load(folder)


def test_ids_of_a_training_runs_post_processor(tiny_model: Any, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(tiny_model("decoder"), tmp_path / "run" / "checkpoint-1")
    (tmp_path / "run" / "latest").symlink_to("checkpoint-1")
    file = checkpoint / "tokenizer.json"
    said = json.loads(file.read_text())
    said["post_processor"] = json.loads(template(BEYOND).__getstate__())
    file.write_text(json.dumps(said))
    with pytest.raises(TokenizerError, match=r"puts the id 10000000 around texts"):
        regard.load(tmp_path / "run")


def test_ids_of_a_gguf_file(tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokenizer, too, is compared with its embedding, with what it puts around texts."""
    file = regard.load(tiny_model("decoder")).save(tmp_path / "model.gguf", "gguf")
    expected = regard.load(tiny_model("decoder")).generate("the cat", max_new_tokens=3)
    assert regard.load(file).generate("the cat", max_new_tokens=3) == expected
    raw = tiny_tokenizers.byte_level()
    raw.post_processor = template(BEYOND)
    monkeypatch.setattr(gguf_vocab, "tokenizer_from_gguf", lambda metadata, where: Tokenizer(raw, where=where))
    with pytest.raises(TokenizerError, match=r"model\.gguf puts the id 10000000 around texts"):
        regard.load(file)


# ── where ids enter a network ───────────────────────────────────────────────────────────────────────────────────────

WORK: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "decoder": [
        ("generate", lambda m: m.generate("the cat", max_new_tokens=2)),
        ("several", lambda m: m.generate(["the cat", "a"], max_new_tokens=2)),
        ("beams", lambda m: m.generate("the cat", max_new_tokens=2, num_beams=2)),
        ("stream", lambda m: list(m.stream("the cat", max_new_tokens=2))),
        ("embed", lambda m: m.embed("the cat")),
        ("score", lambda m: m.score("the cat")),
        ("trace", lambda m: m.trace("the cat")),
        ("rows", lambda m: m.rows(m.tokenizer.encode("the cat"))),
    ],
    "encoder": [("embed", lambda m: m.embed(["the cat", "a dog"]))],
    "classifier": [("classify", lambda m: m.classify(["the cat", "a dog"])), ("trace", lambda m: m.trace("the cat"))],
    "tagger": [("tag", lambda m: m.tag(["the cat", "a dog"]))],
    "mlm": [("fill", lambda m: m.fill("the [MASK]"))],
    "translator": [
        ("translate", lambda m: m.translate("the cat", max_new_tokens=2)),
        ("trace", lambda m: m.trace("the cat")),
        ("trace of a target", lambda m: m.trace([5], "the cat")),
        ("score", lambda m: m.score("the cat", "a")),
        ("embed", lambda m: m.embed("the cat")),
    ],
}


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("id", [None, BEYOND, 2**31, 2**32 - 1])
@pytest.mark.parametrize("name", WORK)
def test_every_path_refuses_what_the_embedding_has_no_row_for(
    tiny_model: Any, name: str, engine: str, id: int | None
) -> None:
    """The tokenizer is spoilt after it was checked; None: the first id that there is no row for."""
    model = regard.load(tiny_model(name), engine=engine)
    id = model.spec.n_vocab if id is None else id
    for raw in (model.tokenizer.raw, model.tokenizer.plain):
        raw.post_processor = FRAMES["template"](id)
    for what, work in WORK[name]:
        with pytest.raises(RegardError, match=rf"hold {id}, .* embedding has {model.spec.n_vocab} rows"):
            print(what, work(model))


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("id", [-1, 53, BEYOND, 2**31, 2**70])
def test_both_vocabularies_of_an_encoder_decoder(saved: Any, engine: str, id: int) -> None:
    model = regard.load(saved("vaswani"), engine=engine)  # reads 61 ids, writes 53
    assert (model.spec.source_vocab, model.spec.n_vocab) == (61, 53)
    read = id != 53  # which can be read and not written
    for work in (lambda: model([id], [2]), lambda: model.generate([id], max_new_tokens=1)):
        if read:
            with pytest.raises(RegardError, match=f"hold {id}, .* embedding has 61 rows"):
                work()
        else:
            work()
    for work in (
        lambda: model([3], [id]),
        lambda: model([[3], [3, 4]], [[1], [2, id]]),
        lambda: model.trace([3], [id]),
    ):
        with pytest.raises(TaskError, match=f"hold {id}, .* embedding has 53 rows"):
            work()


def test_a_start_token_from_the_generation_settings(tiny_model: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("translator"), tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": BEYOND}))
    model = regard.load(folder)
    for work in (lambda: model.score("a", "b"), lambda: model.trace("a", "b"), lambda: model.translate("a")):
        with pytest.raises(RegardError, match="10000000"):
            work()


@pytest.mark.parametrize("wrong", [1.5, "1", True, None])
def test_ids_that_are_no_whole_numbers(saved: Any, wrong: Any) -> None:
    model = regard.load(saved("gpt2"))
    with pytest.raises(GenerationError, match=r"ids from 0 to 70, and .* is neither"):
        model.generate([1, wrong])
    if wrong is not True:
        with pytest.raises(TaskError, match="whole numbers"):
            model([1, wrong])
    ids = model.answers([1, 2], max_new_tokens=3)[0][0].ids
    array: Any = np.array([1, 2])
    assert model.answers(array, max_new_tokens=3)[0][0].ids == ids


def test_token_types(saved: Any) -> None:
    with pytest.raises(TaskError, match=r"types hold 9, .* token types has 2 rows"):
        regard.load(saved("bert"))([1, 2], types=[0, 9])


# ── the native engine by itself ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("id", [-1, 71, BEYOND, 2**31, 2**70])
def test_the_engine_refuses_ids(saved: Any, id: int) -> None:
    engine = regard.load(saved("gpt2")).engine
    assert engine is not None
    lanes = NativeSlots(engine, 1, 32)
    for work in (lambda: NativeDecoder(engine, [[1, id]], 4).prefill(), lambda: lanes.feed([SlotInput(0, [id], True)])):
        with pytest.raises(UnknownId, match=f"hold {id}, "):
            work()
    assert np.isfinite(lanes.feed([SlotInput(0, [70], True)])).all()


@pytest.mark.parametrize("name", ["gpt2", "llama", "bart", "marian"])
def test_the_engine_refuses_positions(saved: Any, name: str) -> None:
    """40 positions in a learned or sinusoidal table, whose caches hold 64; as many as its cache holds where it turns."""
    model = regard.load(saved(name))
    engine = model.engine
    assert engine is not None
    text = engine.new_cache(64)
    most = 64 if name == "llama" else 40
    sources = engine.encode_sources([[3, 4]]) if engine.cross_layout else None
    engine.forward([text], [[5] * most], text.capacity, sources)
    with pytest.raises(TooLong, match=f"{most + 1} tokens, but the limit is {most}"):
        engine.forward([text], [[5]], text.capacity, sources)
    assert text.length == most
    if sources:
        with pytest.raises(TooLong, match=r"the limit is 40"):
            engine.encode_sources([[3] * 41])


def test_c_looks_for_itself(saved: Any) -> None:
    """Whoever fills a batch without asking first gets an error instead of foreign memory."""
    model = regard.load(saved("bart"))
    engine = model.engine
    assert engine is not None
    assert engine.decoder is not None
    assert engine.encoder is not None
    text, (source,) = engine.new_cache(32), engine.encode_sources([[3, 4]])
    engine.forward([text], [[5, 6]], text.capacity, [source])
    rows, reading = engine.decoder.rows, engine.encoder.rows

    def run(array: Any, value: int, side: Any = engine.decoder) -> None:
        before = array[0]
        array[0] = value
        try:
            side.run(2, 1 if side is engine.decoder else 0)
        finally:
            array[0] = before

    for id in (-1, 61, BEYOND, 2**31 - 1):
        for array, side in ((rows.ids, engine.decoder), (reading.ids, engine.encoder)):
            with pytest.raises(GenerationError, match="no row in the model's embedding"):
                run(array, id, side)
    for position in (-1, 32, 40, BEYOND, 2**31 - 1):
        for array, side in ((rows.positions, engine.decoder), (reading.positions, engine.encoder)):
            with pytest.raises(GenerationError, match="position is beyond"):
                run(array, position, side)
    for array, side in ((rows.lengths, engine.decoder), (reading.visible, engine.encoder)):
        with pytest.raises(GenerationError, match="position is beyond"):
            run(array, 33, side)
    with pytest.raises(GenerationError, match="does not fit"):
        run(rows.wanted, 2)


def test_a_network_refuses_by_itself(saved: Any) -> None:
    net = regard.load(saved("gpt2")).net
    for id in (-1, 71):
        with pytest.raises(UnknownId, match=f"hold {id}, but .* 71 rows"):
            net(torch.tensor([[1, id]]))
    with pytest.raises(TooLong, match="41 tokens, but the model has 40 positions"):
        net(torch.ones(1, 41, dtype=torch.long))
    with pytest.raises(TooLong, match="41 tokens, but the model has 40 positions"):
        regard.load(saved("bart")).net(torch.ones(1, 41, dtype=torch.long), torch.ones(1, 1, dtype=torch.long))
