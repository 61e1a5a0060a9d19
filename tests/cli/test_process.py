"""The command as a process: pipes that close, Ctrl-C, and a terminal that is really one."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import clean

REGARD = [sys.executable, "-m", "regard"]
ENVIRONMENT = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize("unbuffered", ["1", ""])
@pytest.mark.parametrize("verb", ["models", "--help"])
def test_a_closed_pipe_is_quiet(verb, unbuffered):
    """`regard models | head -1`, whether it is noticed at the first line or at the end of the output."""
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process: Any
    with subprocess.Popen([*REGARD, verb], **pipes, env=environment) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=20) == 1


def test_a_process_without_standard_streams():
    done = subprocess.run(["sh", "-c", '"$@" <&- >&-', "sh", *REGARD, "embed", "minilm"], capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"regard: Standard input is empty")


def test_ctrl_c_is_quiet_and_130(tiny_model):
    command = [*REGARD, "chat", str(tiny_model("chat")), "--max-new-tokens", "4"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process: Any
    with subprocess.Popen(command, **pipes, env=ENVIRONMENT) as process:
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr.read() == b""


def runs(before, *arguments):
    """The command in a process that does something `before` it begins, such as to arrange for Ctrl-C at a certain place."""
    code = (
        f"import os, sys, time\n{before}\nfrom regard.cli.main import run\nsys.argv = {['regard', *arguments]}\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=600)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["regard.cli.console", "typer", "regard.cli.models", "regard.store.hub"])
def test_ctrl_c_while_a_module_is_imported(module):
    finder = f"""class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Finder())"""
    assert runs(finder, "models") == (130, "", "")


VERB = """class Thing:
    def __del__(self):
        os.kill(os.getpid(), 2)
import regard.cli.models as verb
def command():
    {}
verb.command = command"""


@pytest.mark.parametrize(
    "work",
    ["os.kill(os.getpid(), 2)", "exec('os.kill(os.getpid(), 2)')", "Thing(); time.sleep(3600)"],
    ids=["anywhere", "in a text that is run", "in a callback"],
)
def test_ctrl_c_while_a_verb_works(work):
    assert runs(VERB.format(work), "models") == (130, "", "")


def test_ctrl_c_after_the_output():
    work = "import atexit; atexit.register(os.kill, os.getpid(), 2); print('said')"
    assert runs(VERB.format(work), "models") == (130, "said\n", "")


def test_the_entry_point_imports_nothing_that_takes_time():
    """What comes before it can be interrupted with a traceback."""
    code = "import sys; before = {*sys.modules}; import regard.cli.main; print(*sorted({*sys.modules} - before))"
    where = {"PYTHONPATH": str(Path(regard.__file__).parent.parent)}  # without site-packages nothing is found by itself
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, **where})
    slow = {"typing", "re", "enum", "signal", "typer", "regard.cli.console"}
    assert "regard.cli.main" in done.stdout.split(), done.stderr
    assert not slow & {*done.stdout.split()}


class Terminal:
    """A process whose standard streams are a terminal."""

    def __init__(self, *arguments, **environment):
        self.seen = b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's threads; the child becomes another program
            self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [*REGARD, *map(str, arguments)], {**ENVIRONMENT, **environment})

    def until(self, end, seconds=120):
        """What appears up to and with `end`, or up to the process's own end."""
        deadline = time.monotonic() + seconds
        while end not in self.seen and time.monotonic() < deadline:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:  # the process has gone
                    break
        before, found, self.seen = self.seen.partition(end)
        return (before + found).decode(errors="replace")

    def press(self, keys, answer):
        """Until they are answered. A signal between the prompt and Python's waiting for a key is only seen at the next
        key, which from a person comes soon."""
        for _ in range(10):
            os.write(self.fd, keys)
            shown = self.until(answer, 5)
            if answer.decode() in shown:
                return
        raise AssertionError(f"{keys!r} was not answered: {shown!r}")

    def leave(self):
        rest = self.until(b"\0")
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code, rest


