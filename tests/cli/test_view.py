"""`regard view`, as a process and in its parts."""

import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from regard.cli import view
from regard.errors import RegardError


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "regard", "view", "--no-browser", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


def test_view_prints_its_address_serves_and_closes_quietly():
    process, line = started("toy-bert", "--text", "a & b", "--port", "0")
    try:
        found = re.fullmatch(r"regard is open at (http://127\.0\.0\.1:\d+/)#model=toy-bert&text=a\+%26\+b\n", line)
        assert found, line
        with httpx.Client(base_url=found[1], timeout=60) as client:
            assert client.get("/").status_code == 200
            assert client.get("/api/models").json()["models"][0]["name"] == "toy-bert"
            assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err == "Ctrl-C closes it.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["./nowhere"], "There is no file or directory './nowhere'."),
        (["--run", "nowhere"], "nowhere is not a training run"),
        (["--host", "256.256.256.256"], "is not an address of this machine"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(arguments, words, monkeypatch, capsys):
    from regard.cli.main import run

    monkeypatch.setattr(sys, "argv", ["regard", "view", "--no-browser", *arguments])
    with pytest.raises(SystemExit) as exit:
        run()
    assert exit.value.code == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_taken_port_is_exchanged_for_a_free_one(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with view.listen("127.0.0.1", taken) as door:
            assert door.getsockname()[1] != taken
            assert capsys.readouterr().err == f"Port {taken} is taken, so it is port {door.getsockname()[1]}.\n"


def test_a_port_of_the_system_is_a_sentence(monkeypatch):
    import errno

    def denied(*given: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(view, "bound", denied)
    with pytest.raises(RegardError, match="Port 80 may not be used by this user"):
        view.listen("127.0.0.1", 80)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a screen")
def test_without_a_screen_no_browser_is_started(monkeypatch, capsys):
    import webbrowser

    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail("started"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    view.open_browser("http://127.0.0.1:1/")
    assert capsys.readouterr().err == "There is no browser to open here: open the address yourself.\n"
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    view.open_browser("http://127.0.0.1:1/")
    assert capsys.readouterr().err == ""
