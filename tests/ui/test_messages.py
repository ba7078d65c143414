"""The messages to the stage: what they carry, and that nothing in them can be taken for markup."""

from __future__ import annotations

import json

from specviz.ui.messages import MAX_MESSAGE_CHARS, RECORDING, message, message_in_parts
from tests.ui.fake_runs import story


def test_a_message_is_a_header_and_an_event_a_line():
    events = story(3)
    header, *lines = message("r1", 7, events).split("\n")
    assert json.loads(header) == {"run": "r1", "seq": 7, "done": 0, "source": "live"}
    assert [json.loads(line) for line in lines] == events


def test_text_of_models_stays_data():
    hostile = "<script>alert(1)</script> ${x} {{x}} \\u0041 line\nend \u2028 \U0001f600"
    text = message("r", 0, [{"type": "x", "text": hostile}], note=hostile)
    assert "<" not in text
    header, line = text.split("\n")
    assert json.loads(line)["text"] == hostile
    assert json.loads(header)["note"] == hostile


def test_a_long_recording_comes_in_parts_that_join_to_the_whole():
    events = story(600)
    parts = list(message_in_parts("r", events, source=RECORDING))
    assert len(parts) > 1
    joined = []
    for part in parts:
        header, *lines = part.split("\n")
        assert json.loads(header)["seq"] == len(joined)
        assert len(part) < 2 * MAX_MESSAGE_CHARS
        joined += [json.loads(line) for line in lines]
    assert joined == events
    assert [json.loads(part.split("\n")[0])["done"] for part in parts] == [0] * (len(parts) - 1) + [1]
