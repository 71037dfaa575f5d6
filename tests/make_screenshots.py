"""Screenshots for the README, taken from the real app: `python tests/make_screenshots.py`.

Needs Chromium and playwright; writes tests/data/screenshots/*.png.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import sync_playwright

from tests.browser.conftest import FLAGS, Visit, chromium
from tests.servers import running

TARGET = Path(__file__).resolve().parent / "data" / "screenshots"
WAIT_MS = 1500

SHOTS = (
    ("plan-light", "/?model=llama-3.1-70b&tp=2&weights=fp8_per_tensor&kv=fp8&ctx=16k&batch=20", "light", (1280, 1000)),
    ("plan-dark", "/?model=gemma-3-27b&ctx=64k&batch=2", "dark", (1280, 1000)),
    ("plan-phone", "/?model=llama-3.1-8b&gpu=rtx-4090-24gb&batch=2", "light", (390, 844)),
    ("sweep-fits", "/sweep?model=llama-3.1-8b", "light", (1280, 900)),
    ("sweep-crossover", "/sweep?q=When+does+the+cache+pass+the+weights%3F", "dark", (1280, 900)),
    ("sweep-gpus", "/sweep?q=Which+GPU%3F&model=qwen3-30b-a3b&ctx=64k", "light", (1280, 1000)),
    ("models", "/models?compare=gemma-3-27b&compare=deepseek-v3", "light", (1280, 1100)),
    ("lab", "/lab", "light", (1280, 900)),
)
"""(name, address, colour scheme, size) of every picture."""


def take(visitor, name):
    visitor.page.wait_for_timeout(WAIT_MS)
    visitor.page.screenshot(path=str(TARGET / f"{name}.png"))


def main():
    TARGET.mkdir(parents=True, exist_ok=True)
    log = TARGET / "server.log"
    with running("app.py", log=log) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for name, path, scheme, (width, height) in SHOTS:
            visitor = Visit(server, browser, color_scheme=scheme, viewport={"width": width, "height": height})
            take(visitor.open(path), name)
            visitor.close()
        browser.close()
    log.unlink()


if __name__ == "__main__":
    main()
