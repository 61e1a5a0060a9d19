"""Every verb as a person uses it: what stands on stdout is the answer, and it is what the library itself says."""

import io
import json
import sys

import numpy as np
import pytest
import torch

import regard as package
import tiny_text
from regard.cli.console import bold, print_styled, safe_stdout
from regard.cli.main import run


@pytest.fixture(scope="session")
def loaded(tiny_model):
    """`loaded(name)`: the tiny model through the library, to compare the command line with."""
    kept = {}

    def load(name):
        if name not in kept:
            kept[name] = package.load(tiny_model(name))
        return kept[name]

    return load


def read(ran):
    """The JSON on stdout, which is all there is."""
    assert ran.code == 0, ran.err
    assert ran.err == ""
    return json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_generate_streams_what_the_library_generates(regard, tiny_model, loaded):
    ran = regard("generate", tiny_model("decoder"), "the cat", "--max-new-tokens", 12)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == loaded("decoder").generate("the cat", max_new_tokens=12) + "\n"


@pytest.mark.parametrize("given", [[], ["-"]])
def test_generate_reads_its_prompt_from_stdin_without_the_last_line_break(regard, tiny_model, given):
    asked = regard("generate", tiny_model("decoder"), "the cat\nsat", "--max-new-tokens", 5)
    piped = regard("generate", tiny_model("decoder"), *given, "--max-new-tokens", 5, stdin="the cat\nsat\n")
    assert piped == asked


def test_generate_json_has_ids_and_the_seed_that_repeats_it(regard, tiny_model, loaded):
    sampled = ("generate", tiny_model("decoder"), "the", "--max-new-tokens", 6, "--temperature", 1, "--json", "-n", 2)
    first = read(regard(*sampled))
    assert [set(answer) for answer in first] == [{"text", "finished", "score", "seed", "ids", "logprobs"}] * 2
    assert all(1 <= len(answer["ids"]) <= 6 for answer in first)  # an end may be drawn
    assert first[0]["text"] == loaded("decoder").tokenizer.decode(first[0]["ids"])
    assert first[0]["ids"] != first[1]["ids"]
    assert read(regard(*sampled, "--seed", first[0]["seed"])) == first


def test_generate_keeps_several_answers_apart(regard, tiny_model, loaded):
    ran = regard("generate", tiny_model("decoder"), "the", "--max-new-tokens", 4, "--num-beams", 3, "-n", 2)
    best, second = loaded("decoder").answers("the", max_new_tokens=4, num_beams=3, n=2)[0]
    assert ran.out == (
        f"── 1 of 2, score {best.score:.4f} ──\n{best.text}\n\n── 2 of 2, score {second.score:.4f} ──\n{second.text}\n\n"
    )


def test_generate_says_when_several_answers_must_be_the_same(regard, tiny_model):
    ran = regard("generate", tiny_model("decoder"), "the", "--max-new-tokens", 4, "-n", 2)
    assert ran.code == 0
    assert ran.err.startswith("regard: at temperature 0 all 2 answers are the same")


def test_generate_stops_before_a_stop_text(regard, tiny_model, loaded):
    whole = loaded("chat").generate("the cat", max_new_tokens=30)
    ran = regard("generate", tiny_model("chat"), "the cat", "--max-new-tokens", 30, "--stop", whole[5:7])
    assert ran.out == whole[: whole.index(whole[5:7])] + "\n"


