"""Every user error is one sentence on stderr and exit code 2, with nothing on stdout."""

import os
import stat

import pytest


def refused(ran, *words):
    """One line that begins with the command's name, ends like a sentence, and says what is wrong."""
    assert ran.code == 2, ran
    assert ran.out == ""
    assert ran.err.startswith("regard: ")
    assert ran.err.count("\n") == 1
    assert ran.err.endswith((".\n", '"\n'))
    for word in words:
        assert word in ran.err
    return True


def misused(ran, *words):
    """The parser's own refusal: the usage, where help is, and what is wrong."""
    assert ran.code == 2, ran
    assert ran.out == ""
    usage, hint, _, problem = ran.err.splitlines()
    assert usage.startswith("Usage: regard ")
    assert hint.startswith("Try 'regard ")
    for word in words:
        assert word in problem
    return True


@pytest.mark.parametrize("verb", ["generate", "embed", "inspect", "verify", "pull"])
def test_an_unknown_model(regard, verb):
    text = ["hello"] if verb in ("generate", "embed") else []
    assert refused(regard(verb, "no-such-model", *text), "'no-such-model'", "smollm2")


def test_a_path_that_is_not_there(regard):
    assert refused(regard("generate", "./no/such/path", "hello"), "'./no/such/path'")


def test_things_that_are_not_models(regard, tiny_model, tmp_path):
    weights = tiny_model("decoder") / "model.safetensors"
    assert refused(regard("generate", weights, "hello"), str(weights), "neither")
    (tmp_path / "config.json").write_text("{")
    for verb in (["generate", tmp_path, "hello"], ["inspect", tmp_path], ["inspect", tmp_path / "config.json"]):
        assert refused(regard(*verb), str(tmp_path / "config.json"), "not valid JSON")
    empty, letter = tmp_path / "empty", tmp_path / "letter.gguf"
    empty.mkdir()
    letter.write_text("dear aunt")
    assert refused(regard("inspect", empty), str(empty), "not a model's directory")
    for verb in (["generate", letter, "hello"], ["inspect", letter]):
        assert refused(regard(*verb), "not a GGUF file")


def test_a_pickle_is_named_and_not_opened(regard, tiny_model, tmp_path):
    (tmp_path / "config.json").write_bytes((tiny_model("decoder") / "config.json").read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert refused(regard("generate", tmp_path, "hello"), "pytorch_model.bin", "pickle", "safetensors")


@pytest.mark.parametrize(
    ("verb", "model", "needs"),
    [
        ("translate", "decoder", "an encoder-decoder (BART, Marian, …)"),
        ("translate", "encoder", "an encoder-decoder (BART, Marian, …)"),
        ("classify", "decoder", "SequenceClassification"),
        ("tag", "classifier", "TokenClassification"),
        ("fill", "tagger", "MaskedLM"),
        ("chat", "encoder", "a decoder (GPT-2, Llama, …)"),
        ("chat", "decoder", "chat template"),
        ("generate", "encoder", "language-modelling head"),
    ],
)
def test_a_model_for_something_else_says_what_it_takes(regard, tiny_model, verb, model, needs):
    assert refused(regard(verb, tiny_model(model), "hello"), model, needs)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--top-p", "0"),
        ("--top-p", "1.5"),
        ("--top-k", "-3"),
        ("--min-p", "2"),
        ("--repetition-penalty", "0"),
        ("--max-new-tokens", "-1"),
        ("--seed", str(2**70)),
    ],
)
@pytest.mark.parametrize("verb", ["generate", "chat"])
def test_a_number_out_of_range_is_refused_before_anything_is_loaded(regard, verb, option, value):
    name = option.removeprefix("--").replace("-", "_")
    assert refused(regard(verb, "no-such-model", "hello", option, value), f"{name} is ", "must be")


def test_more_settings_that_cannot_be(regard, tiny_model):
    model = tiny_model("decoder")
    assert refused(regard("generate", model, "hello", "-n", 0), "n is 0")
    assert refused(regard("generate", model, "hello", "--num-beams", 2, "-n", 3), "at most num_beams")
    assert refused(regard("generate", model, "hello", "--num-beams", 2, "--temperature", 1), "beams do not sample")
    assert refused(regard("generate", model, "hello", "--max-new-tokens", 129), "context of 128 tokens")
    assert refused(regard("generate", model, "word " * 200), "shorten the prompt")
    assert refused(regard("generate", model, "hello", "--stop", ""), "stop is ''")
    assert refused(regard("translate", tiny_model("translator"), "hello", "--num-beams", 0), "num_beams is 0")


