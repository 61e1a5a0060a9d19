"""Names, tokens, labels and addresses are only ever text; nothing leaves the machine; nothing inline runs."""

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route, expect

from browser import STAGES, Screen

MARKUP, SCRIPT, TURNED = "<img src=x onerror=hacked=1>", '"><script>hacked=1', "\u202eevil\u2066<b>"
STRANGE = [
    MARKUP,
    "<script>hacked=1</script>",
    "\"'><svg onload=hacked=1>",
    "{{7*7}}${hacked=1}`javascript:hacked=1`",
    "&lt;b&gt;&#60;i&#62;",
    TURNED,
]


def harmless(page: Page) -> None:
    """No element came from a name, and nothing that it says has run."""
    assert page.evaluate("() => typeof hacked") == "undefined"
    found = page.evaluate(
        """() => [...document.querySelectorAll('*')]
            .filter((e) => e.matches('img, iframe, object, embed, script:not([type])')
              || e.getAttributeNames().some((name) => name.startsWith('on'))
              || /^\\s*javascript:/i.test(e.getAttribute('href')))
            .map((e) => e.outerHTML)"""
    )
    assert found == []
    assert page.locator("script").count() == 2  # the import map and the page itself


@pytest.mark.parametrize("text", STRANGE)
def test_typed_text_stays_text(screen: Screen, text: str) -> None:
    page = screen.visit(model="toy-gpt", text="One day the cat", stage="tokens")
    page.fill("#text", text)
    page.press("#text", "Enter")
    expect(page.locator("#text")).to_have_value(text)
    page.wait_for_function(
        "t => document.title && new URLSearchParams(location.hash.slice(1)).get('text') === t", arg=text
    )
    page.wait_for_function("n => document.querySelectorAll('.card').length !== n", arg=5)
    harmless(page)


def test_a_model_whose_tokens_are_markup(screen: Screen) -> None:
    """On every stage, in the drawer, as an edit, compared and generated from."""
    name = f"{SCRIPT}{TURNED}"
    page = screen.visit(model=name, text=f"One {MARKUP} the", stage="tokens", token=2)
    expect(page.locator(".card-piece").nth(2)).to_have_text(MARKUP.replace(" ", "·"))
    for digit, stage in enumerate(STAGES, 1):
        screen.press(str(digit))
        screen.drawn(stage)
        harmless(page)
    screen.visit(
        model=name, text=f"One {MARKUP}", against=f"Two {MARKUP}", edits={"token.0": "zero"}, key=1, fresh=2,
        node="decoder.0.attention.weights", index=[0, 2, 2],
    )  # fmt: skip
    screen.explained()
    expect(page.locator(".chip", has_text=MARKUP)).to_be_visible()
    page.get_by_role("button", name="Edit…").click()
    harmless(page)


def test_a_model_whose_name_and_labels_are_markup(screen: Screen) -> None:
    page = screen.visit(model=MARKUP, text="The actors were wonderful.", stage="output")
    assert set(page.locator(".bars.labels .bars-name").all_inner_texts()) == {MARKUP, SCRIPT, TURNED}
    expect(page.locator(".map-title")).to_have_text(MARKUP)
    assert page.title().startswith(MARKUP)
    harmless(page)
    page.hover(".bars.labels .bars-name >> nth=0")
    page.locator("#stage a.number").first.click()
    screen.explained()
    harmless(page)


def test_a_run_whose_name_and_probes_are_markup(screen: Screen) -> None:
    page = screen.visit(
        model="toy-gpt", text="One day", stage="training", run=f"{MARKUP}{TURNED}", view="1.decoder.0.cross.weights"
    )
    expect(page.get_by_role("combobox", name="run")).to_have_value(f"{MARKUP}{TURNED}")
    assert MARKUP in page.get_by_role("combobox", name="probe").inner_text()
    harmless(page)


@pytest.mark.parametrize(
    "state",
    [
        {"model": MARKUP + SCRIPT},
        {"model": "toy-gpt", "text": "One", "edits": {f"{MARKUP}": f"{SCRIPT}"}},
        {"model": "toy-gpt", "text": "One", "node": MARKUP, "index": [1, 2]},
        {
            "model": "toy-gpt",
            "text": "One",
            "stage": MARKUP,
            "site": MARKUP,
            "view": MARKUP,
            "lesson": MARKUP,
            "page": 3,
        },
        {"model": "toy-gpt", "text": "One", "trail": [[MARKUP, [1]]], "node": "embed.out", "index": [0, 1]},
        {"model": "toy-gpt", "text": "One", "head": 99, "token": -5, "key": 10**9, "seed": "x", "fresh": "y"},
        {"model": "toy-gpt", "text": "One", "trail": [1], "node": "embed.out", "index": [0, 1]},
        {"model": "toy-gpt", "text": "One", "edits": [1], "index": {"a": 1}, "mode": "zzz", "step": 1e99},
    ],
    ids=lambda state: "-".join(state),
)
def test_a_link_from_a_stranger(screen: Screen, state: dict) -> None:
    """Whatever an address says, there is a page or a sentence, and nothing of it runs."""
    words = "&".join(f"{key}={quote(v if isinstance(v, str) else json.dumps(v))}" for key, v in state.items())
    screen.page.goto(f"{screen.address}#{words}")
    screen.page.wait_for_selector(".panel:not([data-coming]), .scene[data-shown]:not([aria-busy]), .narration .error")
    screen.page.wait_for_selector("#drawer:not([data-waiting])", state="attached")
    harmless(screen.page)
    for each in screen.wrong:
        assert re.search(r"\b40[04]\b", each)  # refusals of the server, and what the browser says of them
    screen.wrong.clear()


def test_nothing_leaves_the_machine(screen: Screen) -> None:
    """Every request is held up and looked at before it may go."""
    asked: list[str] = []

    def look(route: Route) -> None:
        asked.append(route.request.url)
        if route.request.url.startswith(screen.address):
            route.continue_()
        else:
            route.abort()

    screen.page.route("**/*", look)
    screen.visit(model="toy-translate", text="the European Economic Area")
    for stage in ("tokens", "heads", "output", "lessons"):
        screen.press(str(STAGES.index(stage) + 1))
        screen.drawn(stage)
    assert len(asked) > 30
    assert [url for url in asked if not url.startswith(screen.address)] == []


def test_the_policy_is_in_force(screen: Screen) -> None:
    """Were markup ever to get in, it could not run, load or send anything."""
    page = screen.visit(model="toy-gpt", text="One day")
    page.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'window.hacked = 1';
          document.body.append(script);
          const holder = document.createElement('div');
          holder.innerHTML = '<img src="x" onerror="window.hacked = 2"><a id="bad" href="javascript:window.hacked=3">x</a>';
          document.body.append(holder);
          document.getElementById('bad').click();
          const far = document.createElement('script');
          far.src = 'http://192.0.2.1/x.js';
          document.body.append(far);
          setTimeout('window.hacked = 4');
        }"""
    )
    sent = page.evaluate("() => fetch('http://192.0.2.1/').then(() => 'sent', () => 'refused')")
    assert sent == "refused"
    assert page.evaluate("() => typeof hacked") == "undefined"
    assert [each.split()[0] for each in screen.wrong if each.endswith("/x.js")] == ["csp"]  # why it was not asked for
    screen.hosts.discard("192.0.2.1")
    assert len([each for each in screen.wrong if "Content Security Policy" in each]) >= 4
    screen.wrong.clear()
