"""Bad clients, made at random: each is a script of what it sends, how long it waits and how it leaves.

A script is plain JSON, so that one that did harm can be kept in `soak/cases.json` and is performed first ever after. Steps:
["send", text in latin-1], ["wait", seconds], ["read", bytes at most], ["answers", seconds at most], ["close"], ["reset"].
`TRACE` in what is sent stands for the id of the run that an earlier answer of the same script named.
"""

import asyncio
import json
import random
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Script = list[list[Any]]

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"model": "toy-gpt", "prompt": "The old king", "temperature": 0, "seed": 0, "max_tokens": 12}),
    ("/v1/completions", {"model": "toy-gpt", "prompt": ["One day", "Three"], "seed": 3, "max_tokens": 6, "n": 2}),
    (
        "/v1/completions",
        {"model": "toy-gpt", "prompt": [5, 6, 7], "echo": True, "logprobs": 3, "seed": 1, "top_p": 0.9},
    ),
    ("/v1/completions", {"model": "toy-gpt", "prompt": "A girl", "seed": 5, "explain": {"layers": [0], "heads": [1]}}),
    (
        "/v1/chat/completions",
        {"model": "tiny-chat", "messages": [{"role": "user", "content": "Hello"}], "seed": 4},
    ),
    (
        "/v1/chat/completions",
        {
            "model": "tiny-chat",
            "messages": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
            ],
            "seed": 2,
            "logprobs": True,
            "top_logprobs": 2,
            "max_completion_tokens": 5,
            "stop": ["a", "zz"],
            "logit_bias": {"7": 3.5},
        },
    ),
    ("/v1/embeddings", {"model": "toy-bert", "input": ["I loved it.", "It was boring."]}),
    ("/v1/embeddings", {"model": "toy-bert", "input": [[5, 6, 7], [8]], "encoding_format": "base64"}),
    ("/v1/translations", {"model": "toy-translate", "input": ["the European Economic Area"], "num_beams": 2}),
    ("/tokenize", {"model": "toy-gpt", "prompt": "The old king", "add_special_tokens": True}),
    ("/detokenize", {"model": "toy-gpt", "tokens": [5, 6, 7]}),
]
STREAM = {"model": "toy-gpt", "prompt": "The old king", "max_tokens": 100, "stream": True, "logit_bias": {"0": -100}}
TRACED = {"model": "toy-gpt", "text": "The old king", "edits": {"decoder.0.attention.scaling": "off"}}
LIVE = {"model": "toy-gpt", "text": "The old king", "max_new_tokens": 10, "temperature": 0.8, "seed": 3}
LOOKS = [
    "/api/trace/TRACE/slice?node=decoder.1.attention.weights&at=0,1",
    "/api/trace/TRACE/slice?node=logits&at=0:1,3:9",
    "/api/trace/TRACE/why?node=decoder.1.attention.weights&index=1,2,1&most=5",
    "/api/trace/TRACE/output?position=2&temperature=0.7&top_k=5&top_p=0.9&min_p=0.1&seed=4",
    "/api/trace/TRACE/lens?name=attribution&token=-1&id=5",
    "/api/trace/TRACE/lens?name=rollout&layer=1&stack=decoder&head=0&site=decoder.0.attention",
    "/api/compare?a=TRACE&b=TRACE&position=1",
    "/api/trace/TRACE/export",
]
PLACES = [
    *("/", "/health", "/metrics", "/openapi.json", "/v1/models", "/v1/models/toy-gpt", "/api/models", "/api/lessons"),
    *("/page/main.js", "/page/../app.py", "/api/model?name=toy-bert", "/api/lesson?name=three-inputs", "/api/runs"),
    *("/api/run?name=x", "/api/frame?run=x&step=1&node=a&probe=0", "/v1/nothing", "//", "/%2e%2e/%00", "*"),
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, 1e308, float("nan"), float("-inf")),
    *("", "a", "0", "-1", "a" * 5000, "\ud800", "\x00", "\u200d\U0001f469\u200d\U0001f467", "\U0010ffff", "<|im_end|>"),
    *(
        [],
        {},
        [[]],
        [{}],
        [[[]]],
        [None],
        [0] * 500,
        ["a"] * 100,
        {"a": {"b": {"c": []}}},
        [[1, 2], [3]],
        [1, "a"],
        "[MASK]",
    ),
]


# ── what is sent ────────────────────────────────────────────────────────────────────────────────────────────────────


def head(method: str, path: str, more: list[str]) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *more, "", ""]).encode("latin-1", "replace")


def post(path: str, body: bytes, more: tuple[str, ...] = ()) -> bytes:
    return head("POST", path, ["Content-Type: application/json", f"Content-Length: {len(body)}", *more]) + body


