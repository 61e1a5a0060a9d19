"""A teacher's tour: what a good file becomes, and the one sentence, with its line, that a bad one is refused with."""

import json
import re
from pathlib import Path

import pytest

import regard
from regard.errors import TaskError
from regard.page import WEB
from regard.teach.lesson import LESSONS
from regard.teach.tour import first_sentence, lesson_tour
from regard.teach.tour_file import FACTS, MAX_BYTES, PARTS, VIEW, check_tour, read_tour

HEAD = """title: Who is old?
model: toy-gpt
text: The old king and the old
steps:
"""
GOOD = (
    HEAD
    + """\
  - bold: Which word comes next?
    plain: "{n} pieces; the last is “{word}”."
    question: Guess.
    choices: [king, woman, 7]
    right: "{answer}"
    answer: "{answer}: {percent} %."
    hides: [answer, guesses]
  - bold: Head {head} looks at “{looks}”.
    view: {depth: 2, site: decoder.2.attention, head: 1, token: 6, key: 3, voice: numbers, temperature: 0.5}
    spot: [words]
    reveal:
      edits:
        decoder.2.attention.head.1: zero
        decoder.0.attention.scores: {scale: 2}
"""
)


@pytest.fixture(scope="module")
def models():
    return {name: regard.load(name) for name in ("toy-gpt", "toy-translate")}


