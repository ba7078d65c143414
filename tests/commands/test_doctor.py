from __future__ import annotations

import argparse
import json
import re
from collections import namedtuple

import psutil
import pytest
import torch

from specviz.commands import doctor
from specviz.commands.doctor import Check
from specviz.engine import draft_facts
from tests.draft_folders import model_draft, random_head, save_draft
from tests.tiny_models import tiny_model

STATUSES = {"ok", "slow", "warn", "missing"}


def test_json_has_every_check_and_nothing_else(capsys):
    assert doctor.run(argparse.Namespace(json=True)) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["checks"]
    assert len(report["checks"]) == len(doctor.CHECKS)
    for check in report["checks"]:
        assert list(check) == ["name", "status", "detail", "remedy"]
        assert check["status"] in STATUSES
        assert check["remedy"] or check["status"] in ("ok", "warn")


def test_the_table_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert doctor.run(argparse.Namespace(json=False)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("embedded model") for line in lines)


def test_an_empty_cache_names_the_command_that_fills_it():
    check = doctor.check_embedded_model()
    assert (check.status, check.remedy) == ("missing", "python -m specviz fetch")


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    monkeypatch.setattr(draft_facts, "SHIPPED_DIR", tmp_path / "drafts")
    return tmp_path / "drafts"


def test_the_shipped_drafts_are_named_and_compared_with_the_model(shipped, monkeypatch, tmp_path):
    head = random_head(tiny_model())
    save_draft(shipped / "a-head", head)
    save_draft(shipped / "a-model", model_draft(tiny_model(), embedding_sha256="0" * 64))
    absent = doctor.check_drafts()
    assert absent.status == "ok"
    assert "a-head (draft head): made for tiny llama" in absent.detail and "not compared" in absent.detail
    monkeypatch.setattr(doctor, "_embedded_fingerprint", lambda: head.facts.embedding_sha256)
    present = doctor.check_drafts()
    assert present.status == "warn"
    assert "a-head (draft head): fits SmolLM2" in present.detail
    assert "a-model (draft model): made for tiny llama, does not fit SmolLM2" in present.detail


def test_a_damaged_or_missing_draft_is_a_warning(shipped):
    assert doctor.check_drafts().status == "warn"
    save_draft(shipped / "a-head", random_head(tiny_model()))
    (shipped / "a-head" / "weights.safetensors").write_bytes(b"nothing")
    check = doctor.check_drafts()
    assert check.status == "warn" and "cannot be read" in check.detail and "no draft model is shipped" in check.detail


def test_a_kind_that_is_not_shipped_is_told_and_no_fault(shipped, monkeypatch):
    head = random_head(tiny_model())
    save_draft(shipped / "a-head", head)
    monkeypatch.setattr(doctor, "_embedded_fingerprint", lambda: head.facts.embedding_sha256)
    check = doctor.check_drafts()
    assert check.status == "ok" and "no draft model is shipped" in check.detail


def test_little_memory_is_a_warning_and_names_the_pairs_that_do_not_fit(monkeypatch):
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(4 * 10**9, 10**9))
    assert doctor.check_memory().status == "warn"
    pairs = doctor.check_hub_pairs()
    assert pairs.status == "warn" and "qwen2.5-7b (16.2 GB)" in pairs.detail


def test_a_full_disk_is_said_only_when_something_must_still_be_fetched(monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage(10**9, 10**9, 10**6))
    assert doctor.check_disk().status == "missing"
    monkeypatch.setattr(doctor, "damage_of", lambda folder: None)
    assert doctor.check_disk().status == "ok"


@pytest.mark.parametrize(
    ("installed", "status", "words"),
    [(None, "missing", "not installed: torch"), ("2.8.0", "warn", r"torch 2.8.0 \(tested: 2")],
)
def test_packages_are_compared_with_the_tested_versions(monkeypatch, installed, status, words):
    real = doctor.installed_version
    monkeypatch.setattr(doctor, "installed_version", lambda name: installed if name == "torch" else real(name))
    check = doctor.check_packages()
    assert check.status == status
    assert re.search(words, check.detail)


def test_a_local_build_of_the_tested_version_is_the_tested_version(monkeypatch):
    pinned = doctor.requirement_versions(doctor.ROOT / "constraints.txt")
    monkeypatch.setattr(doctor, "installed_version", lambda name: f"{pinned[name]}+cpu")
    assert doctor.check_packages().status == "ok"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (None, "the lean path: int8"),
        ("numba is not installed", "the general path (transformers), since numba is not installed"),
    ],
)
def test_the_path_is_told_with_its_reason(monkeypatch, reason, words):
    monkeypatch.setattr("specviz.engine.lean_loading.why_general", lambda device: reason)
    assert doctor.check_path().detail.startswith(words)


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("cuda", "the static path: few kernels a layer and a fixed KV cache, since there is a GPU (cuda)"),
        ("mps", "the general path (transformers), since int8 runs on CPUs only here, and the device is mps"),
    ],
)
def test_the_path_of_a_gpu_is_told_in_a_whole_sentence(device, told, monkeypatch):
    monkeypatch.setattr("specviz.engine.loader.choose_device", lambda wish: torch.device(device))
    assert doctor.check_path().detail == told


def test_no_chromium_is_only_a_warning(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert doctor.check_chromium().status == "warn"


def test_a_check_that_fails_is_a_finding_and_stops_no_other(monkeypatch):
    def check_broken_thing() -> Check:
        raise ImportError("no module named thing")

    monkeypatch.setattr(doctor, "CHECKS", (check_broken_thing, doctor.check_python))
    broken, python = doctor.run_checks()
    assert (broken.name, broken.status) == ("broken thing", "missing")
    assert "no module named thing" in broken.detail
    assert python.name == "python"