def without_styles(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")


def test_a_conversation_at_a_terminal(tiny_model):
    terminal = Terminal("chat", tiny_model("chat"), "--max-new-tokens", 4, "--dtype", "bfloat16")
    opening = terminal.until(b"\r\n> ")
    assert "Loading chat" in opening, "a bar while the model loads, which takes PyTorch more than a moment"
    assert opening.index("\x1b[?25h") < opening.index("Chatting with chat."), "which is gone before anybody types"
    for keys, answer in (
        (b"the cat\n", b"\r\n> "),
        (b"/history\n", b"user: the cat\r\nassistant: "),
        (b"/undo\n", b"The last exchange is removed.\r\n> "),
        (b"/history\n", b"There are no messages yet.\r\n> "),
    ):
        os.write(terminal.fd, keys)
        assert terminal.until(answer).encode(errors="replace").endswith(answer)
    terminal.press(b"\x03", b"/exit or Ctrl-D exits.\r\n> ")
    os.write(terminal.fd, b"\x04")
    code, rest = terminal.leave()
    assert code == 0
    assert "Traceback" not in rest


def test_the_bar_has_a_rate_and_the_time_left(minilm):
    code, text = Terminal(
        "embed", "--dtype", "bfloat16", minilm, *["the cat sat on the mat and looked at the moon"] * 1500
    ).leave()
    assert code == 0
    for bar in (
        r"Loading minilm \S+ +\d+% [\d.]+[kMG] parameters/s \d:\d\d:\d\d",
        r"Embedding \S+ +\d+% [\d.]+k? texts/s \d:\d\d:\d\d",
    ):
        assert re.search(bar, without_styles(text))
    *_, last = text.rpartition("\x1b[2K")  # the line is cleared, and only the answer stands after it
    assert last.endswith("… (384 numbers)  the cat sat on the mat and looked at the moon\r\n")
    assert last.count("\n") == 1500


@pytest.mark.parametrize(("verb", "often"), [("serve", True), ("train", True), ("chat", False)])
def test_long_running_verbs_keep_the_default_garbage_collection(verb, often):
    """A server that waited for 100,000 objects grew by megabytes for minutes."""
    code = "import atexit, gc, sys; before = gc.get_threshold(); from regard.cli.main import run\n"
    code += "atexit.register(lambda: print('often', gc.get_threshold() == before))\n"
    code += f"sys.argv = ['regard', {verb!r}, '-h']; run()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == f"often {often}"


def test_a_damaged_tokenizer_is_one_line_on_stderr(tiny_model, tmp_path):
    """What the tokenizer library writes when it panics would pass by Python, so this is seen from outside."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("decoder"), folder)
    data = json.loads((folder / "tokenizer.json").read_text())
    data["normalizer"] = {"type": "Replace", "pattern": {"String": ""}, "content": "x"}
    (folder / "tokenizer.json").write_text(json.dumps(data))
    ran = subprocess.run([*REGARD, "generate", folder, "hello"], capture_output=True, text=True, env=ENVIRONMENT)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"regard: {folder / 'tokenizer.json'} has a normalizer that replaces the empty text.\n"


EVIL = "\x1b[2J\x1b]0;owned\x07[bold red]\x9b31m\u202e\r"


@pytest.fixture
def evil(tiny_model, tmp_path):
    """A classifier whose labels contain escape sequences."""
    where = tmp_path / "[bold]\x1b[5mevil"
    shutil.copytree(tiny_model("classifier"), where)
    config = json.loads((where / "config.json").read_text())
    config["id2label"] = {i: f"{EVIL}{i}" for i in config["id2label"]}
    (where / "config.json").write_text(json.dumps(config))
    return where


@pytest.mark.parametrize(
    "arguments", [["classify", "the cat"], ["inspect"], ["explain", "the cat"], ["generate", "the cat"]]
)
def test_control_characters_in_a_models_output_are_escaped(evil, arguments):
    verb, *text = arguments
    _, shown = Terminal(verb, evil, *text).leave()
    plain = re.sub(r"\x1b\[\?25[hl]|\x1b\[[\d;]*m|\x1b\[(2K|1A)|\r", "", shown)  # the bar's and our own styles
    assert re.search("evil|owned|cat", plain)
    assert "\x1b[5m" not in shown
    assert clean(plain) == plain
    assert "[bold" in plain, "nor is it markup"


def test_a_pipe_gets_every_character(evil):
    done = subprocess.run([*REGARD, "classify", evil, "the cat"], capture_output=True, env=ENVIRONMENT, check=True)
    assert EVIL in done.stdout.decode().replace("\r\n", "\n")
    done = subprocess.run([*REGARD, "generate", evil, "the cat"], capture_output=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr.count(b"\x1b")) == (2, b"", 0)
