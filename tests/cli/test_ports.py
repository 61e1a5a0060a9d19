"""Where `serve` and `view` listen: at an address of this machine and a free port, or one sentence says why not."""

import socket

import pytest

from regard.cli.view import address_of, listen
from regard.errors import RegardError


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["no.such.host.invalid", "", "256.1.1.1", "a" * 300, "\x1b[31m", "::zz", "192.0.2.1"])
def test_an_address_that_is_not_ours(host):
    with pytest.raises(RegardError) as refusal:
        listen(host, 0)
    assert str(refusal.value).isprintable()
    assert str(refusal.value).endswith(".")


def test_a_port_that_is_taken(taken, capsys):
    with pytest.raises(RegardError, match=f"^Port {taken} is taken; give another --port.$"):
        listen("127.0.0.1", taken, any_port=False)
    with listen("127.0.0.1", taken) as door:
        other = door.getsockname()[1]
    assert capsys.readouterr().err == f"Port {taken} is taken, so it is port {other}.\n"


def test_a_port_that_is_taken_is_one_sentence_of_the_command(regard, taken):
    ran = regard("serve", "toy-gpt", "--port", taken)
    assert (ran.code, ran.out, ran.err) == (2, "", f"regard: Port {taken} is taken; give another --port.\n")


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address(regard, host, monkeypatch):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    monkeypatch.setattr("regard.cli.view.serve", lambda app, door: door.close())
    ran = regard("view", "--host", host, "--port", 0, "--no-browser")
    assert (ran.code, ran.err) == (0, "Ctrl-C closes it.\n")
    assert ran.out.startswith("regard is open at http://[::1]:")


def test_an_address_that_can_be_opened():
    with listen("127.0.0.1", 0) as door:
        assert (
            address_of(door, "127.0.0.1", "m", "a b") == f"http://127.0.0.1:{door.getsockname()[1]}/#model=m&text=a+b"
        )