@pytest.fixture
def opened(tmp_path, models):
    def opened(text: str | bytes, name: str = "Lecture 3.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return check_tour(read_tour(path), models, lambda model, text, target: models[model].trace(text, target))

    return opened


def test_a_good_file(opened):
    tour = opened(GOOD)
    assert (tour.name, tour.title, len(tour.steps)) == ("file-lecture-3", "Who is old?", 2)
    first, second = tour.to_json()["steps"]
    run = {"model": "toy-gpt", "text": "The old king and the old"}
    assert first["view"] == run
    assert first["choices"] == [{"is": "king"}, {"is": "woman"}, {"is": "7"}]
    assert first["hides"] == ("answer", "guesses")
    assert second["view"] == run | {
        "depth": 2,
        "site": "decoder.2.attention",
        "head": 1,
        "token": 6,
        "key": 3,
        "voice": "numbers",
        "temperature": 0.5,
    }
    assert second["reveal"] == {
        "edits": {"decoder.2.attention.head.1": "zero", "decoder.0.attention.scores": {"scale": 2}}
    }
    json.dumps(tour.to_json(), allow_nan=False)


def test_the_example_is_a_good_file(opened):
    tour = opened((Path(__file__).parents[2] / "examples" / "tour.yaml").read_text())
    assert [bool(step.choices or step.question) for step in tour.steps] == [True, False, False, True]


def test_a_tour_may_go_from_model_to_model(opened):
    tour = opened(
        "title: Two\nmodel: toy-gpt\ntext: The cat\nsteps:\n"
        "- bold: One\n"
        "- {bold: Two, view: {model: toy-translate, text: the area, site: decoder.1.cross, depth: 2, key: 1}}\n"
    )
    assert [step.view["model"] for step in tour.steps] == ["toy-gpt", "toy-translate"]


def test_markup_is_text(opened):
    tour = opened(HEAD + "  - bold: <img src=x onerror=hacked=1> &amp; [[token]]\n")
    assert tour.steps[0].bold == "<img src=x onerror=hacked=1> &amp; [[token]]"


STEP = HEAD + "  - bold: One\n"
BAD = {
    "empty": ("", 1, "the file is empty"),
    "no YAML": ("title: [", 1, "not YAML"),
    "a list": ("- bold: x", 1, "a tour is a mapping with title, model, text, steps"),
    "an unknown key": (HEAD + "  - bold: One\n    image: x.png\n", 6, "'image' is not a key of a step"),
    "an unknown key of a view": (STEP + "    view: {zoom: 3}\n", 6, "'zoom' is not a key of view"),
    "a key twice": (STEP + "    bold: Two\n", 6, "'bold' is given twice"),
    "no title": ("steps:\n  - bold: One\n", 1, "the tour has no title"),
    "no steps": ("title: One\nsteps: []\n", 2, "steps is a list"),
    "no bold": (HEAD + "  - plain: One\n", 5, "the step has no bold sentence"),
    "no model": ("title: One\ntext: The\nsteps:\n  - bold: One\n", 4, "the step has no model"),
    "an unknown model": (STEP.replace("toy-gpt", "toy-gtp"), 2, "there is no model 'toy-gtp' here; there are toy-gpt"),
    "an unknown model of a step": (STEP + "    view: {model: x}\n", 6, "there is no model 'x' here"),
    "no such site": (
        STEP + "    view:\n      depth: 2\n      site: decoder.9.attention\n",
        8,
        "no site 'decoder.9.attention'",
    ),
    "no such head": (
        STEP + "    view: {site: decoder.2.attention, head: 4}\n",
        6,
        "has 4 heads, 0 to 3; there is no 4",
    ),
    "no such token": (STEP + "    view: {token: 7}\n", 6, "token is 7, but the text has 7 tokens"),
    "no such key": (STEP + "    view: {site: decoder.2.attention, key: 99}\n", 6, "key is 99"),
    "no such step": (
        STEP + "    view: {site: decoder.2.attention, matrix: soft}\n",
        6,
        "'soft' is no step of the site",
    ),
    "no such number": (STEP + "    view: {node: decoder.2.attention.Q, index: [9, 0, 0]}\n", 6, "9"),
    "a refused edit": (STEP + "    view:\n      edits: {decoder.2.attention.head.1: burn}\n", 7, "'burn' is no edit"),
    "an edit nowhere": (STEP + "    reveal: {edits: {decoder.9.mlp: off}}\n", 6, "no edit target 'decoder.9.mlp'"),
    "a depth": (STEP + "    view: {depth: 5}\n", 6, "depth is a whole number from 0 to 4"),
    "a depth in words": (STEP + "    view: {depth: deep}\n", 6, "depth is a whole number"),
    "true is no number": (STEP + "    view: {head: true}\n", 6, "head is a whole number"),
    "a voice": (STEP + "    view: {voice: loud}\n", 6, "voice is story, numbers or mathematics"),
    "nan": (STEP + "    view: {temperature: .nan}\n", 6, "temperature is a number from 0 to 5"),
    "an unknown fact": (HEAD + "  - bold: It is {wheather}.\n", 5, "{wheather} is nothing a sentence can name"),
    "a guess nowhere": (STEP + '    plain: "{guess:decoder.7}"\n', 6, "{guess:decoder.7} names no block"),
    "a piece too many": (STEP + '    plain: "{piece:8}"\n', 6, "{piece:8} names no piece"),
    "right is no choice": (STEP + "    choices: [a, b]\n    right: c\n", 7, "'c' is right but not among the choices"),
    "a long sentence": (HEAD + f"  - bold: {'x' * 601}\n", 5, "bold has 601 characters"),
    "too many choices": (STEP + "    choices: [1, 2, 3, 4, 5, 6, 7]\n", 6, "choices has 7 entries"),
    "too many steps": (HEAD + "  - bold: x\n" * 101, 5, "steps has 101 entries"),
    "a long text": (STEP + f"    view: {{text: {'word ' * 200}}}\n", 6, "tokens"),
    "nested": (STEP + "    view: " + "[" * 5000 + "\n", 6, "nested too deep"),
    "an alias": ("a: &a [x, x]\nb: [*a, *a]\n", 1, "anchors, aliases and tags"),
    "a tag": ("title: !!python/object/apply:os.system [ls]\n", 1, "anchors, aliases and tags"),
    "two documents": (STEP + "---\ntitle: Two\n", 6, "a second one begins here"),
    "many values": (f"title: [{'x, ' * 10_001}]\n", 1, "at most 10,000 values"),
}


@pytest.mark.parametrize(("text", "line", "why"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_in_a_sentence_with_its_line(opened, text, line, why):
    with pytest.raises(TaskError) as refused:
        opened(text)
    said = str(refused.value)
    assert said.startswith(f"Lecture 3.yaml, line {line}: ")
    assert why in said
    assert "\n" not in said


def test_files_that_are_no_text(opened, tmp_path):
    with pytest.raises(TaskError, match="UTF-8"):
        opened(b"title: \xff\xfe")
    with pytest.raises(TaskError, match="line 1: this is not YAML"):
        opened("title: \0")
    with pytest.raises(TaskError, match=r"tour\.yaml"):
        opened(b"#" * (MAX_BYTES + 1), "tour.yaml")
    with pytest.raises(TaskError, match="cannot be read"):
        read_tour(tmp_path / "none.yaml")
    with pytest.raises(TaskError, match="not a regular file"):
        read_tour(Path("/dev/zero"))


# ── what Python and the page both know ──────────────────────────────────────────────────────────────────────────────


def names_in(file: str, table: str) -> set[str]:
    """Keys of a table of a module of the page."""
    body = re.search(rf"const {table} = {{\n(.*?)\n}}", (WEB / file).read_text(), re.S)
    assert body
    return set(re.findall(r"^  (\w+):", body[1], re.M))


def test_the_page_knows_the_same_facts_parts_and_keys():
    assert set(FACTS) == names_in("scene/facts.js", "FACTS") | {"mine"}
    assert set(PARTS) == names_in("scene/tour.js", "PARTS")
    state = re.search(r"DEFAULTS = Object\.freeze\({\n(.*?)\n}\)", (WEB / "state.js").read_text(), re.S)
    assert state
    assert set(VIEW) <= set(re.findall(r"^  (\w+):", state[1], re.M))


@pytest.mark.parametrize("name", LESSONS)
def test_every_lesson_is_a_tour(name):
    tour, lesson = lesson_tour(name, LESSONS[name]), LESSONS[name]
    told = tour.to_json()
    assert json.loads(json.dumps(told, allow_nan=False))["title"] == lesson.title
    for step, shown in zip(lesson.steps(), told["steps"], strict=True):
        assert shown["view"]["model"].startswith("toy-")  # which every machine has
        assert shown["figure"]["shape"] == list(step.value.shape)
        assert shown["bold"]
        assert step.say.startswith(shown["bold"])
        assert bool(step.choices) == bool(step.question)
        assert not step.choices or step.right in step.choices


def test_the_first_sentence_is_bold():
    assert first_sentence("One. Two? Three.") == ("One.", "Two? Three.")
    assert first_sentence("One? Two. Three.") == ("One?", "Two. Three.")
    assert first_sentence("d_k is 1.5 here.") == ("d_k is 1.5 here.", "")
