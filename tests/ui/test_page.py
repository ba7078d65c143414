"""The page before anybody looks at it: what it imports, what it sends, how it is served."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import gradio as gr

from specviz.trace.reader import read_trace
from specviz.ui.bundle import STAGE_DIR, STAGE_SCRIPTS, gradio_host_script, stage_css, stage_script
from specviz.ui.page import SECONDS_BETWEEN_LOOKS, build_demo, launch_options
from specviz.ui.recordings import RECORDINGS_DIR, load_recordings

ROOT = Path(__file__).resolve().parents[2]


def test_building_the_page_loads_no_model_library():
    program = "import app, sys; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_script_of_the_stage_is_in_the_bundle():
    assert {path.name for path in STAGE_DIR.glob("*.js")} == {*STAGE_SCRIPTS, "gradio_host.js", "file_host.js"}


def test_the_stage_never_parses_text_as_markup_and_names_no_other_host():
    code = stage_script() + gradio_host_script()
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "</script"):
        assert forbidden not in code
    urls = set(re.findall(r"https?://[^\"'\s]+", code + stage_css()))
    assert urls == {"http://www.w3.org/2000/svg"}


def test_the_page_names_no_path_of_this_machine(fake_recordings):
    config = json.dumps(build_demo(lambda request, notify: None, fake_recordings).get_config_file())
    assert str(ROOT) not in config
    assert str(Path.home()) not in config


def test_the_stage_has_a_constant_template(fake_recordings):
    demo = build_demo(lambda request, notify: None, fake_recordings)
    (stage,) = [block for block in demo.blocks.values() if block.elem_id == "sv-stage"]
    assert "$" not in stage.html_template
    assert "{{" not in stage.html_template


def test_the_page_is_served_closed():
    options = launch_options()
    assert options["run_history"] is False
    assert options["enable_monitoring"] is False
    assert options["show_error"] is False
    assert options["share"] is False
    assert options["max_file_size"]


def test_the_shipped_recordings_are_real_traces_of_a_real_model():
    recordings = load_recordings()
    assert recordings, "the first screen needs a recorded run"
    for path in RECORDINGS_DIR.glob("*.jsonl"):
        started = read_trace(path)[0]
        assert started["target"]["num_params"] > 10**8
        assert path.stat().st_size < 1_000_000


def test_gradio_still_has_the_pause_that_the_page_lengthens():
    queue = gr.Blocks().queue()._queue
    assert 0 < queue.sleep_when_free < SECONDS_BETWEEN_LOOKS
    assert queue.progress_update_sleep_when_free > 0
