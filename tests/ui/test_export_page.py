"""A run as one file: small, closed, literal, and the same picture as the page's stage."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from specviz.errors import BadRequest
from specviz.ui.bundle import file_host_script, stage_script
from specviz.ui.export_page import about, content_security_policy, embedded_json, export_page, write_page
from specviz.ui.plotly_js import plotly_script
from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started, story

MOST_BYTES = 6_000_000
HOSTILE = (
    "</script><script>window.__hurt=1</script>", "<!--<script>", "]]>", "\u2028\u2029", "\ud83d alone \udc00", "${x}", "{{x}}",
    "\\u003c", "<img src=x onerror=window.__hurt=1>", "\"'&amp;", "\u202eback", "漢字", "مرحبا", "👩‍👩‍👧",
)  # fmt: skip


def hostile_run() -> list[dict[str, Any]]:
    """A run whose every text would like to be something else."""
    rounds, length = [], 9
    for number, text in enumerate(HOSTILE, start=1):
        event = round_event(
            number, length, [drafted(1, text, "accepted"), drafted(2, text, "rejected")], extra("correction", 3, text)
        )
        length += len(event["committed"])
        rounds.append(event)
    run = started(" ".join(HOSTILE))
    run["target"]["name"] = HOSTILE[0]
    return [run, prefill(), *rounds, finished(rounds)]


class Elements(HTMLParser):
    """The elements of a page, in order, and the text of each data block by its id."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.blocks: dict[str, str] = {}
        self._open: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open = dict(attributes).get("id") if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._open:
            self.blocks[self._open] = self.blocks.get(self._open, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._open = None


# ---- the text of the page ----


def test_it_is_small_even_for_a_long_run():
    assert len(export_page(story(12)).encode()) < 2_500_000
    assert len(export_page(story(1000)).encode()) < MOST_BYTES


def test_it_names_no_other_host_and_no_path_of_this_machine():
    page = export_page(story(12))
    assert set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\"'\s]*", re.sub(r'id="plotly">[^<]*', "", page))) == {
        "http://www.w3.org/2000/svg"
    }
    assert str(Path.home()) not in page
    assert str(Path(__file__).resolve().parents[2]) not in page
    assert not re.search(r"<(?:link|script|img|iframe)[^>]*\b(?:src|href)=\"(?!data:,)", page)


def test_no_text_of_a_trace_can_leave_its_place():
    tame, hostile = Elements(export_page(story(12))), Elements(export_page(hostile_run()))
    assert hostile.tags == tame.tags
    assert json.loads(hostile.blocks["trace"]) == hostile_run()


@pytest.mark.parametrize("text", HOSTILE)
def test_embedded_json_is_ascii_without_brackets_and_says_the_same(text: str):
    embedded = embedded_json({"text": text})
    assert embedded.isascii()
    assert "<" not in embedded
    assert ">" not in embedded
    assert json.loads(embedded) == {"text": text}


def test_the_policy_allows_the_two_scripts_and_nothing_else():
    page = export_page(story(3))
    script = "\n".join([stage_script(), file_host_script(), "SpecViz.hostInFile(document);"])
    policy = content_security_policy(script, plotly_script())
    assert f'content="{policy}"' in page
    assert f"<script>{script}</script>" in page
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert re.findall(r"script-src ([^;]*);", policy)[0].count("sha256-") == 2
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_no_script_of_the_page_could_end_its_own_element():
    for script in (stage_script(), file_host_script(), plotly_script()):
        assert "</script" not in script.lower()
        assert "<!--" not in script
        assert "\r" not in script


def test_it_says_what_it_is():
    line = about(started("How  are\nyou?", drafter="prompt_lookup"))
    assert line.startswith(
        "A recording of fake-target answering “How are you?” with prompt lookup as its drafter, made with SpecViz on 2026-01-02."
    )
    assert "drafter" not in about(started(drafter="none"))
    looks = {"kind": "draft_head", "name": "a-head", "lookup_first": {"max_ngram": 4, "min_ngram": 2}}
    assert "with a draft head (lookup first) as its drafter" in about({**started(), "drafter": looks})
    raw = started("Once upon")
    raw["prompt"]["raw"] = True
    assert "continuing “Once upon”" in about(raw)
    assert len(about(started("word " * 5000))) < 400


# ---- the file ----


