"""The Early exit tab before a model is asked: its requests, its series of runs, its handlers, its page as a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from specviz.early_exit.exit_settings import EXIT_MEASURES
from specviz.errors import BadRequest
from specviz.presets import find_pair
from specviz.trace.reader import read_trace
from specviz.ui.bundle import (
    BOARD_BASE,
    BOARD_DIR,
    BOARD_SCRIPTS,
    STAGE_SCRIPTS,
    board_css,
    board_gradio_host_script,
    board_script,
)
from specviz.ui.exit_handlers import ExitHandlers
from specviz.ui.exit_page import export_exit_page
from specviz.ui.exit_request import exit_request_from
from specviz.ui.exit_series import RunSeries
from specviz.ui.live_run import RunRegistry
from specviz.ui.page import build_demo
from specviz.ui.recorded_series import RECORDED_DIR, recorded_events
from tests.ui.exit_traces import exit_part, map_run, part_of
from tests.ui.fake_runs import FakeRun

GOOD = {
    "series": "pair", "pair": "embedded", "prompt": "Hello", "heads": "auto", "measure": "top1", "threshold": 0.6, "min_layer": None,
    "max_new_tokens": 20.0, "temperature": 0, "seed": 3.0, "self_layer": 18,
}  # fmt: skip
SESSION = SimpleNamespace(session_hash="s1")


def handlers(
    factory: Any = lambda request, role, notify: FakeRun(exit_part(request, role)), **how: Any
) -> ExitHandlers:
    return ExitHandlers(factory, RunRegistry(), **how)


def parsed(text: str) -> tuple[dict, list[dict]]:
    header, *lines = text.split("\n")
    return json.loads(header), [json.loads(line) for line in lines]


# ---- requests ----


def test_what_is_asked_for_becomes_a_request():
    request = exit_request_from({**GOOD, "min_layer": 14, "threshold": None, "raw": True, "system": " Be brief. "})
    assert (request.settings.max_new_tokens, request.settings.seed, request.raw, request.system) == (
        20,
        3,
        True,
        "Be brief.",
    )
    assert (request.exits.threshold, request.exits.min_layer) == ("never", 14)
    assert request.roles == ("map", "timed")
    assert request.exits_of("map").min_layer is None
    assert request.exits_of("timed").min_layer == 14


def test_each_run_of_a_series_has_its_own_drafter():
    request = exit_request_from({**GOOD, "series": "beside", "heads": "plain"})
    drafters = {role: request.settings_of(role) for role in request.roles}
    assert {role: settings.drafter for role, settings in drafters.items()} == {
        "plain": "none",
        "early_exit": "none",
        "self_speculation": "early_exit",
        "drafted": request.drafter,
    }
    own = drafters["self_speculation"]
    assert (own.exit_layer, own.exit_heads, own.temperature) == (18, "plain", 0)
    assert request.drafter in find_pair("embedded").drafters and request.drafter != "early_exit"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"series": "all"}, "The series is 'all'"),
        ({"series": ["pair"]}, "The series is"),
        ({"pair": "no such pair"}, "no such pair"),
        ({"pair": None}, "The models are None"),
        ({"prompt": "  "}, "empty"),
        ({"prompt": "x" * 30_000}, "30000 characters"),
        ({"prompt": 5}, "empty"),
        ({"system": 5}, "characters"),
        ({"heads": "golden"}, "golden"),
        ({"measure": "luck"}, "luck"),
        ({"measure": ["top1"]}, "top1"),
        ({"threshold": 1.5}, "1.5"),
        ({"threshold": "0.5"}, "0.5"),
        ({"threshold": float("nan")}, "nan"),
        ({"min_layer": 0}, "The minimum layer is 0"),
        ({"min_layer": 2.5}, "The minimum layer is 2.5"),
        ({"self_layer": -1}, "self-speculation is -1"),
        ({"max_new_tokens": 100_000}, "New tokens is 100000"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": None}, "The seed is empty"),
        ({"top_p": 0}, "top_p"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_sentence(change: dict[str, Any], words: str):
    with pytest.raises(BadRequest, match=re.escape(words)):
        exit_request_from({**GOOD, **change})


@pytest.mark.parametrize("nothing", [None, [], "pair", 3])
def test_nothing_is_no_request(nothing: Any):
    with pytest.raises(BadRequest):
        exit_request_from(nothing)


# ---- series ----


def test_a_series_is_its_runs_with_marks_between():
    run = RunSeries("pair", ["map", "timed"], "embedded", lambda number, role: FakeRun(part_of(role, 4)))
    marks = [(event.get("name") or event.get("role")) for event in run if event["type"] in ("series", "part")]
    assert marks == ["pair", "map", "timed"]


@pytest.mark.parametrize("measure", EXIT_MEASURES)
def test_each_run_of_a_sweep_has_a_threshold_of_its_own(measure: str):
    request = exit_request_from({**GOOD, "series": "sweep", "measure": measure})
    asked = [request.at(number).exits for number in range(len(request.roles))]
    thresholds = [exits.threshold for exits in asked]
    assert len(set(thresholds)) == 4 and thresholds == sorted(thresholds)
    assert {exits.measure for exits in asked} == {measure}


def test_every_run_of_another_series_is_as_it_was_asked_for():
    request = exit_request_from(GOOD)
    assert all(request.at(number) is request for number in range(len(request.roles)))


def test_a_sweep_opens_its_runs_by_their_numbers():
    opened = []

    def open_part(number: int, role: str) -> FakeRun:
        opened.append((number, role))
        return FakeRun(part_of(role, 3))

    list(RunSeries("sweep", ["sweep", "sweep"], "embedded", open_part))
    assert opened == [(0, "sweep"), (1, "sweep")]


def test_a_run_that_cannot_begin_does_not_keep_the_others_from_running():
    def open_part(number: int, role: str) -> FakeRun:
        if role == "early_exit":
            raise BadRequest("There are no such heads: choose others.")
        return FakeRun(part_of(role, 4))

    events = list(RunSeries("beside", ["plain", "early_exit", "drafted"], "embedded", open_part))
    failed = [event for event in events if event["type"] == "run_failed"]
    assert [event["error"] for event in failed] == ["There are no such heads: choose others."]
    assert sum(event["type"] == "run_finished" for event in events) == 2


def test_a_stopped_series_ends_with_its_run():
    run = RunSeries("pair", ["map", "timed"], "embedded", lambda number, role: FakeRun(part_of(role, 30)))
    events = []
    for event in run:
        events.append(event)
        if event["type"] == "round" and event["round"] == 3:
            run.cancel()
    assert [event["role"] for event in events if event["type"] == "part"] == ["map"]
    assert events[-1]["reason"] == "cancelled"


def test_stopped_before_its_first_run_it_runs_none():
    run = RunSeries("pair", ["map", "timed"], "embedded", lambda number, role: pytest.fail("opened"))
    run.cancel()
    assert [event["type"] for event in run] == ["series"]


# ---- handlers ----


def test_a_series_comes_as_messages():
    messages = list(handlers().run(GOOD, SESSION))
    events = [event for text in messages for event in parsed(text)[1]]
    assert parsed(messages[-1])[0]["done"] == 1
    assert sum(event["type"] == "run_finished" for event in events) == 2


def test_a_bad_request_is_one_sentence_and_runs_nothing():
    (text,) = handlers(lambda *given: pytest.fail("ran")).run({**GOOD, "prompt": ""}, SESSION)
    header, events = parsed(text)
    assert header["error"].startswith("The prompt is empty")
    assert (header["done"], events) == (1, [])


def test_the_recorded_series_is_one_message(recorded_series: Path):
    header, events = parsed(handlers(recorded_dir=recorded_series).recorded())
    assert (header["source"], header["done"]) == ("recording", 1)
    assert [event["roles"] for event in events if event["type"] == "series"] == [
        ["map", "timed"],
        ["plain", "early_exit", "self_speculation", "drafted"],
    ]


def test_without_recorded_runs_there_is_no_message(tmp_path: Path):
    assert handlers(recorded_dir=tmp_path).recorded() == ""


def test_the_shipped_series_is_of_a_real_model_and_small():
    events = recorded_events()
    roles = [event["role"] for event in events if event["type"] == "part"]
    beside = ["plain", "early_exit", "self_speculation", "drafted"]
    assert roles == ["map", "timed", *["sweep"] * 4, *beside]
    for path in RECORDED_DIR.glob("*.jsonl"):
        started = read_trace(path)[0]
        assert started["target"]["num_params"] > 10**8
    assert sum(path.stat().st_size for path in RECORDED_DIR.glob("*.jsonl")) < 600_000


# ---- the page as a file ----


def lines_of(events: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(event) for event in events]


def test_the_runs_of_a_board_become_one_closed_page():
    made = handlers().page_of(
        [{"role": role, "lines": lines_of(part_of(role, 4))} for role in ("map", "timed", "plain")]
    )
    page = made["page"]
    assert "default-src 'none'" in page
    data = json.loads(re.search(r'<script type="application/json" id="trace">(.*?)</script>', page, re.S)[1])
    assert [event["role"] for event in data if event["type"] == "part"] == ["map", "timed", "plain"]
    assert len(page) < 6_000_000


@pytest.mark.parametrize(
    "payload",
    [
        *(None, [], {}, [1], [{}] * 100, [{"role": "map"}], [{"role": "map", "lines": [1]}]),
        *([{"role": "map", "lines": []}], [{"role": "map", "lines": ["not json"]}]),
    ],
)
def test_what_is_no_board_becomes_no_page(payload: Any):
    assert set(handlers().page_of(payload)) == {"error"}


def test_a_text_cannot_break_out_of_the_page():
    events = map_run(3, prompt="</script><script>window.__hurt=1</script>")
    events[0]["target"]["name"] = "<img src=x onerror=window.__hurt=1>"
    page = export_exit_page([("map", events)])
    assert "<img" not in page
    assert page.count("</script>") == 3


# ---- the tab ----


def test_every_script_of_the_board_is_in_its_bundle():
    own = {path.name for path in BOARD_DIR.glob("*.js")}
    assert own == {*BOARD_SCRIPTS, "board_gradio_host.js", "board_file_host.js"}
    assert set(BOARD_BASE) <= set(STAGE_SCRIPTS)


def test_the_board_never_parses_text_as_markup_and_names_no_other_host():
    code = board_script() + board_gradio_host_script()
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "</script"):
        assert forbidden not in code
    assert set(re.findall(r"https?://[^\"'\s]+", code + board_css())) == {"http://www.w3.org/2000/svg"}


def test_the_board_has_a_constant_template_and_carries_no_runs(fake_recordings: Path, recorded_series: Path):
    demo = build_demo(lambda request, notify: None, fake_recordings, recorded_dir=recorded_series)
    (board,) = [block for block in demo.blocks.values() if block.elem_id == "sv-exit"]
    assert isinstance(board, gr.HTML)
    assert "$" not in board.html_template and "{{" not in board.html_template
    assert board.value == ""
    config = json.dumps(demo.get_config_file())
    assert "made-up" not in config
    assert str(recorded_series) not in config