def test_translate_keeps_line_7_on_line_7(regard, tiny_model, loaded):
    ran = regard("translate", tiny_model("translator"), "--max-new-tokens", 6, stdin="the cat\n\nthe dog sat\n")
    cat, dog = loaded("translator").translate(["the cat", "the dog sat"], max_new_tokens=6)
    assert ran.out.split("\n") == [cat.replace("\n", " "), "", dog.replace("\n", " "), ""]
    records = read(regard("translate", tiny_model("translator"), "the cat", "--max-new-tokens", 6, "--json"))
    assert records == [{"source": "the cat", "translation": cat}]


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_classify_one_text_shows_every_label_and_several_the_best(regard, tiny_model, loaded):
    texts = ["the cat sat", "the dog"]
    first, second = loaded("classifier").classify(texts)
    one = regard("classify", tiny_model("classifier"), texts[0])
    assert [line.split() for line in one.out.splitlines()] == [[label, f"{p:.4f}"] for label, p in first.items()]
    assert set(first) == set(tiny_text.MOODS)
    both = regard("classify", tiny_model("classifier"), *texts).out.splitlines()
    best = [max(first, key=first.get), max(second, key=second.get)]
    assert [line.split()[0] for line in both] == best
    assert [line.index(text) for line, text in zip(both, texts, strict=True)] == [max(map(len, best)) + 10] * 2


def test_classify_json(regard, tiny_model, loaded):
    records = read(regard("classify", tiny_model("classifier"), "--json", stdin="the cat sat\nthe dog\n"))
    assert [record["text"] for record in records] == ["the cat sat", "the dog"]
    assert records[0]["labels"] == pytest.approx(loaded("classifier").classify("the cat sat")[0], abs=1e-6)


def test_tag_one_word_per_line_or_one_text_per_line(regard, tiny_model, loaded):
    tagged = loaded("tagger").tag("the cat sat.")[0]
    one = regard("tag", tiny_model("tagger"), "the cat sat.").out.splitlines()
    assert [line.split() for line in one] == [[w.word, w.tag, f"{w.probability:.4f}"] for w in tagged]
    several = regard("tag", tiny_model("tagger"), "the cat sat.", "a dog").out.splitlines()
    assert several[0] == " ".join(f"{w.word}/{w.tag}" for w in tagged)
    assert len(several) == 2


def test_tag_json_has_the_position_of_each_word(regard, tiny_model):
    text = "the cat's  dog."
    (record,) = read(regard("tag", tiny_model("tagger"), text, "--json"))
    assert [text[w["start"] : w["end"]] for w in record["words"]] == [w["word"] for w in record["words"]]
    assert {w["tag"] for w in record["words"]} <= set(tiny_text.TAGS)


def test_fill_keeps_the_other_masks_and_aligns(regard, tiny_model, loaded):
    ran = regard("fill", tiny_model("mlm"), "the [MASK] sat on the [MASK]", "--top-k", 3)
    lines = ran.out.splitlines()
    assert [lines[0], lines[4], lines[5]] == ["mask 1", "", "mask 2"]
    assert all("[MASK]" in line for line in (*lines[1:4], *lines[6:9]))
    assert len({line.rindex("  the") for line in lines[1:4]}) == 1  # a guess may continue the word
    one = regard("fill", tiny_model("mlm"), "the [MASK] sat", "--top-k", 2).out.splitlines()
    guesses = loaded("mlm").fill("the [MASK] sat", 2)
    assert [line.split()[:2] for line in one] == [[f"{g['probability']:.4f}", g["token"]] for g in guesses]


@pytest.mark.parametrize("masks", [1, 2])
def test_fill_json_has_one_list_per_mask(regard, tiny_model, masks):
    records = read(regard("fill", tiny_model("mlm"), "the [MASK] " * masks, "--top-k", 2, "--json"))
    assert [[set(g) for g in guesses] for guesses in records] == [[{"token", "id", "probability", "text"}] * 2] * masks


