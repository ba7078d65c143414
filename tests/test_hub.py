"""The hub's client is replaced: what it raises must become one sentence, and a pin must change nothing but its lines."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import huggingface_hub
import pytest
from huggingface_hub import errors

from specviz.errors import BadRequest, SpecVizError
from specviz.hub import HubModel, HubUnreachable, download_model, models_of, pin_pair, read_revision, with_pin
from specviz.presets import PRESETS_DIR, find_pair, load_pairs


def client_error(kind):
    response = Mock(status_code=404, headers={}, url="u")
    response.request = Mock(method="GET", url="u")
    return kind("404 Client Error", response=response)


@pytest.fixture
def hub(monkeypatch):
    """A hub where every repository is at revision "c0ffee" and has safetensors; tests replace what it answers."""
    hub = SimpleNamespace(files=["model.safetensors"], error=None, calls=[])

    def model_info(self, repo_id):
        hub.calls.append(repo_id)
        if hub.error:
            raise hub.error
        return SimpleNamespace(sha="c0ffee", siblings=[SimpleNamespace(rfilename=name) for name in hub.files])

    def snapshot_download(repo_id, **options):
        hub.calls.append((repo_id, options))
        if hub.error:
            raise hub.error
        return "/cache/of/the/hub"

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return hub


def test_only_safetensors_weights_are_downloaded(hub):
    download_model(HubModel("a/b", "c0ffee"))
    ((repo_id, options),) = hub.calls
    assert (repo_id, options["revision"]) == ("a/b", "c0ffee")
    assert "*.safetensors" in options["allow_patterns"]
    assert not [p for p in options["allow_patterns"] if any(kind in p for kind in (".bin", ".py", ".pt", ".pkl"))]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            ConnectionError("[Errno -2] Name or service not known"),
            HubUnreachable,
            r"cannot be reached for a/b \(\[Errno",
        ),
        (errors.OfflineModeIsEnabled("offline mode is enabled."), HubUnreachable, "offline mode is enabled"),
        (client_error(errors.GatedRepoError), BadRequest, "gated: accept its licence"),
        (client_error(errors.RepositoryNotFoundError), BadRequest, "no model a/b"),
        (client_error(errors.RevisionNotFoundError), BadRequest, "no such revision"),
    ],
)
def test_what_goes_wrong_is_one_sentence(hub, error, kind, words):
    hub.error = error
    for call in (lambda: download_model(HubModel("a/b", None)), lambda: read_revision("a/b")):
        with pytest.raises(kind, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_repository_without_safetensors_is_refused(hub):
    hub.files = ["pytorch_model.bin"]
    with pytest.raises(BadRequest, match="no safetensors"):
        read_revision("a/b")


def test_pinning_writes_both_revisions_and_touches_no_other_pair(hub, tmp_path):
    path = tmp_path / "pairs.toml"
    before = (PRESETS_DIR / "pairs.toml").read_text(encoding="utf-8")
    path.write_text(before, encoding="utf-8")
    pin_pair(find_pair("qwen3-4b"), path)
    after = path.read_text(encoding="utf-8")
    pinned = {pair.name: pair for pair in load_pairs(path)}
    assert pinned["qwen3-4b"].verified
    assert (pinned["qwen3-4b"].target_revision, pinned["qwen3-4b"].draft_revision) == ("c0ffee", "c0ffee")
    assert [pair for pair in pinned.values() if pair.name != "qwen3-4b"] == [
        pair for pair in load_pairs() if pair.name != "qwen3-4b"
    ]
    assert len(after.splitlines()) == len(before.splitlines()) + 2
    pin_pair(find_pair("qwen3-4b"), path)
    assert path.read_text(encoding="utf-8") == after, "pinning again changes nothing"


def test_the_last_pair_of_the_file_can_be_pinned():
    text = '[[pair]]\nname = "a"\n\n[[pair]]\nname = "b"\nverified = false\n'
    assert with_pin(text, "b", ["verified = true"]) == '[[pair]]\nname = "a"\n\n[[pair]]\nname = "b"\nverified = true\n'
    with pytest.raises(BadRequest, match="no pair 'c'"):
        with_pin(text, "c", [])


def test_the_embedded_pair_has_nothing_to_pin():
    assert models_of(find_pair("embedded")) == ()
    with pytest.raises(BadRequest, match="pinned by its sha256"):
        pin_pair(find_pair("embedded"))


def test_a_pairs_file_that_cannot_be_written_gives_the_lines_to_add(hub, tmp_path):
    path = tmp_path / "missing" / "pairs.toml"
    with pytest.raises(SpecVizError, match=r'cannot be written.*target_revision = "c0ffee"'):
        pin_pair(find_pair("gpt2-large"), path)