def test_an_older_page_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "run.html"
    path.write_text("an older and much longer page")
    assert write_page("new é", path) == 6
    assert path.read_text(encoding="utf-8") == "new é"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_leads_to_the_file_that_is_replaced(tmp_path):
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    write_page("new", tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text() == "new"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".", "is a folder"),
        ("missing/run.html", "does not exist"),
        ("/dev/null", "no ordinary file"),
        ("x" * 300, "choose another"),
        ("a\0b", "usable path"),
    ],
)
def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path, name: str, words: str):
    with pytest.raises(BadRequest) as refused:
        write_page("page", tmp_path / name)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


# ---- the page in a browser ----


@pytest.fixture
def open_file(open_page: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """open_file(events): the exported page, opened from disk; `requests` are all that it asked for."""

    def open_(events: list[dict[str, Any]], **options: Any) -> Any:
        path = tmp_path / "run.html"
        write_page(export_page(events), path)
        page = open_page(**{"reduced_motion": "reduce", **options})
        page.requests = []
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(".sv-stage[data-phase=done]")
        return page

    return open_


def picture(page: Any) -> str:
    return page.evaluate(
        "[...document.querySelectorAll('.sv-stage > header, .sv-body')].map((n) => n.outerHTML).join('')"
    )


@pytest.mark.browser
def test_it_plays_from_disk(open_file):
    page = open_file(story(6), reduced_motion="no-preference")
    page.wait_for_selector(".sv-stage[data-player=playing]")
    page.locator(".sv-speed").fill("6")
    page.wait_for_selector(".sv-stage[data-round='6'][data-player=paused]")
    assert "made with SpecViz" in page.inner_text("header.sv-file")
    assert "fake-target" in page.title()


@pytest.mark.browser
def test_it_shows_what_the_page_shows(open_file, open_stage):
    events = story(8)
    file, stage = open_file(events), open_stage(events, reduced_motion="reduce")
    for number in ("3", "8", "1"):
        for page in (file, stage):
            page.locator(".sv-scrub").fill(number)
            page.wait_for_selector(f".sv-stage[data-round='{number}']")
        assert picture(file) == picture(stage)


@pytest.mark.browser
def test_a_trace_that_breaks_off_is_said_to_be_incomplete(open_file):
    page = open_file([{**started(), "check": True}, *story(3)[1:3]])
    assert page.inner_text(".sv-status").startswith("This trace is incomplete")
    assert "when the run is over" not in page.inner_text(".sv-proof")


@pytest.mark.browser
def test_it_draws_plots_and_asks_for_nothing(open_file):
    page = open_file(story(8))
    page.evaluate("document.querySelector('.sv-plot').scrollIntoView()")
    page.wait_for_selector(".sv-plots[data-plotly=ready]")
    page.wait_for_selector(".sv-plot[data-plot=acceptance][data-painted]")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save Acceptance per round as PNG").click()
    assert download.value.suggested_filename.endswith("-acceptance.png")
    assert [url for url in page.requests if not url.startswith(("data:", "blob:"))] == [page.url]


@pytest.mark.browser
def test_text_stays_text(open_file):
    page = open_file(hostile_run())
    page.locator(".sv-scrub").fill(str(len(HOSTILE)))
    page.wait_for_selector(f".sv-stage[data-round='{len(HOSTILE)}']")
    assert page.evaluate("window.__hurt") is None
    assert page.locator("main img, main script").count() == 0
    assert HOSTILE[0] in page.inner_text(".sv-source-title")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_light_of_the_reader(open_file, scheme: str):
    page = open_file(story(3), color_scheme=scheme)
    assert page.get_attribute(".sv-stage", "data-theme") == scheme
    other = "dark" if scheme == "light" else "light"
    page.emulate_media(color_scheme=other)
    page.wait_for_selector(f".sv-stage[data-theme={other}]")


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_nothing_overflows_sideways(open_file, width: int):
    page = open_file(hostile_run(), viewport={"width": width, "height": 800})
    page.locator(".sv-scrub").fill("1")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_the_saved_trace_is_the_run(open_file, tmp_path):
    events = story(4)
    page = open_file(events)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save this run as a trace").click()
    download.value.save_as(tmp_path / "saved.jsonl")
    assert [json.loads(line) for line in (tmp_path / "saved.jsonl").read_text(encoding="utf-8").splitlines()] == events