@pytest.mark.parametrize("device", ["cuda:7", "meta", "abacus"])
def test_a_device_that_is_not_there(regard, tiny_model, device):
    assert refused(regard("generate", tiny_model("decoder"), "hello", "--device", device), repr(device))


def test_an_unknown_dtype(regard, tiny_model):
    assert refused(regard("embed", tiny_model("encoder"), "hello", "--dtype", "int8"), "'int8'", "bfloat16")


@pytest.mark.parametrize("verb", ["generate", "translate", "classify", "tag", "fill", "embed"])
@pytest.mark.parametrize("stdin", ["", "\n \n"])
def test_empty_standard_input(regard, verb, stdin):
    assert refused(regard(verb, "no-such-model", stdin=stdin), "Standard input is empty")


@pytest.mark.parametrize("verb", ["generate", "embed"])
def test_standard_input_that_is_not_text(regard, verb):
    assert refused(regard(verb, "no-such-model", stdin=b"caf\xe9"), "not UTF-8")


def test_an_argument_that_is_not_text(regard, tiny_model):
    assert refused(regard("embed", tiny_model("encoder"), "caf\udce9"), "surrogate")


def test_fill_wants_its_mask(regard, tiny_model):
    assert refused(regard("fill", tiny_model("mlm"), "no mask here"), "[MASK]")


def test_a_message_without_a_model(regard):
    assert refused(regard("chat", "What is this?"), 'regard chat smollm2 "What is this?"')


@pytest.mark.parametrize("out", ["file/vectors.npy", "file/deep/vectors.npy", "folder"])
def test_an_out_that_cannot_be_written(regard, tiny_model, tmp_path, out):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    assert refused(regard("embed", tiny_model("encoder"), "hello", "--out", tmp_path / out), str(tmp_path / out))


def test_convert_contradictions_are_refused_before_loading(regard, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert refused(
        regard("convert", "no-such-model", tmp_path / "new", "--format", "hf", "--quantize", "q8"), "--quantize"
    )
    assert refused(regard("convert", "no-such-model", tmp_path / "x.gguf", "--format", "hf"), "x.gguf")
    assert refused(regard("convert", "no-such-model", tmp_path / "file"), "not a directory")
    assert refused(regard("convert", "no-such-model", tmp_path / "file" / "deep"), "cannot be written")


def test_convert_to_gguf_what_gguf_has_no_name_for(regard, tiny_model, tmp_path):
    assert refused(regard("convert", tiny_model("translator"), tmp_path / "bart.gguf"), "GGUF", "bart")
    assert not (tmp_path / "bart.gguf").exists()


def test_verify_texts_must_fit(regard, tiny_model):
    assert refused(regard("verify", tiny_model("decoder"), "--text", ""), "'' has 0 tokens")
    assert refused(regard("verify", tiny_model("decoder"), "--text", "word " * 200), "from 1 to 128")


def test_no_such_lesson(regard):
    assert refused(regard("lesson", "astrology"), "'astrology'", "three-inputs")


def test_a_file_the_system_refuses(regard, monkeypatch):
    def refuse(where):
        raise PermissionError(13, "Permission denied", "/secret/model")

    monkeypatch.setattr("regard.api.load_model.open_files", refuse)
    assert refused(regard("embed", "anything", "hello"), "/secret/model cannot be used: Permission denied.")


def test_no_memory(regard, monkeypatch):
    def refuse(where):
        raise MemoryError

    monkeypatch.setattr("regard.api.load_model.open_files", refuse)
    assert refused(regard("embed", "anything", "hello"), "not enough memory")


def test_misuse_is_explained_by_the_parser(regard):
    assert misused(regard("generate"), "Missing argument 'MODEL'")
    assert misused(regard("generat"), "Did you mean 'generate'?")
    assert misused(regard("embed", "minilm", "x", "--colour"), "--colour")
    assert misused(regard("generate", "m", "x", "--top-k", "many"), "--top-k")
    assert misused(regard("convert", "m", "x", "--format", "bin"), "'bin' is not one of 'hf', 'gguf'")
    assert misused(regard("fill", "m", "x", "--top-k", 0), "--top-k")
    ran = regard()
    assert (ran.code, ran.out) == (2, "")
    assert "Commands:" in ran.err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--memory", "nan", "--memory is nan"),
        ("--memory", "inf", "--memory is inf"),
        ("--api-key", "", "--api-key"),
        ("--api-key", "clé", "--api-key"),
        ("--api-key", " key", "without spaces around it"),  # a header's value has none, so it could never be given
        ("--cache", "q9", "cache is 'q9'"),
    ],
)
def test_a_server_that_could_not_serve(regard, option, value, words):
    assert refused(regard("serve", "toy-gpt", option, value), words)


