"""The SpecViz page. `python app.py` serves it on http://127.0.0.1:7860; a Gradio Space finds `demo` here."""

from __future__ import annotations

import argparse
import os

from specviz.ui.page import build_demo, launch_options

demo = build_demo()


def main() -> None:
    """Serve the page; SPECVIZ_HOST and SPECVIZ_PORT (or Gradio's own variables) and the options below choose where."""
    parser = argparse.ArgumentParser(description="Serve the SpecViz page.")
    parser.add_argument(
        "--host",
        default=os.environ.get("SPECVIZ_HOST") or os.environ.get("GRADIO_SERVER_NAME"),
        help="default 127.0.0.1",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=os.environ.get("SPECVIZ_PORT") or os.environ.get("GRADIO_SERVER_PORT") or 7860,
        help="default 7860",
    )
    options = parser.parse_args()
    demo.launch(server_name=options.host, server_port=int(options.port), **launch_options())


if __name__ == "__main__":
    main()
