"""The shelf of loaded models: a target is loaded once, whatever precisions of its drafts are asked for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from specviz.presets import Pair, find_pair
from specviz.ui import model_shelf
from specviz.ui.model_shelf import MAX_DRAFT_PRECISIONS, ModelShelf
from specviz.ui.run_request import OWN_PAIR, control_values, request_from
from tests.draft_folders import model_draft, random_head, save_draft
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import byte_level_tokenizer

PAIR = find_pair("embedded")


class FakeModels:
    """A pair that remembers which precision its drafts have."""

    def __init__(self, target: object, precision: str) -> None:
        self.target, self.precision = target, precision

    def with_draft_precision(self, precision: str) -> FakeModels:
        return FakeModels(self.target, precision)


@pytest.fixture
def loads(monkeypatch) -> list[tuple[str, str]]:
    """(pair, precision) of everything that was loaded with its target."""
    loaded = []

    def load(pair: Pair, precision: str, notify: object) -> FakeModels:
        loaded.append((pair.name, precision))
        return FakeModels(SimpleNamespace(), precision)

    monkeypatch.setattr(model_shelf, "_load", load)
    return loaded


def test_the_target_is_loaded_once_for_all_precisions_of_its_drafts(loads):
    shelf, told = ModelShelf(), []
    first = shelf._pair(PAIR, "auto", told.append)
    other = shelf._pair(PAIR, "float32", told.append)
    assert other.target is first.target and other.precision == "float32"
    assert shelf._pair(PAIR, "auto", told.append) is first
    assert loads == [("embedded", "auto")]
    assert told[-1] == "Loading the draft's weights"


def test_a_run_without_a_draft_takes_what_is_there(loads):
    shelf = ModelShelf()
    first = shelf._pair(PAIR, "float32", print)
    assert shelf._pair(PAIR, None, print) is first
    assert ModelShelf()._pair(PAIR, None, print).precision == "auto"


@pytest.mark.parametrize("kind", ["head", "model"])
def test_own_folders_run_with_the_drafter_that_the_draft_is_for(kind, tmp_path):
    tiny_model().save_pretrained(tmp_path / "target")
    byte_level_tokenizer().save_pretrained(tmp_path / "target")
    made = {"head": random_head, "model": model_draft}[kind]
    own = {"own_target": str(tmp_path / "target"), "own_draft": str(save_draft(tmp_path / "draft", made(tiny_model())))}
    asked = {"pair": OWN_PAIR, "drafter": f"draft_{kind}", "prompt": "one two", "raw": True, "max_new_tokens": 8}
    shelf, precisions = ModelShelf(), []
    for precision in ("float32", "bfloat16"):
        values = {**control_values(None, PAIR), **own, **asked, "draft_precision": precision}
        run = shelf.open_run(request_from(values, allow_own=True), print)
        events = list(run)
        assert run.result.reason == "length" and run.result.identity["identical"] is True
        precisions.append((events[0]["drafter"]["kind"], events[0]["drafter"]["precision"]))
    assert precisions == [(f"draft_{kind}", "float32"), (f"draft_{kind}", "bfloat16")]


def test_only_the_latest_precisions_and_pairs_are_kept(loads):
    shelf = ModelShelf()
    for precision in ("auto", "float32", "bfloat16"):
        shelf._pair(PAIR, precision, print)
    assert list(shelf._loaded.popitem()[1]) == ["float32", "bfloat16"][-MAX_DRAFT_PRECISIONS:]
    for name in ("a", "b", "c"):
        shelf._pair(replace(PAIR, name=name), "auto", print)
    assert [key.partition("|")[0] for key in shelf._loaded] == ["b", "c"]