def test_more_threads_than_a_machine_can_start(regard):
    assert misused(regard("serve", "toy-gpt", "--threads", 100_000), "--threads", "1024")


@pytest.mark.parametrize("kind", [[], ["--quantize", "f32"]])
def test_a_cost_where_nothing_is_rounded(regard, tmp_path, kind):
    assert refused(regard("convert", "toy-gpt", tmp_path / "out", *kind, "--measure", __file__), "--measure needs")
    assert not (tmp_path / "out").exists()


WRITING = {
    "embed": ["embed", "toy-bert", "hello", "--out"],
    "map": ["map", "embed", "--model", "toy-bert", "--in", "nothing.txt", "--out"],
    "explain": ["explain", "toy-gpt", "hello", "--html"],
    "lesson": ["lesson", "gradient-flow", "--plot"],
    "worksheet": ["worksheet", "toy-gpt", "The old king", "--out"],
    "report": ["report", "no-run", "--out"],
    "convert": ["convert", "toy-gpt"],
}


@pytest.mark.parametrize("verb", WRITING)
def test_places_that_cannot_be_written_to(regard, tmp_path, verb):
    """Reported before anything is loaded, and existing files are unchanged."""
    (tmp_path / "directory.svg").mkdir()
    (tmp_path / "directory.svg" / "letter").write_text("dear aunt")
    (tmp_path / "letter.gguf").write_text("dear aunt")
    os.mkfifo(tmp_path / "pipe.svg")
    for name in (
        "directory.svg",
        "pipe.svg",
        "letter.gguf/x.svg",
        "letter.gguf/x/y.svg",
        f"{'a' * 300}.svg",
        "x" * 5000,
    ):
        assert refused(regard(*WRITING[verb], tmp_path / name), "directory" if "directory" in name else name[:50])
    assert refused(regard(*WRITING[verb], "/"), "/")
    assert refused(regard(*WRITING[verb], "a\0b"), "NUL")
    assert stat.S_ISFIFO((tmp_path / "pipe.svg").stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory.svg", "letter.gguf", "pipe.svg"]
    if os.geteuid():  # root may do everything
        (tmp_path / "directory.svg").chmod(0o500)
        assert refused(regard(*WRITING[verb], tmp_path / "directory.svg" / "x.svg"), "may be written")


@pytest.mark.parametrize("verb", ["generate", "embed", "inspect", "verify", "pull", "explain", "eval"])
@pytest.mark.parametrize("name", ["~nobody-of-that-name/y", "caf\udce9\x1b/\n", "a\0b", "letter/x/y", "a" * 5000])
def test_names_that_no_model_has(regard, tmp_path, monkeypatch, verb, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter").write_text("dear aunt")
    text = {"generate": ["hello"], "embed": ["hello"], "explain": ["hello"], "eval": ["--data", "letter"]}
    assert refused(regard(verb, name, *text.get(verb, [])))


@pytest.mark.parametrize("data", ["a\nb", "", "letter/x", "\x1b[31m", "nothing/*.txt", "x" * 5000])
def test_data_that_is_not_there(regard, tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter").write_text("dear aunt")
    assert refused(regard("eval", "toy-gpt", "--data", data))
    assert refused(regard("map", "embed", "--model", "toy-bert", "--in", data, "--out", "out.jsonl"))
    assert refused(regard("report", data or "nothing"))
    assert refused(regard("view", "--run", data or "nothing", "--no-browser"))


@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize("option", ["--workers", "--cpus"])
def test_no_workers_at_all(regard, option, value):
    command = ["map", "embed", "--model", "toy-bert", "--in", "x.txt", "--out", "o.jsonl", option, value]
    assert refused(regard(*command), "--ray")


def test_a_figure_needs_an_image_file_extension(regard, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0, "lr": 0.1}\n')
    for name in ("picture", "picture.exe", ".svg"):
        assert refused(regard("report", tmp_path, "--out", tmp_path / name), name, ".svg, .png, .pdf")
