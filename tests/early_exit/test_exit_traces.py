"""Early-exit runs as traces: recorded, read, refused where they cannot be, told in a terminal, written as a page."""

from __future__ import annotations

import copy
import io
import json

import pytest

from specviz.__main__ import main
from specviz.errors import BadRequest
from specviz.metrics import EXIT_METRIC_NAMES, METRIC_NAMES, fold_metrics
from specviz.trace.reader import read_trace
from specviz.trace.sentences import early_exit_facts
from specviz.trace.summary import summarize
from specviz.trace.terminal import TraceTerminal
from specviz.trace.writer import record
from specviz.ui.export_page import export_page
from tests.early_exit.exit_runs import NUM_LAYERS, exit_run
from tests.trace.sample_traces import to_lines
from tests.trace.test_reader import schema_validator

WAYS = {
    "timed": {"threshold": 0.07},
    "never": {"threshold": "never"},
    "sampled": {"threshold": 0.07, "temperature": 0.9},
    "map": {"kind": "map", "threshold": 0.07},
    "map at saturation": {"kind": "map", "measure": "saturation", "threshold": 0.8},
}


@pytest.fixture(scope="module", params=WAYS)
def live(request):
    return list(exit_run(trace_detail="full", check=True, prompt="hello naïve 👩‍🚀", **WAYS[request.param]))


def test_it_is_recorded_and_read_as_it_was(live, tmp_path):
    path = tmp_path / "run.jsonl"
    list(record(iter(live), path))
    trace = read_trace(path)
    assert trace == live and not trace.is_incomplete
    for event in live:
        schema_validator().validate(event)
    finish = next(event for event in trace if event["type"] == "run_finished")
    assert fold_metrics(trace).metrics() == finish["metrics"] == summarize(trace)["metrics"]
    assert set(finish["metrics"]) == {*METRIC_NAMES, *EXIT_METRIC_NAMES}


def test_its_start_says_how_tokens_may_leave(live):
    started = live[0]
    info = started["early_exit"]
    assert (started["mode"], started["drafter"]) == ("early_exit", {"kind": "none", "name": "none"})
    assert info["exit_layers"] == [1, 2, 3, 4, 5] and info["min_layer"] == 1
    assert info["heads"]["kind"] == "plain" and info["heads"]["cut_vocab_size"] > 0


def test_its_numbers_add_up(live):
    rounds = [event for event in live if event["type"] == "round"]
    metrics = next(event for event in live if event["type"] == "run_finished")["metrics"]
    layers = [event["exit"]["layer"] for event in rounds]
    assert metrics["mean_layers_per_token"] == pytest.approx(sum(layers) / len(layers))
    assert metrics["layers_saved"] == pytest.approx(1 - sum(layers) / len(layers) / NUM_LAYERS)
    assert metrics["exit_counts"] == {str(layer): layers.count(layer) for layer in sorted(set(layers))}
    for event in rounds:
        assert all(seconds >= 0 for seconds in event["seconds"].values())
        assert event["exit"]["head_seconds"] <= event["seconds"]["other"]
        assert event["cache"]["target"]["after"] == event["cache"]["target"]["before"] + 1


def test_the_comparison_says_how_much_is_the_same(live):
    identity, finish = live[-1], live[-2]
    if live[0]["settings"]["temperature"]:
        assert identity["identical"] is None
        return
    if live[0]["early_exit"]["run"] == "map" or live[0]["early_exit"]["threshold"] is None:
        assert (identity["identical"], identity["same_share"]) == (True, 1.0)
        assert identity["common_prefix"] == len(finish["token_ids"])
    else:
        assert identity["identical"] is False
        assert identity["common_prefix"] == identity["first_difference"]["position"]
        assert 0 <= identity["same_share"] < 1


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_is_told_in_a_terminal(live, encoding):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    terminal = TraceTerminal(file, width=200)
    for event in live:
        terminal.show(event)
    terminal.show_summary(live)
    file.flush()
    told = file.buffer.getvalue().decode(encoding)
    assert "Exits " in told and "plain exit heads" in told and "layers a token" in told
    assert "Drafter" not in told and "target pass" not in told


def test_it_becomes_a_page(live):
    page = export_page(live)
    assert json.dumps(live[0]["run_id"]) in page or live[0]["run_id"] in page


