"""plotly.js comes out of the installed package, under an address that names no path and bears a prefix."""

from __future__ import annotations

import gradio as gr
from fastapi import FastAPI
from starlette.testclient import TestClient

from specviz.ui.page import launch_options
from specviz.ui.plotly_js import PLOTLY_ADDRESS, plotly_path, plotly_script


def test_it_is_the_file_of_the_package():
    assert plotly_path().is_file()
    assert "plotly.js v" in plotly_script()[:200]


def test_it_is_served_under_a_prefix_too():
    assert not PLOTLY_ADDRESS.startswith("/")
    with gr.Blocks() as demo:
        gr.HTML("x")
    app = gr.mount_gradio_app(FastAPI(), demo, path="/demo", app_kwargs=launch_options()["app_kwargs"])
    with TestClient(app) as client:
        answer = client.get(f"/demo/{PLOTLY_ADDRESS}")
    assert answer.status_code == 200
    assert answer.text == plotly_script()
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")