def test_embed_compares_writes_and_prints(regard, tiny_model, loaded, tmp_path):
    texts = ["the cat", "日本", "a dog"]
    X = loaded("encoder").embed(texts)
    similar = (X @ X.T).tolist()
    lines = regard("embed", tiny_model("encoder"), *texts, "--compare").out.splitlines()
    for line, row, text in zip(lines, similar, texts, strict=True):
        assert line.split(maxsplit=3) == [*(f"{x:.3f}" for x in row), text]
    records = read(regard("embed", tiny_model("encoder"), *texts, "--json"))
    np.testing.assert_allclose([r["embedding"] for r in records], X, rtol=0, atol=1e-6)
    records = read(regard("embed", tiny_model("encoder"), *texts, "--compare", "--json"))
    assert records[1]["similarity"] == pytest.approx(similar[1], abs=1e-6)
    out = tmp_path / "new" / "vectors.npy"
    ran = regard("embed", tiny_model("encoder"), "--out", out, stdin="\n".join(texts))
    assert (ran.code, ran.out, ran.err) == (0, "", f"{out} has 3 vectors of 24 numbers.\n")
    np.testing.assert_allclose(np.load(out), X, atol=1e-6)


def test_a_blank_line_is_a_text_too(regard, tiny_model):
    """A row for every line; a decoder, whose tokenizer adds nothing to a text, reads its beginning of texts."""
    for name in ("encoder", "decoder"):
        records = read(regard("embed", tiny_model(name), "--json", stdin="the cat\n\nthe dog\n"))
        assert [record["text"] for record in records] == ["the cat", "", "the dog"]
        assert None not in records[1]["embedding"]
    assert regard("tag", tiny_model("tagger"), stdin="the cat\n\na dog\n").out.splitlines()[1] == ""


def test_embed_shows_the_first_numbers(regard, tiny_model, loaded):
    line = regard("embed", tiny_model("encoder"), "the cat").out
    first = [f"{x:.4f}" for x in loaded("encoder").embed("the cat")[0, :5].tolist()]
    assert line.split()[:5] == first
    assert line.endswith("… (24 numbers)  the cat\n")


# ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inspect_has_the_known_sizes_of_gpt2(regard):
    facts = read(regard("inspect", "gpt2", "--json"))
    assert facts["parameters"] == 124_439_808
    assert (facts["width"], facts["vocabulary"], facts["context"]) == (768, 50257, 1024)
    assert facts["stacks"]["decoder"]["layers"] == 12
    text = regard("inspect", "gpt2").out
    assert text.startswith("gpt2: gpt2, decoder, 124,439,808 parameters\n")
    assert "12 × 7,087,872" in text


@pytest.mark.parametrize("name", ["gpt2-xl", "bart-large", "llama-65b", "transformer-big"])
def test_inspect_fits_in_80_columns_with_counts_flush_right(regard, name):
    lines = regard("inspect", name).out.splitlines()
    assert max(map(len, lines)) <= 80
    tree = lines[lines.index("", 2) + 1 :]
    assert len({len(line) for line in tree}) == 1


def test_inspect_counts_the_same_in_every_form(regard, tiny_model, loaded, tmp_path):
    """A directory with weights, one without, its config.json, a .gguf file, and the directory that file is in."""
    model = loaded("decoder")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_bytes((tiny_model("decoder") / "config.json").read_bytes())
    file = model.save(tmp_path / "gguf" / "model.gguf", "gguf")
    n = sum(p.numel() for p in model.net.parameters())
    for where in (tiny_model("decoder"), tmp_path / "bare", tmp_path / "bare" / "config.json", file, file.parent):
        assert read(regard("inspect", where, "--json"))["parameters"] == n, where


def test_inspect_does_not_count_a_pooler_that_is_not_there(regard, loaded, tmp_path):
    """What the weights are decides, where there are any: a BERT saved without its pooler has none."""
    file = loaded("encoder").save(tmp_path / "encoder.gguf", "gguf")
    package.load(file).save(tmp_path / "hf")
    whole = sum(p.numel() for p in loaded("encoder").net.parameters())
    assert read(regard("inspect", tmp_path / "hf", "--json"))["parameters"] == whole - (24 * 24 + 24)