# -- what cannot be


def refused(live, change) -> str:
    events = copy.deepcopy(live)
    change(events)
    with pytest.raises(BadRequest) as caught:
        read_trace(io.BytesIO(to_lines(events)))
    return str(caught.value)


CHANGES = {
    "early_exit is missing": lambda events: events[0].pop("early_exit"),
    "early_exit is given": lambda events: events[0].update(mode="plain"),
    "exit_layers is not in ascending": lambda events: events[0]["early_exit"].update(exit_layers=[3, 2]),
    "exit_layers is not between": lambda events: events[0]["early_exit"].update(exit_layers=[1, NUM_LAYERS]),
    "exit is missing": lambda events: events[2].pop("exit"),
    "exit.layer is 99": lambda events: events[2]["exit"].update(layer=99),
    "exit.confidences has 9 entries": lambda events: events[2]["exit"].update(confidences=[0.5] * 9),
    "exit.confidences[0] is 7": lambda events: events[2]["exit"].update(confidences=[7]),
    "exit.head_seconds is -1": lambda events: events[2]["exit"].update(head_seconds=-1),
    "num_layers is null": lambda events: events[0]["target"].update(num_layers=None),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_cannot_be_is_refused_by_name(words):
    live = list(exit_run(threshold=0.07, max_new_tokens=4))
    assert words in refused(live, CHANGES[words])


MAP_CHANGES = {
    "map is missing": lambda events: events[2].pop("map"),
    "map.ids has 1 entries": lambda events: events[2]["map"].update(ids=[1]),
    "map.measures.gap has 0 entries": lambda events: events[2]["map"]["measures"].update(gap=[]),
    "map.measures.top1[0] is 'a'": lambda events: events[2]["map"]["measures"]["top1"].__setitem__(0, "a"),
    "map is given": lambda events: events[0]["early_exit"].update(run="timed"),
}


@pytest.mark.parametrize("words", MAP_CHANGES)
def test_a_map_that_cannot_be_is_refused_by_name(words):
    live = list(exit_run(threshold=0.07, kind="map", max_new_tokens=4))
    assert words in refused(live, MAP_CHANGES[words])


def test_a_run_that_is_given_up_is_closed_with_its_own_numbers(tmp_path):
    path = tmp_path / "run.jsonl"
    stream = record(exit_run(threshold=0.07), path)
    for event in stream:
        if event["type"] == "round" and event["round"] == 3:
            break
    stream.close()
    trace = read_trace(path)
    assert trace[-1]["reason"] == "cancelled"
    assert trace[-1]["metrics"]["mean_layers_per_token"] is not None


def test_one_round_alone_is_told_as_among_the_others(live, tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    list(record(iter(live), path))
    assert main(["replay", str(path)]) == 0
    told = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("Said ")]
    assert main(["replay", str(path), "--round", "2"]) == 0
    assert told[1] in capsys.readouterr().out


def test_a_sampled_run_is_not_said_to_keep_the_distribution():
    *_, identity = exit_run(check=True, threshold=0.07, temperature=0.9)
    assert identity["identical"] is None and "speculation" not in identity["why"]


def test_many_exit_layers_are_counted():
    info = exit_run(threshold=0.07).plan.describe("timed") | {"exit_layers": list(range(1, 17))}
    assert "looked at after 16 of its layers" in early_exit_facts(info)[0]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"confidences": [], "layer": 1}, "no last entry that reaches the threshold"),
        ({"confidences": [0.0], "layer": 1}, "no last entry that reaches the threshold"),
        ({"confidences": [0.9, 0.9], "layer": NUM_LAYERS}, "reaches the threshold where the token did not leave"),
        ({"threshold": None, "confidences": [0.9], "layer": 1}, "though the layers were looked at"),
    ],
)
def test_a_timed_run_leaves_where_it_is_sure(damage, words, tmp_path):
    events = copy.deepcopy(list(exit_run(threshold=0.07)))
    next(event for event in events if event["type"] == "round")["exit"].update(damage)
    path = tmp_path / "run.jsonl"
    path.write_bytes(to_lines(events))
    with pytest.raises(BadRequest, match=words):
        read_trace(path)
