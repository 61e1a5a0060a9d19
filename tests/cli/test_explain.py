"""The command line's `explain`, `lesson` and `worksheet`."""

import errno
import io
import json
import os
import re
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers

import regard as package
from regard.cli.matrix import print_matrix

TEXT = "The old king sees"


@pytest.fixture(scope="module")
def trace():
    return package.load("toy-gpt").trace(TEXT)


def refused(ran, *words):
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.startswith("regard: ")
    assert ran.err.count("\n") == 1
    for word in words:
        assert word in ran.err
    return True


# ── explain ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_stages_are_printed(regard, trace):
    ran = regard("explain", "toy-gpt", TEXT)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("6 tokens: T he ␣old ␣king ␣se es\n")
    assert re.findall(r"^ (\w+)  ─", ran.out, re.M) == ["tokens", "attention", "mlp", "residual", "output"]
    assert "\033" not in ran.out
    last = trace["decoder.0.attention.weights"][0, 5]
    row = re.search(r"weights\[0, :, :\].*?\n  es +([\d. ]+)\n", ran.out, re.S)
    assert row is not None
    assert [float(x) for x in row[1].split()] == pytest.approx(last.tolist(), abs=0.0051)
    likeliest = float(trace["probabilities"][5].max())
    assert f"  {likeliest:.4f} █" in ran.out
    assert f"--why decoder.0.attention.weights 0 5 {int(last.argmax())}" in ran.out


