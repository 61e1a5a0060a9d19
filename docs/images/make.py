"""The pictures of the documents: every stage of the page, light and dark, and one on a telephone.

In: the bundled toy models and a small translator that is trained here while its attention is kept. Out: PNG files beside
this one, the same each time on one machine. `make pictures` runs it.
"""

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from toytext import translate

from regard.api import train_settings, train_with
from regard.page.training_frames import TrainingRuns
from regard.serve.app import make_app
from regard.serve.model_registry import ModelRegistry

HERE = Path(__file__).parent
SCREEN, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
COLOURS = 96  # of a picture's palette
SLOW = 120_000  # milliseconds

AREA = {"model": "toy-translate", "text": "the European Economic Area"}
KING = {"model": "toy-gpt", "text": "The old king and the old woman"}
REVIEW = {"text": "The movie had amazing visuals, but the story was quite boring."}
CROSS = {"site": "decoder.1.cross", "head": 2}
HEAD = {"site": "decoder.2.attention", "head": 1, "token": 6, "key": 3}  # in which the second "old" looks at "king"

LIGHT: dict[str, dict[str, Any]] = {
    "tokens": KING | {"token": 2},
    "attention": KING | HEAD | {"node": "decoder.2.attention.weights", "index": [1, 6, 3]},
    "heads": AREA | CROSS | {"view": "lines.weight.0+1+2+3"},
    "mlp": KING | {"site": "decoder.1.attention", "token": 2, "view": "act"},
    "residual": KING | {"site": "decoder.1.attention", "token": 6},
    "output": KING | {"temperature": 0.8, "top_k": 40, "seed": 7, "fresh": 12, "token": 6},
    "training": AREA | {"run": "fr", "head": 3},
    "lessons": KING | {"lesson": "gradient-flow", "page": 1},
}
DARK: dict[str, dict[str, Any]] = {
    "tokens": AREA | {"token": 1},
    "attention": KING | HEAD | {"mode": "delta", "edits": {"decoder.2.attention.scaling": "off"}},
    "heads": KING | {"view": "grid.ablation", "token": 6},
    "mlp": REVIEW | {"model": "toy-bert", "site": "encoder.1.attention", "token": 4},
    "residual": AREA | {"site": "decoder.1.attention", "token": 2},
    "output": REVIEW | {"model": "toy-bert-sentiment"},
    "training": AREA | {"run": "fr", "head": 3, "step": 200},
    "lessons": KING | {"lesson": "three-inputs", "page": 5},
}
SMALL = KING | HEAD


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, served(trained(Path(folder))) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for theme, states in (("light", LIGHT), ("dark", DARK)):
            for stage, state in states.items():
                picture(browser, address, f"{stage}-{theme}", theme, {"stage": stage} | state)
        picture(browser, address, "phone", "light", SMALL, PHONE)
        browser.close()


def chromium() -> str:
    found = [place for name in ("chromium", "chromium-browser", "google-chrome") if (place := shutil.which(name))]
    if not found:
        raise SystemExit("Pictures are taken in Chromium, and there is none: make browser installs it.")
    return found[0]


def trained(folder: Path) -> Path:
    """English to French for a minute or two, with the lectures' sentence as a probe."""
    translate.write(folder / "pairs.tsv", 6000, 0, "train")
    size = {"layers": 1, "width": 64, "heads": 4, "vocab_size": 800, "dropout": 0.0, "threads": 1}
    length = {"max_steps": 1000, "batch_size": 64, "warmup_steps": 100, "eval_steps": 100, "learning_rate": 3e-3}
    probes = {"probes": ["the European Economic Area\tla zone économique européenne"], "probe_steps": 50}
    given = size | length | probes | {"data": [str(folder / "pairs.tsv")], "out": str(folder / "fr")}
    return train_with(train_settings("translate", None, given))


@contextmanager
def served(run: Path) -> Iterator[str]:
    server = uvicorn.Server(
        uvicorn.Config(make_app(ModelRegistry(), runs=TrainingRuns([run])), port=0, log_level="error")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=20)


def picture(
    browser: Browser, address: str, name: str, theme: str, state: dict[str, Any], size: dict[str, int] = SCREEN
) -> None:
    page = browser.new_page(viewport=size, color_scheme=theme, reduced_motion="reduce", device_scale_factor=1)
    page.set_default_timeout(SLOW)
    words = {key: value if isinstance(value, str) else json.dumps(value) for key, value in state.items()}
    page.goto(address + "#" + "&".join(f"{key}={quote(value)}" for key, value in words.items()))
    settled(page)
    small(page.screenshot(animations="disabled"), HERE / f"{name}.png")
    page.close()


def settled(page: Page) -> None:
    """Until all that was asked for has come and been drawn."""
    page.wait_for_selector(".panel:not([data-coming])")
    page.wait_for_selector("#stage:not([aria-busy]):not(:has(.sentence.busy))")
    page.wait_for_selector("#drawer:not([data-waiting])", state="attached")  # on a telephone it hides
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)  # canvases are painted in the next frames


def small(screenshot: bytes, path: Path) -> None:
    """Text and flat colours need few colours: a third of the bytes."""
    image = Image.open(BytesIO(screenshot)).convert("RGB")
    image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
