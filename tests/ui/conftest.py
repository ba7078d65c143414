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

from specviz.ui.bundle import board_css, board_script, stage_css, stage_script
from tests.ui.exit_traces import exit_part, write_recorded
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
    """in_node(body, data): runs a function body over the stage's `SpecViz` and `data` in node, without any DOM."""
    return _node_with(stage_script())


@pytest.fixture(scope="session")
def in_board_node() -> Callable[..., Any]:
    """As `in_node`, with the scripts of the Early exit tab's board."""
    return _node_with(board_script())


def _node_with(script: str) -> Callable[..., Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: the same scripts are tested in Chromium.")

    def run(body: str, data: Any = None) -> Any:
        given = json.dumps({"script": script, "body": body, "data": data})
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


@pytest.fixture
def open_board(open_page: Callable[..., Any]) -> Callable[..., Any]:
    """open_board(events, kind): the board of the Early exit tab alone, without a server; `events` with their marks."""

    def open_(events: list[dict[str, Any]], kind: str = "recording", **options: Any) -> Any:
        page = open_page(**options)
        page.set_content("<!doctype html><meta charset=utf-8><body><div id=root></div>")
        page.add_script_tag(content=board_script() + "; window.SpecViz = SpecViz;")
        page.evaluate(
            """([css, events, kind]) => {
                window.asked = [];
                window.board = SpecViz.createBoard(document.getElementById("root"), { css, run: (request) => asked.push(request) });
                board.begin(kind);
                board.take(events);
                if (kind === "recording") board.end();
            }""",
            [board_css(), events, kind],
        )
        return page

    return open_


class ServedPage:
    """A page with fake runs: `runs` are those it made, `script` decides what the next one does.

    The Early exit tab has its own: `exit_requests` are (request, role) of each run, `exit_script` makes them.
    """

    def __init__(self) -> None:
        self.runs: list[FakeRun] = []
        self.requests: list[Any] = []
        self.script: Callable[[Any], FakeRun] = lambda request: FakeRun(story(12, request.prompt, request.settings))
        self.exit_requests: list[tuple[Any, str]] = []
        self.exit_script: Callable[[Any, str], FakeRun] = lambda request, role: FakeRun(exit_part(request, role))
        self.url = ""

    def make_exit_part(self, request: Any, role: str, notify: Callable[[str], None]) -> FakeRun:
        self.exit_requests.append((request, role))
        run = self.exit_script(request, role)
        self.runs.append(run)
        return run

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
def recorded_series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded series of hand-made early-exit runs."""
    folder = tmp_path_factory.mktemp("recorded")
    write_recorded(folder)
    return folder


@pytest.fixture(scope="session")
def _server(fake_recordings: Path, recorded_series: Path) -> Iterator[ServedPage]:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    from specviz.ui.page import build_demo, launch_options

    served = ServedPage()
    demo = build_demo(
        served.make_run, fake_recordings, exit_run_factory=served.make_exit_part, recorded_dir=recorded_series
    )
    _, served.url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    yield served
    demo.close()


@pytest.fixture
def served(_server: ServedPage) -> ServedPage:
    """The served page, with its script as at the beginning."""
    fresh = ServedPage()
    _server.runs, _server.requests, _server.script = fresh.runs, fresh.requests, fresh.script
    _server.exit_requests, _server.exit_script = fresh.exit_requests, fresh.exit_script
    return _server


def wait_for_board(page: Any, **state: Any) -> None:
    """Waits until the board says so: wait_for_board(page, phase="done", timed=2)."""
    _wait_for(page, ".sv-board", state)


def wait_for_stage(page: Any, **state: Any) -> None:
    """Waits until the stage says so: wait_for_stage(page, source="live", phase="done")."""
    _wait_for(page, ".sv-stage", state)


def _wait_for(page: Any, selector: str, state: dict[str, Any]) -> None:
    page.wait_for_function(
        """([selector, wanted]) => {
            const node = document.querySelector(selector);
            return node && Object.entries(wanted).every(([key, value]) => node.dataset[key] === String(value));
        }""",
        arg=[selector, state],
    )