def test_lessons(regard):
    assert regard("lesson").out.splitlines()[0].split(maxsplit=1) == ["three-inputs", "Self-attention on three inputs"]
    steps = read(regard("lesson", "three-inputs", "--json"))
    weights = next(step["value"] for step in steps if step["formula"] == "A = softmax(S)")
    assert weights[1] == pytest.approx([0.000006, 0.982008, 0.017986], abs=1e-6)
    text = regard("lesson", "three-inputs").out
    assert "⎣ 0.000295  0.880537  0.119168 ⎦  input 3" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\033" not in text


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_styles_only_in_a_terminal_that_wants_them(monkeypatch, variable, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert bold("loud") == "loud", "not at a terminal"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert bold("loud") == "\033[1mloud\033[0m"
    monkeypatch.setenv(variable, value)
    assert bold("loud") == "loud"


class Tty(io.StringIO):
    def isatty(self):
        return True


def test_escape_sequences_do_not_reach_the_terminal(monkeypatch):
    """An escape sequence in pieces too; and styles of our own go past, around text that does not."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    seen = Tty()
    monkeypatch.setattr("sys.stdout", seen)
    with safe_stdout():
        for piece in ("a\tb\x1b", "[31m\r", "\x9b", "\x00\x7f\u202e\u2066é\n"):
            print(piece, end="", flush=True)
        print_styled(bold("\x1b[5m!"))
    assert seen.getvalue() == "a\tb\ufffd[31m" + "\ufffd" * 6 + "é\n\033[1m\ufffd[5m!\033[0m\n"
    assert sys.stdout is seen


def test_messages_are_clean_wherever_they_go(regard, tmp_path):
    ran = regard("inspect", tmp_path / "\x1b[31mred")
    assert (ran.code, ran.out, "\x1b" in ran.err, "[31mred" in ran.err) == (2, "", False, True)
    ran = regard("inspect", "gpt2", "--\x1b[31mred")
    assert (ran.code, ran.out, "\x1b" in ran.err, "[31mred" in ran.err) == (2, "", False, True)


def test_a_pipe_without_the_characters_gets_question_marks(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr("sys.argv", ["regard", "inspect", "gpt2"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert not ended.value.code
    assert b"12 ? 7,087,872" in written.getvalue()


def test_verify_is_a_table_and_its_code_is_the_verdict(regard, tiny_model, monkeypatch):
    ran = regard("verify", tiny_model("chat"))
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "cached = uncached",
        "batch = single",
        "readable = fused",
        "native = reference",
        "PyTorch = reference",
        "regard = transformers",
    ]
    assert all(line.endswith("holds") for line in lines[1:])
    assert len({line.index("e-") for line in lines[1:]}) == 1
    monkeypatch.setattr("regard.engine.quality.verify.batch_or_single", lambda net, rows: 0.5)
    failed = regard("verify", tiny_model("chat"))
    assert failed.code == 1
    assert failed.out.splitlines()[2].split() == ["batch", "=", "single", "5.0e-01", lines[2].split()[-2], "FAILS"]


def test_verify_json_and_nan(regard, tiny_model, monkeypatch):
    monkeypatch.setattr("regard.engine.quality.verify.readable_or_fused", lambda net, rows: float("nan"))
    ran = regard("verify", tiny_model("encoder"), "--json")
    checks = {check["law"]: check for check in json.loads(ran.out)}
    assert ran.code == 1
    assert checks["readable = fused"]["passed"] is False
    assert checks["cached = uncached"] | {"tolerance": 0} == {
        "law": "cached = uncached",
        "difference": None,
        "tolerance": 0,
        "note": "this model has no KV cache",
        "passed": True,
    }


@pytest.mark.parametrize("name", ["gpt2", "bart-classify"])
def test_verify_works_without_a_tokenizer(regard, saved, name):
    ran = regard("verify", saved(name))
    assert ran.code == 0, ran.err
    assert ran.out.count("holds") == (6 if name == "gpt2" else 4)


# ── keeping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_convert_there_and_back(regard, tiny_model, loaded, tmp_path):
    file, folder = tmp_path / "model.gguf", tmp_path / "deep" / "hf"
    there = regard("convert", tiny_model("decoder"), file)
    assert (there.code, there.err) == (0, "")
    assert there.out == f"{file}: {file.stat().st_size / 1e6:,.1f} MB in 1 file.\n"
    back = regard("convert", file, folder)
    assert f"in {len(list(folder.iterdir()))} files." in back.out
    ids = [5, 9, 40, 7]
    assert np.array_equal(package.load(folder)(ids), loaded("decoder")(ids))


def test_convert_replaces_a_model_and_nothing_else(regard, tiny_model, tmp_path):
    folder = tmp_path / "model"
    for _ in range(2):
        assert regard("convert", tiny_model("decoder"), folder).code == 0
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("dear diary")
    ran = regard("convert", tiny_model("decoder"), notes)
    assert ran.code == 2
    assert "contains other files than a model" in ran.err
    assert [file.name for file in notes.iterdir()] == ["diary.txt"]
    (tmp_path / "letter.gguf").write_text("dear aunt")
    assert regard("convert", tiny_model("decoder"), tmp_path / "letter.gguf").code == 2
    assert (tmp_path / "letter.gguf").read_text() == "dear aunt"


def test_convert_quantizes(regard, tiny_model, tmp_path):
    for kind in ("f16", "f32"):
        assert regard("convert", tiny_model("decoder"), tmp_path / f"{kind}.gguf", "--quantize", kind).code == 0
    assert (tmp_path / "f16.gguf").stat().st_size < (tmp_path / "f32.gguf").stat().st_size


@pytest.mark.parametrize(("name", "told"), [("toy-gpt", "perplexity"), ("toy-bert-tags", "logits differ")])
def test_convert_prints_the_cost_of_quantization_and_inspect_reads_it(regard, tmp_path, name, told):
    text = tmp_path / "own.txt"
    text.write_text("The robot sings.\nThe small cat sees the old dog.\n")
    ran = regard("convert", name, tmp_path / "q", "--quantize", "q4", "--measure", text)
    assert (ran.code, ran.err) == (0, "")
    size, cost = ran.out.splitlines()
    assert size.endswith(" files.")
    assert cost.startswith(f"Q4_0: {told}")
    assert cost.endswith("tokens of own.txt).")
    assert read(regard("inspect", tmp_path / "q", "--json"))["rounding"] == cost.removesuffix(".")
    assert "rounding    Q4_0:" in regard("inspect", tmp_path / "q").out
    text.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in regard("convert", name, tmp_path / "p", "--quantize", "q4", "--measure", text).err
    assert not (tmp_path / "p").exists()


# ── what is here ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_models_fit_and_say_where_they_are(regard, monkeypatch):
    names = {record["name"]: record for record in read(regard("models", "--json"))}
    assert {"smollm2", "minilm"} <= set(names)
    monkeypatch.setattr("regard.store.hub.installed", lambda known: None)
    assert {r["name"]: r["path"] for r in read(regard("models", "--json"))}["smollm2"] is None
    text = regard("models").out
    assert "  not installed: regard pull smollm2\n" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "gpt2-xl, bert-base" in text.replace("\n", " ")


def test_env_names_versions(regard):
    facts = read(regard("env", "--json"))
    assert (facts["regard"], facts["torch"]) == (package.__version__, torch.__version__)
    assert [line.split()[0] for line in regard("env").out.splitlines()[:2]] == ["regard", "python"]


# ── the models people begin with ────────────────────────────────────────────────────────────────────────────────────


def test_minilm_finds_the_alike_sentences(regard, minilm):
    texts = ("a cat on a mat", "a kitten on a rug", "stock prices fell")
    records = read(regard("embed", minilm, *texts, "--compare", "--json"))
    assert records[0]["similarity"] == pytest.approx([1.0, 0.674, 0.077], abs=2e-3)


def test_smollm2_knows_the_capital_of_france(regard, smollm2):
    ran = regard("chat", smollm2, "What is the capital of France?", "--temperature", 0)
    assert (ran.code, ran.out, ran.err) == (0, "The capital of France is Paris.\n", "")