def test_a_stage_in_full_shows_every_matrix_of_it(regard, trace):
    out = regard("explain", "toy-gpt", TEXT, "--stage", "attention", "--layer", 2, "--head", 1).out
    for part in ("Q", "K", "V", "dots", "scores", "masked", "weights", "Z"):
        assert f"decoder.2.attention.{part}[1, :, :]  " in out
    score = float(trace["decoder.2.attention.scores"][1, 0, 0])
    assert re.search(rf"scores\[1.*\n.*\n  T +{score:.2f} ", out)
    assert "-∞" in out
    assert "first 12 of 32 columns; --json has all" in out
    residual = regard("explain", "toy-gpt", TEXT, "--stage", "residual", "--layer", 3).out
    assert f"{float(np.linalg.norm(trace['decoder.3.out'][0])):.1f}\n" in residual


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_the_terminal(regard, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = regard("explain", "toy-gpt", TEXT, "--stage", "tokens").out
    rows = [line for line in out.splitlines() if re.match(r"  (T|he|␣old) ", line)]
    assert len(rows) == 9
    assert all(len(line) <= width for line in rows)
    shown = re.findall(r"first (\d+) of 128 columns", out)  # of each matrix
    assert shown == [{40: "5", 80: "12", 200: "32"}[width]] * 3


def test_why_prints_a_derivation_and_how_to_continue(regard, trace):
    ran = regard("explain", "toy-gpt", TEXT, "--why", "decoder.0.attention.scores", 0, 5, 4)
    assert (ran.code, ran.err) == (0, "")
    said, _, on = ran.out.partition("\nContinue with:\n")
    assert said == f"{trace.why('decoder.0.attention.scores', (0, 5, 4))}\n"
    assert "agrees" in said
    assert "--why decoder.0.attention.dots 0 5 4  = " in on


def test_why_can_be_followed_down_to_a_weight(regard):
    """scores ← dots ← Q ← norm ← … ← a learned number: each printed option is accepted."""
    place, seen = ["decoder.0.attention.weights", "0", "2", "1"], []
    for _ in range(12):
        out = regard("explain", "toy-gpt", "The old", "--why", *place).out
        assert "agrees" in out
        asked = re.findall(r"^  --why (\S+) ([\d ]+?)  = ", out, re.M)
        seen.append(place[0])
        if not asked:
            break
        name, index = asked[-1] if len(seen) > 2 else asked[0]
        place = [name, *index.split()]
    assert len(seen) >= 4
    assert seen[-1].endswith((".weight", ".bias"))


def test_an_index_in_brackets_counts_from_the_end_too(regard):
    one = regard("explain", "toy-gpt", TEXT, "--why", "logits[-1, 3]").out
    assert one == regard("explain", "toy-gpt", TEXT, "--why", "logits", 5, 3).out
    assert one


def test_why_as_json(regard, trace):
    told = json.loads(regard("explain", "toy-gpt", TEXT, "--why", "logits", 5, 3, "--json").out)
    assert told["node"] == "logits"
    assert told["value"] == pytest.approx(float(trace["logits"][5, 3]))
    assert told["agrees"] is True
    assert told["terms"][0]["factors"][0]["node"]


def test_json_has_everything_that_was_left_out(regard, trace):
    told = json.loads(regard("explain", "toy-gpt", TEXT, "--stage", "attention", "--json").out)
    assert told["tokens"] == trace.tokens
    assert [node["name"] for node in told["nodes"]] == trace.nodes()
    panels = {panel["node"]: panel for panel in told["stage"]["panels"]}
    np.testing.assert_allclose(panels["decoder.0.attention.K"]["values"], trace["decoder.0.attention.K"][0])
    assert panels["decoder.0.attention.masked"]["values"][0][1] is None
    best = told["output"][0]["likeliest"][0]
    assert best["probability"] == pytest.approx(float(trace["probabilities"][5].max()), abs=1e-6)


def test_an_edit_is_compared_with_the_plain_run(regard, trace):
    edit = {"decoder.2.attention.head.1": "zero", "token.2": "scale 0.5"}
    given = [word for place, what in edit.items() for word in ("--edit", f"{place}={what}")]
    out = regard("explain", "toy-gpt", TEXT, "--stage", "output", *given).out
    edited = trace.edit(edit)
    assert "edited: head 2.1 off, token 2 × 0.5\n" in out
    assert f"  {float(edited['probabilities'][5].max()):.4f} █" in out
    assert out.rstrip().endswith(str(trace.compare(edited)))


def test_the_other_kinds_of_model(regard):
    out = regard("explain", "toy-translate", "the European Economic Area").out
    assert "10 generated: </s> la ␣ z one ␣éc onom ique ␣européen ne\n" in out
    for site in ("encoder.0.attention", "decoder.0.attention", "decoder.0.cross"):
        assert f"{site}.weights[0, :, :]" in out
    assert re.search(r"^  ique +0\.9\d+ ␣européen", out, re.M)
    given = regard("explain", "toy-translate", "the house", "--target", "la maison", "--stage", "output").out
    assert "</s> la" in given
    alone = regard("explain", "toy-translate", "the house", "--site", "decoder.1.cross", "--stage", "attention").out
    assert "decoder.1.cross.weights" in alone
    assert "encoder" not in alone
    mask = regard("explain", "toy-bert", "The movie was [MASK].", "--stage", "output").out
    assert "[CLS] The movie was [MASK] . [SEP]" in mask
    expected: Any = package.load("toy-bert").fill("The movie was [MASK].")
    assert re.findall(r"^  (0\.\d{4}) █* +(\S+)$", mask, re.M)[0] == (
        f"{expected[0]['probability']:.4f}",
        expected[0]["token"],
    )
    assert "positive" in regard("explain", "toy-bert-sentiment", "It was good.", "--stage", "output").out
    assert re.search(r"^  good +0\.99\d+ ADJ", regard("explain", "toy-bert-tags", "It was good.").out, re.M)


def test_a_trace_as_one_html_file(regard, tmp_path):
    ran = regard("explain", "toy-gpt", TEXT, "--stage", "output", "--html", tmp_path / "run.html")
    assert ran.code == 0, ran.err
    assert ran.out.endswith(f"{tmp_path / 'run.html'} opens in a browser, without a network.\n")
    assert "<html" in (tmp_path / "run.html").read_text()[:500]
    assert refused(regard("explain", "toy-gpt", TEXT, "--html", tmp_path / "run.html" / "x.html"), "cannot be written")


def test_explain_refuses_in_one_sentence(regard):
    toy = ("explain", "toy-gpt", "The old king")
    assert refused(regard(*toy, "--layer", 9), "--layer is 9", "0 to 3")
    assert refused(regard(*toy, "--head", 4), "--head is 4", "0 to 3")
    assert refused(regard(*toy, "--site", "decoder.0.cross"), "'decoder.0.cross'", "decoder.0.attention")
    assert refused(regard(*toy, "--why", "decoder.0.nope", 1), "'decoder.0.nope'")
    assert refused(regard(*toy, "--why", "logits", 1), "(4, 800)")
    assert refused(regard(*toy, "--why", "logits[1,,-]"), "--why logits[1,,-]")
    assert refused(regard(*toy, 3, 4), "--why NODE")
    assert refused(regard(*toy, "--edit", "token.2"), "TARGET=WHAT")
    assert refused(regard(*toy, "--edit", "nothing.like.this=zero"), "nothing.like.this")
    assert refused(regard("explain", "no-such-model", "x"), "'no-such-model'")


def test_text_that_could_move_the_cursor_is_shown_as_text(regard):
    out = regard("explain", "toy-gpt", "a\033[31m\nb\x07").out
    assert "\033" not in out
    assert "\x07" not in out


# ── colours ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def drawn(values, **how):
    out = io.StringIO()
    console = Console(file=out, width=60, **how)
    print_matrix(console, np.array(values), ["row"], [str(i) for i in range(len(values[0]))])
    return out.getvalue()


def test_colours_run_from_blue_through_white_to_orange():
    text = drawn([[-2.0, 0.0, 2.0, -torch.inf]], force_terminal=True, color_system="truecolor")
    assert re.findall(r"48;2;(\d+;\d+;\d+)m", text) == ["33;102;172", "247;247;247", "214;96;20"]
    assert re.findall(r"38;2;(\d+;\d+;\d+);", text) == ["255;255;255", "0;0;0", "255;255;255"]


def test_without_colours_the_digits_say_the_same():
    plain = drawn([[-2.0, 0.0, 2.0, -torch.inf]])
    assert plain.splitlines()[1].split() == ["row", "-2.00", "0.00", "2.00", "-∞"]
    coloured = drawn([[-2.0, 0.0, 2.0, -torch.inf]], force_terminal=True, color_system="truecolor")
    assert re.sub(r"\033\[[\d;]*m", "", coloured) == plain


# ── lesson ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_lesson_fits_eighty_columns(regard):
    names = [line.split()[0] for line in regard("lesson").out.splitlines()]
    assert len(names) == 15
    for name in names:
        ran = regard("lesson", name)
        assert (ran.code, ran.err) == (0, "")
        assert max(map(len, ran.out.splitlines())) <= 80, name


def test_a_lesson_shows_minus_infinity_and_names_of_columns(regard):
    out = regard("lesson", "masks").out
    assert "                The  cat  sat\n              ⎡   1   -∞   -∞ ⎤  The\n" in out


def test_a_lesson_on_a_live_model(regard):
    out = regard("lesson", "translation").out
    assert "⎣ 0.000075  0.995072  0.002765  0.000450  0.001637 ⎦  européenne" in out


def test_bars_have_lengths_and_numbers(regard):
    out = regard("lesson", "gradient-flow").out
    both, _, no_norm, neither = re.findall(
        r"█*[▏▎▍▌▋▊▉]? +([\d.e+-]+)", out[out.index("‖∂L/∂x‖") :].splitlines()[2][9:]
    )
    assert float(both) < 10
    assert float(no_norm) > 1e4
    assert float(neither) < 1e-3
    assert "Bars are logarithmic, from 1.0e-04." in out


def test_a_lesson_can_be_plotted(regard, tmp_path):
    ran = regard("lesson", "gradient-flow", "--plot", tmp_path / "flow.svg")
    assert ran.code == 0, ran.err
    assert ran.out.endswith(f"The figure is {tmp_path / 'flow.svg'}.\n")
    assert "<svg" in (tmp_path / "flow.svg").read_text()
    assert refused(regard("lesson", "pizza", "--plot", tmp_path / "x.svg"), "nothing to plot")
    assert refused(regard("lesson", "gradient-flow", "--plot", tmp_path / "x.txt"), ".svg, .png, .pdf")


# ── worksheet ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_worksheets_and_their_key(regard, tmp_path):
    out = tmp_path / "new" / "sheet.html"
    ran = regard("worksheet", "toy-gpt", TEXT, "--out", out, "--students", 3, "--seed", 5, "--key")
    assert (ran.code, ran.err) == (0, "")
    assert "3 sheets to print." in ran.out
    sheets, key = out.read_text(), (tmp_path / "new" / "sheet-key.html").read_text()
    assert sheets.count("Name <span") == 3
    assert key.count("Answer key") == 3
    assert 'class="answer"' not in sheets
    again = tmp_path / "again.html"
    ran = regard("worksheet", "toy-gpt", TEXT, "--out", again, "--students", 3, "--seed", 5)
    assert "--key writes the answers" in ran.out
    assert again.read_text() == sheets
    assert not (tmp_path / "again-key.html").exists()


def test_worksheet_refusals(regard, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert refused(regard("worksheet", "toy-gpt", TEXT, "--out", tmp_path / "file" / "x.html"), "cannot be written")
    assert refused(regard("worksheet", "toy-gpt", TEXT, "--out", tmp_path / "x.html", "--students", 501), "500")
    assert refused(regard("worksheet", "toy-gpt", "king " * 200, "--out", tmp_path / "x.html"), "128 positions")
    (tmp_path / "x-key.html").mkdir()
    assert refused(
        regard("worksheet", "toy-gpt", TEXT, "--out", tmp_path / "x.xml", "--format", "moodle", "--key"), "x-key"
    )
    ran = regard("worksheet", "toy-gpt", TEXT, "--out", tmp_path / "x.html", "--level", "hard")
    assert (ran.code, ran.out) == (2, "")
    assert "'hard' is not one of 'scores', 'weights', 'z', 'all'" in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "x-key.html"]


@pytest.mark.parametrize(
    ("format", "file", "says", "begins"),
    [
        ("check", "sheet.html", "to fill in with a browser", "<!doctype html>"),
        ("moodle", "quiz.xml", "to import as Moodle XML", "<?xml"),
        ("gift", "quiz.txt", "to import as GIFT", "$CATEGORY: $course$/top/Attention by hand/toy-gpt/weights"),
    ],
)
def test_other_formats_and_their_key(regard, tmp_path, format, file, says, begins):
    wish = ["worksheet", "toy-gpt", TEXT, "--format", format, "--level", "weights", "--students", 2]
    ran = regard(*wish, "--out", tmp_path / file, "--key")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{tmp_path / file}: 2 sheets {says}.\n")
    assert (tmp_path / file).read_text(encoding="utf-8").startswith(begins)
    stem = file.partition(".")[0]
    assert (tmp_path / f"{stem}-key.html").read_text(encoding="utf-8").count("Answer key") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([file, f"{stem}-key.html"])


def test_no_worksheet_without_attention(regard, tmp_path):
    import tiny

    tiny.make_native("gru", tmp_path / "gru")
    words = {word: id for id, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", "the", "king", "le", "roi"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "gru" / "tokenizer.json"))
    ran = regard("worksheet", tmp_path / "gru", "the king", "--target", "le roi", "--out", tmp_path / "x.html")
    assert refused(ran, "This run has no plain scaled dot-product attention to make a worksheet of.")
    assert not (tmp_path / "x.html").exists()


def test_a_full_disk_leaves_the_old_worksheet(regard, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "quiz.xml"
    out.write_text("the old one")
    monkeypatch.setattr(os, "fsync", full)
    assert refused(regard("worksheet", "toy-gpt", TEXT, "--format", "moodle", "--out", out), "No space left")
    assert out.read_text() == "the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["quiz.xml"]