def chunked(rng: random.Random, path: str, body: bytes) -> bytes:
    found, at = head("POST", path, ["Content-Type: application/json", "Transfer-Encoding: chunked"]), 0
    while at < len(body):
        size = rng.randint(1, len(body))
        found += b"%x\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size])
        at += size
    return found + b"0\r\n\r\n"


def changed(rng: random.Random, value: Any, most: int = 3) -> Any:
    """The same JSON with a few things in it replaced, left out, added, wrapped or renamed."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, most)):
        value = changed_once(rng, value)
    return value


def changed_once(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key, way = rng.choice(list(value)), rng.random()
        if way < 0.6:
            return value | {key: changed_once(rng, value[key])}
        rest = {name: each for name, each in value.items() if name != key}
        if way < 0.75:
            return rest
        return (rest if way < 0.85 else value) | {rng.choice(["surprise", "", key.upper(), "a" * 300]): rng.choice(ODD)}
    if isinstance(value, list) and value and rng.random() < 0.6:
        i, way = rng.randrange(len(value)), rng.random()
        if way < 0.6:
            return [*value[:i], changed_once(rng, value[i]), *value[i + 1 :]]
        return value[:i] if way < 0.7 else value * rng.randint(2, 40) if way < 0.9 else [*value, rng.choice(ODD)]
    if isinstance(value, str) and rng.random() < 0.4:
        return "".join(chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) for _ in range(rng.randrange(400)))
    return [value] if rng.random() < 0.1 else rng.choice(ODD)


def asked(rng: random.Random) -> tuple[str, bytes]:
    """A request of any kind, changed."""
    others: list[tuple[str, Any]] = [("/v1/completions", STREAM), ("/api/trace", TRACED), ("/api/generate", LIVE)]
    path, wish = rng.choice([*ASKED, *others])
    text = json.dumps(changed(rng, wish), ensure_ascii=rng.random() < 0.7)
    body = bytearray(text.encode("utf-8", "surrogatepass"))
    if rng.random() < 0.1:
        for _ in range(rng.randint(1, 8)):
            body[rng.randrange(len(body))] = rng.randrange(256)
    return path, bytes(body)


def odd_query(rng: random.Random, place: str) -> str:
    """An address with some of its values replaced."""
    path, _, query = place.partition("?")
    fields = [field.partition("=")[::2] for field in query.split("&") if field]
    odd = [
        "",
        "-1",
        "999999999999999999999",
        "1e5",
        "%00",
        "%ff",
        "nan",
        "a" * 3000,
        "0:0",
        "::",
        "1,2,3,4,5,6,7,8,9",
        "[]",
    ]
    told = [(name, rng.choice(odd) if rng.random() < 0.4 else value) for name, value in fields if rng.random() < 0.95]
    return path + ("?" + "&".join(f"{name}={value}" for name, value in told) if told else "")


# ── how it behaves ──────────────────────────────────────────────────────────────────────────────────────────────────


def spelt(data: bytes) -> str:
    return data.decode("latin-1")


def leaving(rng: random.Random) -> Script:
    """Politely, at once, or after saying nothing for a while."""
    return [*([["wait", rng.uniform(0, 4)]] if rng.random() < 0.3 else []), [rng.choice(["close", "reset"])]]


def silent(rng: random.Random) -> Script:
    return [["wait", rng.uniform(0.1, 8)], *leaving(rng)]


def whole(rng: random.Random) -> Script:
    path, body = asked(rng)
    return [["send", spelt(chunked(rng, path, body) if rng.random() < 0.2 else post(path, body))], ["answers", 20]]


def cut(rng: random.Random) -> Script:
    path, body = asked(rng)
    data = post(path, body)
    return [["send", spelt(data[: rng.randrange(len(data))])], *leaving(rng)]


def cut_stream(rng: random.Random) -> Script:
    wish = STREAM | {"n": rng.choice([1, 1, 3]), "logprobs": rng.choice([None, 5])}
    path, body = rng.choice([("/v1/completions", wish), ("/api/generate", LIVE)])
    return [["send", spelt(post(path, json.dumps(body).encode()))], ["read", rng.randrange(1, 5000)], *leaving(rng)]


def unread(rng: random.Random) -> Script:
    """Asks for much, and does not read it."""
    large = [post("/v1/completions", json.dumps(STREAM | {"logprobs": 20, "n": 4}).encode())]
    large += [head("GET", place, []) for place in ("/openapi.json", "/page/main.js", "/metrics")]
    return [["send", spelt(rng.choice(large) * rng.randint(1, 5))], ["wait", rng.uniform(0, 5)], *leaving(rng)]


def garbage(rng: random.Random) -> Script:
    begin = rng.choice([b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n\r\n"])
    return [["send", spelt(begin + rng.randbytes(rng.randrange(4000)))], ["answers", 2], *leaving(rng)]


def headers(rng: random.Random) -> Script:
    names = [
        "X-Odd",
        "Origin",
        "Referer",
        "Cookie",
        "Authorization",
        "Content-Type",
        "Host",
        "Expect",
        "Upgrade",
        "Accept",
    ]
    names += ["Content-Length", "Transfer-Encoding", "Connection", "Sec-Fetch-Site", "If-None-Match", "Te"]
    values = [
        "a" * rng.choice([10, 40_000, 300_000]),
        "http://[::1",
        "\xff\xfe",
        "chunked",
        "5",
        "-1",
        "100-continue",
        "",
    ]
    values += [
        "websocket",
        "close, keep-alive",
        "multipart/form-data",
        "application/json; charset=\xff",
        "null",
        "Basic \xff",
    ]
    more = [f"{rng.choice(names)}{rng.choice([':', ': ', ' :'])}{rng.choice(values)}" for _ in range(rng.randint(1, 5))]
    more += ["X-Many: a"] * rng.choice([0, 0, 100, 5000])
    method = rng.choice(["GET", "POST", "HEAD", "OPTIONS", "CONNECT", "DELETE", "TRACE", "a" * 100])
    path, body = asked(rng)
    return [["send", spelt(head(method, rng.choice([path, *PLACES]), more) + body)], ["answers", 3], *leaving(rng)]


def pipelined(rng: random.Random) -> Script:
    """Requests one behind the other, before any has been answered."""
    data = b""
    for _ in range(rng.randint(2, 12)):
        data += post(*asked(rng)) if rng.random() < 0.4 else head("GET", odd_query(rng, rng.choice(PLACES)), [])
    return [["send", spelt(data)], ["answers", 20], *leaving(rng)]


def slow(rng: random.Random) -> Script:
    data = post(*asked(rng))
    steps: Script = []
    for i in range(min(30, len(data))):
        steps += [["send", spelt(data[i : i + 1])], ["wait", rng.uniform(0, 0.1)]]
    return [*steps, *leaving(rng)]


def looking(rng: random.Random) -> Script:
    """What the page does, with odd values."""
    steps: Script = [["send", spelt(post("/api/trace", json.dumps(TRACED).encode()))], ["answers", 20]]
    for _ in range(rng.randint(1, 6)):
        place = rng.choice(LOOKS)
        steps += [
            ["send", spelt(head("GET", odd_query(rng, place) if rng.random() < 0.7 else place, []))],
            ["answers", 20],
        ]
    fork = json.dumps(changed(rng, {"edits": TRACED["edits"]})).encode()
    sheet = json.dumps(changed(rng, {"trace": "TRACE", "seed": 1, "students": 2}, 1)).encode()
    more = rng.choice([post("/api/trace/TRACE/fork", fork), post("/api/worksheet", sheet)])
    return [*steps, ["send", spelt(more)], ["answers", 20], *leaving(rng)]


KINDS: dict[Callable[[random.Random], Script], int] = {
    silent: 2,
    whole: 10,
    cut: 4,
    cut_stream: 4,
    unread: 2,
    garbage: 3,
}
KINDS |= {headers: 4, pipelined: 3, slow: 1, looking: 3}


def made(rng: random.Random) -> Script:
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    return kind(rng)


# ── performing it ───────────────────────────────────────────────────────────────────────────────────────────────────

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
NAMED = re.compile(rb'"trace":"([\w-]+)"')


async def perform(script: Script, host: str, port: int) -> list[int]:
    """The statuses that were read. Whatever the connection comes to is its client's fault, and no error here."""
    received, trace = b"", b"none"
    with suppress(OSError):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            for what, *given in script:
                if what == "send":
                    data: bytes = given[0].encode("latin-1")
                    if b"TRACE" in data and not data.startswith(b"TRACE "):
                        data = with_length(data.replace(b"TRACE", trace))
                    writer.write(data)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(writer.drain(), 5)
                elif what == "wait":
                    await asyncio.sleep(given[0])
                elif what == "read":
                    with suppress(TimeoutError):
                        received += await asyncio.wait_for(reader.read(given[0]), 20)
                elif what == "answers":
                    received += await whatever_comes(reader, given[0])
                    trace = next(iter(NAMED.findall(received)[-1:]), trace)
                elif what == "reset":
                    door = writer.get_extra_info("socket")
                    door.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        finally:
            writer.close()
    return [int(status) for status in STATUS.findall(received)]


def with_length(request: bytes) -> bytes:
    """What stood for an id was not as long as it is."""
    begin, blank, body = request.partition(b"\r\n\r\n")
    return re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), begin) + blank + body


async def whatever_comes(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """Until nothing has come for a moment after something came, or it is closed."""
    received, end = b"", asyncio.get_running_loop().time() + seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        try:
            part = await asyncio.wait_for(reader.read(1 << 16), min(left, 0.3) if received else left)
        except TimeoutError:
            break
        if not part:
            break
        received += part
    return received
