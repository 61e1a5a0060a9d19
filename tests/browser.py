"""The page as a person has it before them: addresses to go to, what the screen shows, and a watch on what goes wrong."""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Dialog, Locator, Page, Request, Response, expect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
STAGES = ["tokens", "attention", "heads", "mlp", "residual", "output", "training", "lessons"]
SLOW = 90_000  # milliseconds: the machine may be busy
expect.set_options(timeout=SLOW)


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=20)


def number(text: str) -> float:
    """Digits as the page writes them."""
    return float(text.replace("−", "-"))


SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def figure(text: str) -> float:
    """A number as the page writes it: a true minus, a plus before a change, powers of ten raised."""
    mantissa, _, power = text.replace("−", "-").partition("·10")
    return float(mantissa) * 10.0 ** int(power.translate(SUPERSCRIPTS) or 0)


def figures(place: Locator) -> list[float]:
    return [figure(text) for text in place.all_inner_texts()]


class Screen:
    """A tab of the browser. Whatever goes wrong in it is kept in `wrong`, every host that it asks for in `hosts`."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.wrong: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(SLOW)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on("dialog", self._interrupted)
        page.on("request", self._asked)
        page.on("response", self._answered)
        page.on("requestfailed", self._failed)

    def _interrupted(self, dialog: Dialog) -> None:
        self.wrong.append(dialog.message)
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("about:", "data:", "blob:")):
            self.hosts.add(urlsplit(request.url).netloc)

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status} {response.url}")

    def _failed(self, request: Request) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # leaving a page ends what it was waiting for
            self.wrong.append(f"{request.failure} {request.url}")

    # ── going somewhere ─────────────────────────────────────────────────────────────────────────────────────────────

    def visit(self, **state: Any) -> Page:
        """The page at that state, freshly opened and drawn: the table of the attention, unless a stage is named."""
        state = {"stage": "attention"} | state
        words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in state.items()}
        self.open(f"{self.address}#" + "&".join(f"{key}={quote(value)}" for key, value in words.items()))
        return self.page

    def scene(self, **state: Any) -> Page:
        """The scene at that state, freshly opened and drawn."""
        words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in state.items()}
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#" + "&".join(f"{key}={quote(value)}" for key, value in words.items()))
        self.page.wait_for_selector(".scene[data-shown]:not([aria-busy])")
        return self.page

    def open(self, url: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(url)
        self.drawn()

    def drawn(self, stage: str = "") -> None:
        """Wait until a stage is on the screen, and everything it asked for has come."""
        self.page.wait_for_selector(f"{f'#panel-{stage}' if stage else '.panel'}:not([data-coming])")
        self.page.wait_for_selector("#stage:not([aria-busy]):not(:has(.sentence.busy))")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> dict[str, Any]:
        """What the address says, where it differs from the usual."""
        said = dict(parse_qsl(urlsplit(self.page.url).fragment))
        return {key: json.loads(value) if value[:1] in "[{" else value for key, value in said.items()}

    def explained(self) -> tuple[str, tuple[int, ...]]:
        """Which number the drawer takes apart."""
        self.page.wait_for_selector("#drawer:not([data-waiting]) .check")
        return self.state["node"], tuple(self.state["index"])

    def captured(self) -> float:
        return number(self.page.inner_text(".check dd >> nth=0"))

    def wait_captured(self, value: float) -> None:
        """Until the drawer shows this number, to seven digits."""
        self.page.wait_for_function(
            """v => { const dd = document.querySelector('.check dd');
                      return dd && Math.abs(Number(dd.textContent.replace('−', '-')) - v) <= 1e-6 * Math.abs(v) + 1e-9 }""",
            arg=value,
        )

    def errors(self) -> list[str]:
        """Sentences on the screen that say that something went wrong."""
        return self.page.locator(".sentence.error").all_inner_texts()

    def tokens(self) -> list[str]:
        return self.page.locator("#stage .tokens .token").all_inner_texts()
