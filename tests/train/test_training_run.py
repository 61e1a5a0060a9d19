"""Every task, from a file to a model that gives answers, opens in transformers, and can be resumed."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from toytext import reviews, stories, translate

import regard
import tiny_tokenizers
from regard.api import train_settings, train_with
from regard.errors import ConfigError, DataError, TrainingError
from regard.model.registry import spec_of
from regard.store.open_model import open_files
from regard.text.tokenizer import Tokenizer
from regard.train import checkpoint
from regard.train.settings import FINE_TUNING_RATE, TrainSettings
from regard.train.task import task_named
from regard.train.training_run import config_for_task

TINY = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "max_steps": 6,
    "eval_steps": 3,
    "warmup_steps": 2,
    "batch_size": 8,
    "block_size": 48,
    "threads": 1,
}


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("corpora")
    files = {
        "lm": folder / "stories.txt",
        "mlm": folder / "stories.txt",
        "classify": folder / "reviews.tsv",
        "tag": folder / "reviews.conllu",
        "translate": folder / "pairs.tsv",
    }
    stories.write(files["lm"], 60, 0, "train")
    reviews.write(files["classify"], 80, 0, "train")
    reviews.write(files["tag"], 60, 0, "train")
    translate.write(files["translate"], 120, 0, "train")
    return files


def trained(task: str, data: Path, out: Path, **given) -> Path:
    settings = {**TINY, "vocab_size": 400, "data": [str(data)], "out": str(out), **given}
    return train_with(train_settings(task, None, settings))


ARCHITECTURES = {
    "lm": "AutoModelForCausalLM",
    "mlm": "AutoModelForMaskedLM",
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "translate": "AutoModelForSeq2SeqLM",
}


@pytest.mark.parametrize("task", ARCHITECTURES)
def test_a_file_becomes_a_model(task, corpora, tmp_path):
    run = trained(task, corpora[task], tmp_path / "run")
    model = regard.load(run)
    match task:
        case "lm":
            assert len(model.answers("One day", max_new_tokens=3, eos_token_id=[])[0][0].ids) == 3
        case "mlm":
            assert len(model.fill("one [MASK] day", top_k=3)) == 3
        case "classify":
            (answer,) = model.classify("The film was good.")
            assert set(answer) == {"positive", "negative", "neutral"}
            assert sum(answer.values()) == pytest.approx(1, abs=1e-5)
        case "tag":
            (words,) = model.tag("The film was good.")
            assert [w.word for w in words] == ["The", "film", "was", "good", "."]
        case "translate":
            assert len(model.translate(["the red house", "two dogs"])) == 2
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "eval" in line] == [3, 6]
    assert (run / "report.svg").read_text().startswith("<?xml")
    assert 'task = "' + task in (run / "run.toml").read_text()


@pytest.mark.parametrize("task", ARCHITECTURES)
def test_transformers_opens_it(task, corpora, tmp_path):
    import transformers

    run = trained(task, corpora[task], tmp_path / "run", max_steps=2)
    path = (run / "latest").resolve()
    theirs, info = getattr(transformers, ARCHITECTURES[task]).from_pretrained(path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ours, tokenizer = regard.load(run), transformers.AutoTokenizer.from_pretrained(path)
    ids = ours.tokenizer.encode("The old king saw two red houses.")
    assert tokenizer("The old king saw two red houses.")["input_ids"] == ids
    batch = torch.tensor([ids])
    given = {"decoder_input_ids": batch} if task == "translate" else {}
    with torch.no_grad():
        expected = theirs.eval()(input_ids=batch, **given).logits
    mine = ours(ids, ids) if task == "translate" else ours(ids)
    torch.testing.assert_close(torch.from_numpy(mine).view_as(expected), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", ["vaswani", "marian", "bart", "mbart", "gru"])
def test_translation_families(family, corpora, tmp_path):
    run = trained("translate", corpora["translate"], tmp_path / "run", family=family, max_steps=2, eval_steps=2)
    model = regard.load(run)
    assert model.config["model_type"] == family
    (answer,) = model.answers("a green flower", num_beams=1, min_new_tokens=4, max_new_tokens=4)[0]
    assert len(answer.ids) == 4


def test_llama_from_scratch(corpora, tmp_path):
    run = trained("lm", corpora["lm"], tmp_path / "run", family="llama", max_steps=2)
    assert regard.load(run).family == "llama"


def test_going_on_from_a_model_takes_its_weights(corpora, tmp_path):
    first = trained("mlm", corpora["mlm"], tmp_path / "mlm", max_steps=2)
    run = trained("classify", corpora["classify"], tmp_path / "run", start=str(first), learning_rate=1e-12, max_steps=1)
    a, b = (regard.load(each).net.state_dict() for each in (first, run))
    name = "encoder.0.attention.W_q.weight"
    torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-6)
    assert regard.load(run).spec.head.kind == "classify"


CONTRADICTIONS = {"layers": 2, "width": 32, "heads": 4, "d_ff": 99, "vocab_size": 300, "family": "llama"}
CONTRADICTIONS |= {"tokenizer": "bpe", "block_size": 64}


@pytest.fixture(scope="session")
def little(corpora, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("lm", corpora["lm"], tmp_path_factory.mktemp("little") / "run", max_steps=1)


@pytest.mark.parametrize("name", CONTRADICTIONS)
@pytest.mark.parametrize("way", ["flags", "toml", "python"])
def test_what_contradicts_the_model_to_go_on_from_is_refused(name, way, little, corpora, tmp_path):
    places: dict[str, Any] = {"data": [str(corpora["lm"])], "out": str(tmp_path / "run"), "start": str(little)}
    wrong, file = {name: CONTRADICTIONS[name]}, tmp_path / "a.toml"
    file.write_text(f"{name} = {json.dumps(CONTRADICTIONS[name])}\n")
    if way == "python":
        settings = TrainSettings("lm", **{**places, "data": tuple(places["data"]), **wrong})
    else:
        settings = train_settings("lm", *((file, places) if way == "toml" else (None, places | wrong)))
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is "):
        train_with(settings)
    assert not (tmp_path / "run").exists()


def test_a_run_records_the_sizes_of_the_model_it_went_on_from(little, corpora, tmp_path):
    """And can go on when that model is gone."""
    away = shutil.copytree(little, tmp_path / "away", symlinks=True)
    asked: dict[str, Any] = {"data": [str(corpora["lm"])], "out": str(tmp_path / "run"), "start": str(away)}
    asked |= {"max_steps": 1, "heads": 2}
    run = train_with(train_settings("lm", None, asked))
    said = tomllib.loads((run / "run.toml").read_text())
    spec = regard.load(run).spec
    assert spec.decoder is not None
    assert said["layers"] == spec.decoder.n_layers == TINY["layers"]
    assert (said["width"], said["heads"], said["d_ff"]) == (TINY["width"], TINY["heads"], 4 * TINY["width"])
    assert (said["vocab_size"], said["family"], said["block_size"]) == (spec.n_vocab, "gpt2", TINY["block_size"])
    assert "tokenizer" not in said
    shutil.rmtree(away)
    python = TrainSettings(
        "lm", **{**asked, "data": tuple(asked["data"]), "max_steps": 2, "learning_rate": FINE_TUNING_RATE}
    )
    for settings in (python, train_settings("lm", None, {"out": str(run), "max_steps": 3}, resume=True)):
        train_with(settings, resume=True)
    assert checkpoint.steps(run)[0] == 3


def test_dropout_is_that_of_the_model_unless_it_is_given(little, corpora, tmp_path):
    asked = {"data": [str(corpora["lm"])], "start": str(little), "max_steps": 1}
    for name, given, expected in (("own", {}, 0.1), ("given", {"dropout": 0.25}, 0.25)):
        run = train_with(train_settings("lm", None, {**asked, **given, "out": str(tmp_path / name)}))
        config = json.loads((run / "latest" / "config.json").read_text())
        assert [config[f"{part}_pdrop"] for part in ("resid", "embd", "attn")] == [expected] * 3
        assert tomllib.loads((run / "run.toml").read_text()).get("dropout") == given.get("dropout")


def test_a_tokenizer_to_take_has_the_size_it_has(little, corpora, tmp_path):
    with pytest.raises(ConfigError, match="--vocab-size is 77, but the tokenizer of"):
        trained("lm", corpora["lm"], tmp_path / "run", tokenizer=str(little), vocab_size=77)
    n = regard.load(little).tokenizer.n_vocab
    run = trained("lm", corpora["lm"], tmp_path / "run", tokenizer=str(little), vocab_size=n, max_steps=1)
    assert regard.load(run).spec.n_vocab == n


def test_a_new_head_forgets_the_old_ones_labels(saved, tmp_path):
    """A number of labels in the file is the old head's, and would contradict the new names."""
    shutil.copytree(saved("bert-classify"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"num_labels": 3, "problem_type": "single_label_classification"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(tiny_tokenizers.wordpiece(), specials={"pad": "[PAD]"})
    task = task_named("classify")(TrainSettings("classify", start=str(tmp_path)), tokenizer, ("no", "yes"))
    assert spec_of(config_for_task(open_files(tmp_path), task)).head.labels == ("no", "yes")


def test_conversations_count_only_what_the_assistant_says(corpora, tmp_path):
    import tiny_text
    from regard.train.encoding import ChatEncoding
    from regard.train.preprocess import PackedTokenizer

    tokenizer = regard.load(tiny_text.save("chat", tmp_path)).tokenizer
    encoding = ChatEncoding(PackedTokenizer(tokenizer), 200)
    messages = [
        {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": "good day"},
        {"role": "user", "content": "bye"},
        {"role": "assistant", "content": "so long"},
    ]
    example: Any = encoding.encode({"messages": messages})
    said = tokenizer.decode([i for i, s in zip(example["ids"], example["said"], strict=True) if s])
    assert "good day" in said
    assert "so long" in said
    assert "hello" not in said
    assert "bye" not in said


def test_a_run_is_not_overwritten_and_resumes_with_its_own_settings(corpora, tmp_path):
    out = tmp_path / "run"
    trained("lm", corpora["lm"], out)
    with pytest.raises(TrainingError, match="--resume"):
        trained("lm", corpora["lm"], out)
    settings = train_settings("lm", None, {"out": str(out), "max_steps": 8}, resume=True)
    assert settings.width == TINY["width"]
    train_with(settings, resume=True)
    assert checkpoint.steps(out)[0] == 8


def test_resuming_with_other_data_or_another_model_is_refused(corpora, tmp_path):
    out = tmp_path / "run"
    trained("lm", corpora["lm"], out)
    other = tmp_path / "other.txt"
    other.write_text(corpora["lm"].read_text()[:3000])
    with pytest.raises(TrainingError, match="other data"):
        train_with(
            train_settings("lm", None, {"out": str(out), "data": [str(other)], "max_steps": 8}, resume=True),
            resume=True,
        )
    with pytest.raises(TrainingError, match="width"):
        train_with(train_settings("lm", None, {"out": str(out), "width": 32, "max_steps": 8}, resume=True), resume=True)


def test_probes_leave_frames(corpora, tmp_path):
    run = trained(
        "translate", corpora["translate"], tmp_path / "run", probes=["a green flower\tune fleur verte"], probe_steps=3
    )
    assert [p.name for p in sorted((run / "frames").glob("*.safetensors"))] == [
        "step-000003.safetensors",
        "step-000006.safetensors",
    ]
    from safetensors import safe_open

    with safe_open(run / "frames" / "step-000006.safetensors", "pt") as frame:
        A = frame.get_tensor("0.decoder.0.cross.weights").float()
    told = json.loads((run / "frames" / "probes.json").read_text())[0]
    assert A.shape[0] == 2
    assert A.shape[2] == len(told["tokens"][0])
    torch.testing.assert_close(A.sum(-1), torch.ones(A.shape[:2]), rtol=0, atol=2e-3)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    entropies = [line["entropy"] for line in lines if "entropy" in line]
    assert len(entropies) == 2
    expected = -(A * A.clamp_min(1e-12).log2()).sum(-1).mean(-1)  # of the last frame, over its rows, in bits
    assert entropies[-1]["decoder.0.cross"] == pytest.approx(expected.tolist(), abs=5e-3)


def test_settings_from_toml_and_flags(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('task = "lm"\nlearning-rate = 0.01\nlayers = 3\n')
    settings = train_settings("lm", file, {"data": ["x.txt"], "out": "o", "layers": 2})
    assert (settings.learning_rate, settings.layers) == (0.01, 2)
    file.write_text("laysers = 3\n")
    with pytest.raises(ConfigError, match="laysers"):
        train_settings("lm", file, {"data": ["x.txt"], "out": "o"})
    for bad in ({"layers": 0}, {"dropout": 1.5}, {"learning_rate": float("nan")}, {"batch_size": 7, "accumulate": 2}):
        with pytest.raises(ConfigError):
            train_settings("lm", None, {"data": ["x"], "out": "o", **bad})


def test_missing_data_is_a_sentence(tmp_path):
    with pytest.raises((DataError, regard.RegardError), match=r"nowhere\.txt"):
        trained("lm", tmp_path / "nowhere.txt", tmp_path / "run")
