"""Fixtures of the page's tests: the stage's scripts in node, a browser, and a served page with fake runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specviz.ui.bundle import stage_css, stage_script
from tests.ui.fake_runs import FakeRun, story

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NODE_PROGRAM = """
const { script, body, data } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const SpecViz = new Function(`${script}; return SpecViz;`)();
const result = new Function("SpecViz", "data", body)(SpecViz, data);
Promise.resolve(result).then((value) => process.stdout.write(JSON.stringify(value === undefined ? null : value)));
"""


@pytest.fixture(scope="session")
def in_node() -> Callable[..., Any]:
    """in_node(body, data): runs a function body over `SpecViz` and `data` in node, without any DOM."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: the same scripts are tested in Chromium.")

    def run(body: str, data: Any = None) -> Any:
        given = json.dumps({"script": stage_script(), "body": body, "data": data})
        done = subprocess.run(
            [node, "-e", NODE_PROGRAM], input=given, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def browser(chromium_path: str) -> Iterator[Any]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()


class Watcher:
    """What a page must not do: complain in the console, throw, or ask another host for anything."""

    def __init__(self, page: Any) -> None:
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._note(request.url))

    def _hear(self, message: Any) -> None:
        is_the_parents_icon = message.location["url"].endswith("/favicon.ico")  # a browser asks the host, not us
        if message.type in ("error", "warning") and not is_the_parents_icon:
            self.complaints.append(message.text)

    def _note(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "data:", "blob:", "about:", "file:")):
            self.foreign.append(url)

    def assert_clean(self) -> None:
        assert self.complaints == []
        assert self.foreign == []


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """open_page(**context options): a new page in a context of its own, watched to the end of the test."""
    contexts, watchers = [], []

    def open_(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        watchers.append(Watcher(page))
        return page

    yield open_
    for context in contexts:
        context.close()
    for watcher in watchers:
        watcher.assert_clean()


@pytest.fixture
def open_stage(open_page: Callable[..., Any]) -> Callable[..., Any]:
    """open_stage(events, kind): the stage alone, as an exported page has it, without a server."""

    def open_(events: list[dict[str, Any]], kind: str = "recording", **options: Any) -> Any:
        page = open_page(**options)
        page.set_content("<!doctype html><meta charset=utf-8><body><div id=root></div>")
        page.add_script_tag(content=stage_script() + "; window.SpecViz = SpecViz;")
        page.evaluate(
            """([css, events, kind]) => {
                window.stage = SpecViz.createStage(document.getElementById("root"), { css });
                stage.begin(kind);
                stage.take(events);
                if (kind === "recording") stage.end();
            }""",
            [stage_css(), events, kind],
        )
        return page

    return open_


class ServedPage:
    """A page with fake runs: `runs` are those it made, `script` decides what the next one does."""

    def __init__(self) -> None:
        self.runs: list[FakeRun] = []
        self.requests: list[Any] = []
        self.script: Callable[[Any], FakeRun] = lambda request: FakeRun(story(12, request.prompt, request.settings))
        self.url = ""

    def make_run(self, request: Any, notify: Callable[[str], None]) -> FakeRun:
        notify("Loading the fake model")
        run = self.script(request)
        self.requests.append(request)
        self.runs.append(run)
        return run


@pytest.fixture(scope="session")
def fake_recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one recorded run of the fake kind."""
    folder = tmp_path_factory.mktemp("recordings")
    lines = [json.dumps(event) for event in story(8, "A recorded question")]
    (folder / "first.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def _server(fake_recordings: Path) -> Iterator[ServedPage]:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    from specviz.ui.page import build_demo, launch_options

    served = ServedPage()
    demo = build_demo(served.make_run, fake_recordings)
    _, served.url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    yield served
    demo.close()


@pytest.fixture
def served(_server: ServedPage) -> ServedPage:
    """The served page, with its script as at the beginning."""
    fresh = ServedPage()
    _server.runs, _server.requests, _server.script = fresh.runs, fresh.requests, fresh.script
    return _server


def wait_for_stage(page: Any, **state: Any) -> None:
    """Waits until the stage says so: wait_for_stage(page, source="live", phase="done")."""
    page.wait_for_function(
        """(wanted) => {
            const stage = document.querySelector(".sv-stage");
            return stage && Object.entries(wanted).every(([key, value]) => stage.dataset[key] === String(value));
        }""",
        arg=state,
    )
