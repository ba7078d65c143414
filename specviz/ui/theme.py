"""How the page around the stage looks: the same calm colours, and fonts that the server itself has."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.themes.utils import colors, fonts, sizes

PAGE_CSS = (Path(__file__).resolve().parents[2] / "assets" / "page.css").read_text(encoding="utf-8")


def page_theme() -> gr.themes.Base:
    """Slate, one blue, IBM Plex; both modes with AA contrast."""
    theme = gr.themes.Base(
        primary_hue=colors.blue,
        neutral_hue=colors.slate,
        radius_size=sizes.radius_md,
        text_size=sizes.text_md,
        font=(fonts.LocalFont("IBM Plex Sans", weights=(400, 700)), "ui-sans-serif", "system-ui", "sans-serif"),
        font_mono=(fonts.LocalFont("IBM Plex Mono", weights=(400, 600)), "ui-monospace", "Consolas", "monospace"),
    )
    return theme.set(
        body_background_fill="#eceff3",
        body_background_fill_dark="#0a0e12",
        body_text_color="#17212c",
        body_text_color_dark="#eef2f6",
        body_text_color_subdued="#55616e",
        body_text_color_subdued_dark="#a8b4c1",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="#12171d",
        block_background_fill="#ffffff",
        block_background_fill_dark="#12171d",
        block_border_width="0px",
        block_shadow="none",
        block_label_text_color="#55616e",
        block_title_text_color="#17212c",
        block_title_text_color_dark="#eef2f6",
        block_title_text_weight="600",
        border_color_primary="#dde2e8",
        border_color_primary_dark="#2f3944",
        input_background_fill="#f4f6f8",
        input_background_fill_dark="#1b222a",
        input_border_color="#c3cbd4",
        input_border_color_dark="#3b4754",
        input_border_color_focus="#0072b2",
        input_border_color_focus_dark="#6cc0f0",
        slider_color="#0072b2",
        slider_color_dark="#56b4e9",
        checkbox_background_color_selected="#0072b2",
        checkbox_background_color_selected_dark="#0072b2",
        checkbox_label_background_fill_selected="#e3f0f8",
        checkbox_label_background_fill_selected_dark="#143349",
        checkbox_label_text_color_selected="#17212c",
        checkbox_label_text_color_selected_dark="#eef2f6",
        button_primary_background_fill="#005a8e",
        button_primary_background_fill_hover="#0072b2",
        button_primary_background_fill_dark="#56b4e9",
        button_primary_background_fill_hover_dark="#93d0f5",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#0a0e12",
    )
