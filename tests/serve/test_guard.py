"""The guard: other hosts, other sites, large bodies, security headers, and exceptions of our own."""

import base64
import hashlib
import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.serve.app import make_app
from regard.serve.guard import MAX_BODY, Guard
from regard.serve.model_registry import ModelRegistry

HERE = "http://127.0.0.1:8899"


@pytest.mark.parametrize("host", ["127.0.0.1:8899", "localhost:8899", "localhost", "[::1]:8899", "LOCALHOST:1"])
def test_loopback_names_are_answered(client, host):
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example:8899", "127.0.0.1.evil.example", "", "10.0.0.7", "[", "localhost.evil"])
def test_a_rebound_name_is_refused(client, host):
    answer = client.get("/api/models", headers={"Host": host})
    assert answer.status_code == 421
    assert set(answer.json()) == {"error"}


def test_the_bound_address_is_answered_and_0_0_0_0_accepts_ip_addresses_only():
    nobody: Any = None
    one = Guard(nobody, "192.168.1.5")
    assert one.is_own_host("192.168.1.5:8899")
    assert not one.is_own_host("192.168.1.6:8899")
    every = Guard(nobody, "0.0.0.0")
    assert every.is_own_host("192.168.1.6:8899")
    assert every.is_own_host("[fe80::1]:8899")
    assert not every.is_own_host("evil.example")
    assert not every.is_own_host("")


NOT_ORIGINS = ["http://[::1", "http://[::1]x", "http://[v1.x]", "http://127.0.0.1:8899@evil", "", "//", "http://\xff"]


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1234", "https://127.0.0.1", *NOT_ORIGINS]
)
def test_another_origin_is_refused(client, origin):
    answer = client.post("/api/trace", json={}, headers={"Origin": origin.encode("latin-1")})
    assert (answer.status_code, answer.json()) == (403, {"error": "Requests from other sites are refused."})


ODD = [
    *(
        "/%ff",
        "/%00",
        "/%zz%",
        "/page/%00",
        "/page/%ff.js",
        "/page/" + "a" * 300,
        "/api/trace/%2e%2e/why?node=a&index=0",
    ),
    *("/api/run?name=%ff%00", "/api/model?name=%zz", "/api/frame?run=a&step=1e9&node=", "/api/run?%ff=;&&==&name"),
    *("/api/frame?run=a&step=99999999999999999999999&node=b", "/api/trace/x/slice?node=%00&at=" + "9" * 5000),
]


@pytest.mark.parametrize("path", ODD)
def test_odd_addresses_are_4xx_and_not_500(client, path):
    assert client.get(path).status_code in (400, 404)


@pytest.mark.parametrize(
    "name", ["Referer", "Authorization", "Content-Type", "Cookie", "If-None-Match", "Sec-Fetch-Site"]
)
@pytest.mark.parametrize("value", [b"\xff\xfe", b"http://[::1", b";;=,\xa0", b'"'])
def test_odd_headers_do_no_harm(client, name, value):
    assert client.get("/api/models", headers={name: value}).status_code == 200
    assert client.post("/api/trace", content=b"{}", headers={name: value}).status_code == 400


def test_our_own_origin_is_accepted(client):
    answer = client.get("/api/models", headers={"Origin": HERE, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200


def test_another_site_may_link_to_the_page_but_not_load_from_it(client):
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/", headers=foreign).status_code == 200
    assert client.get("/page/main.js", headers=foreign).status_code == 403
    assert client.get("/api/models", headers=foreign).status_code == 403


@pytest.mark.parametrize(
    "path", ["/", "/page/main.js", "/api/models", "/api/nothing", "/api/trace/x/why?node=a&index=0"]
)
def test_every_response_has_the_security_headers(client, path):
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "unsafe" not in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers


def test_a_cors_preflight_is_not_allowed(client):
    asking = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.options("/api/trace", headers=asking)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_import_map_is_in_the_policy_by_its_hash(client):
    answer = client.get("/")
    inside = answer.content.split(b'importmap">')[1].split(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(inside).digest()).decode()
    (scripts,) = [p for p in answer.headers["content-security-policy"].split("; ") if p.startswith("script-src")]
    assert scripts == f"script-src 'self' 'sha256-{digest}'"


def test_a_large_body_is_refused_with_or_without_content_length(client):
    large = b'{"text": "' + b"a" * MAX_BODY + b'"}'
    for body in (large, iter([large[:1000], large[1000:]])):  # an iterator is sent in chunks, without a length
        answer = client.post("/api/trace", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()) == (413, {"error": "A request may have at most 262,144 bytes."})


def test_a_long_address_is_refused(client):
    assert client.get("/api/model", params={"name": "a" * 20_000}).status_code == 414


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model": 3, "text": "a"}',
        b'{"model": "toy-gpt"}',
        b"\xff",
        b"[" * 100_000,
        b'{"model": "toy-gpt", "text": "a", "surprise": 1}',
        b'{"model": "toy-gpt", "text": null}',
    ],
)
def test_an_invalid_body_gets_an_error_message(client, body):
    answer = client.post("/api/trace", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    sentence = answer.json()["error"]
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert "Traceback" not in sentence


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("DELETE", "/api/models", 405)])
def test_an_unknown_address_gets_an_error_message(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")


def test_an_unexpected_exception_shows_no_traceback(page, caplog):
    app = make_app(ModelRegistry(), page=page)

    @app.get("/api/broken")
    def broken() -> None:
        raise ZeroDivisionError("secret detail")

    with TestClient(app, base_url=HERE) as client, caplog.at_level(logging.ERROR, logger="regard"):
        answer = client.get("/api/broken")
    assert answer.status_code == 500
    assert answer.json() == {"error": "Something inside went wrong with this request."}
    assert "ZeroDivisionError: secret detail" in caplog.text
    assert "Traceback" not in caplog.text
