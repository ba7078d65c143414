"""`specviz doctor`: what this machine has, what will be slow, and what is missing."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from specviz.cache import MB, cache_dir
from specviz.engine.embedded import EMBEDDED_NAME, NEEDED_BYTES, damage_of, describe_cache, embedded_model_path
from specviz.errors import SpecVizError
from specviz.presets import load_pairs
from specviz.trace.sentences import drafter_words

NAME = "doctor"
HELP = "say what this machine has, what will be slow and what is missing"

GB = 1_000_000_000
ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
NEWEST_TESTED_PYTHON = (3, 13)
ROOMY_BYTES = 2 * GB  # the embedded target in float32, a draft, both caches and Python itself


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `slow` works but takes its time; `warn` matters only for some uses; `missing` must be mended."""

    name: str
    status: Literal["ok", "slow", "warn", "missing"]
    detail: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Returns 0, also when something is missing: that is the finding."""
    checks = run_checks()
    if args.json:
        print(json.dumps({"checks": [asdict(check) for check in checks]}, allow_nan=False))
    else:
        _print_table(checks)
    return 0


def run_checks() -> list[Check]:
    """Every check in the order it is shown; one that fails says so and stops no other."""
    return [_safely(check) for check in CHECKS]


def check_python() -> Check:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] > NEWEST_TESTED_PYTHON:
        tested = ".".join(map(str, NEWEST_TESTED_PYTHON))
        return Check("python", "warn", detail, f"Should packages be missing for it: use Python {tested}.")
    return Check("python", "ok", detail)


def check_packages() -> Check:
    """requirements.txt against what is installed and against the pinned versions."""
    pinned = requirement_versions(ROOT / "constraints.txt")
    names = list(requirement_versions(ROOT / "requirements.txt"))
    found = {name: installed_version(name) for name in names}
    missing = [name for name, number in found.items() if number is None]
    if missing:
        return Check("packages", "missing", f"not installed: {', '.join(missing)}", "pip install -r requirements.txt")
    other = [
        f"{name} {number} (tested: {pinned[name]})"
        for name, number in found.items()
        if name in pinned and number.split("+")[0] != pinned[name]
    ]
    if other:
        return Check("packages", "warn", ", ".join(other), "Should something fail: make setup, which pins them.")
    return Check("packages", "ok", f"all {len(names)} at the tested versions")


def check_torch() -> Check:
    import torch

    from specviz.engine.loader import choose_device

    device = choose_device("auto")
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    detail = f"{torch.__version__} ({build}), device {device}"
    if device.type == "cuda":
        return Check("torch", "ok", f"{detail}: {torch.cuda.get_device_name()}")
    if shutil.which("nvidia-smi"):
        return Check("torch", "warn", f"{detail}, beside an NVIDIA driver", "Install a CUDA build of torch.")
    if device.type == "mps":
        return Check("torch", "ok", detail)
    return Check(
        "torch", "slow", detail, "The embedded target is fine on a CPU; from about 1B parameters on, use a GPU."
    )


def check_cores() -> Check:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{cores} cores, torch uses {torch.get_num_threads()} threads"
    if cores < 4:
        return Check("cores", "slow", detail, "Leave them to one run at a time: a busy machine measures badly.")
    return Check("cores", "ok", detail)


def check_precision() -> Check:
    import torch

    from specviz.engine.loader import choose_device, choose_dtype, cpu_has_fast_bf16

    device = choose_device("auto")
    chosen = str(choose_dtype("auto", device)).removeprefix("torch.")
    if device.type != "cpu":
        return Check("precision", "ok", f"{chosen} on {device.type}")
    capability = torch.backends.cpu.get_cpu_capability()
    if cpu_has_fast_bf16():
        return Check("precision", "ok", f"{capability}, bfloat16 in hardware; models on the general path use {chosen}")
    detail = f"{capability}, no bfloat16 in hardware; models on the general path use {chosen}"
    return Check("precision", "slow", detail, "Expect checking k+1 tokens there to cost 1.3 to 2.6 one-token passes.")


def check_path() -> Check:
    """Which of the engine's paths the embedded target takes here, and why."""
    from specviz.engine.lean_loading import why_general
    from specviz.engine.loader import choose_device
    from specviz.engine.static_loading import STATIC_ON

    device = choose_device("auto")
    if device.type in STATIC_ON:
        return Check(
            "path", "ok", f"the static path: few kernels a layer and a fixed KV cache, since there is a GPU ({device})"
        )
    if reason := why_general(device):
        return Check("path", "ok", f"the general path (transformers), since {reason}")
    return Check("path", "ok", "the lean path: int8 weights and compiled kernels, since this is an x86 CPU")


def check_memory() -> Check:
    import psutil

    memory = psutil.virtual_memory()
    detail = f"{memory.available / GB:.1f} of {memory.total / GB:.1f} GB free"
    if memory.available < ROOMY_BYTES:
        return Check("memory", "warn", detail, f"Close programs: the embedded pair wants {ROOMY_BYTES / GB:.0f} GB.")
    return Check("memory", "ok", detail)


def check_hub_pairs() -> Check:
    """Which pairs of the allow-list fit in memory, by their weights in 16 bits."""
    import psutil

    available = psutil.virtual_memory().available
    too_large = [pair for pair in load_pairs() if pair.weight_bytes() * 1.2 > available]
    if not too_large:
        return Check("hub pairs", "ok", f"the weights of all {len(load_pairs())} pairs fit in memory (in 16 bits)")
    names = ", ".join(f"{pair.name} ({pair.weight_bytes() / GB:.1f} GB)" for pair in too_large)
    return Check("hub pairs", "warn", f"too large for the free memory: {names}")


def check_disk() -> Check:
    folder = cache_dir()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{free / GB:.1f} GB free for {cache_dir()}"
    if not os.access(folder, os.W_OK):
        return Check("disk", "missing", f"{folder} cannot be written", "Set SPECVIZ_CACHE to a folder that can.")
    if free < NEEDED_BYTES and damage_of(embedded_model_path()) is not None:
        return Check("disk", "missing", detail, f"Free {NEEDED_BYTES / MB:.0f} MB, or set SPECVIZ_CACHE.")
    return Check("disk", "ok", detail)


def check_embedded_model() -> Check:
    facts = describe_cache()
    if facts["damage"] is None:
        return Check("embedded model", "ok", f"{EMBEDDED_NAME}, {facts['bytes'] / MB:.0f} MB, intact")
    detail = f"{EMBEDDED_NAME}: {facts['damage']}" if facts["bytes"] else f"{EMBEDDED_NAME} is not in the cache"
    return Check("embedded model", "missing", detail, "python -m specviz fetch")


def check_drafts() -> Check:
    """The drafts that are shipped: whole, and made for the embedded model."""
    from specviz.engine.draft_facts import DRAFT_KINDS, SHIPPED_DIR, shipped_names

    fingerprint = _embedded_fingerprint()
    findings = [_look_at_draft(SHIPPED_DIR / name, fingerprint) for name in shipped_names()]
    lacking = [drafter_words(kind) for kind in DRAFT_KINDS if not shipped_names(kind)]
    details = [detail for _, detail in findings] + [f"no {words} is shipped" for words in lacking]
    if fingerprint is None and findings:
        details.append("not compared, as the embedded model is not in the cache")
    if not findings or not all(is_good for is_good, _ in findings):
        return Check("drafts", "warn", "; ".join(details), "Restore assets/drafts, or draft with prompt_lookup.")
    return Check("drafts", "ok", "; ".join(details))


def _embedded_fingerprint() -> str | None:
    """Of the embedded model's embedding, as drafts know it; None where the model is not in the cache."""
    from specviz.engine.draft_files import embedding_fingerprint, read_embedding

    if damage_of(embedded_model_path()) is not None:
        return None
    embedding = read_embedding(str(embedded_model_path()))
    return None if embedding is None else embedding_fingerprint(embedding)


def _look_at_draft(folder: Path, fingerprint: str | None) -> tuple[bool, str]:
    """Whether nothing is wrong with a draft, and what it is."""
    from specviz.engine.draft_files import read_draft

    try:
        facts = read_draft(folder).facts
    except SpecVizError as error:
        return False, str(error)
    fits = fingerprint in (None, facts.embedding_sha256)
    said = f"fits {EMBEDDED_NAME}" if fits and fingerprint else f"made for {facts.target_name}"
    return (
        fits,
        f"{folder.name} ({drafter_words(facts.kind)}): {said}{'' if fits else ', does not fit ' + EMBEDDED_NAME}",
    )


def check_chromium() -> Check:
    path = find_chromium()
    if path is None:
        return Check("chromium", "warn", "not found; only the browser tests want it", "apt-get install chromium")
    return Check("chromium", "ok", f"{path} (only the browser tests want it)")


CHECKS: tuple[Callable[[], Check], ...] = (
    check_python,
    check_packages,
    check_torch,
    check_cores,
    check_precision,
    check_path,
    check_memory,
    check_hub_pairs,
    check_disk,
    check_embedded_model,
    check_drafts,
    check_chromium,
)


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome on the PATH."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


def requirement_versions(path: Path) -> dict[str, str]:
    """Package name -> what follows the comparison ("2.8,<3", or a pinned version) in a requirements file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    matches = (re.match(r"([A-Za-z0-9_.-]+)[=><~!]=?([^\s#]*)", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def installed_version(name: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _safely(check: Callable[[], Check]) -> Check:
    name = check.__name__.removeprefix("check_").replace("_", " ")
    try:
        return check()
    except (ImportError, OSError, SpecVizError) as error:
        return Check(name, "missing", f"cannot be looked at: {error}", "pip install -r requirements.txt")


def _print_table(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    from specviz.trace.terminal import PipeFriendlyConsole

    styles = {"ok": "green", "slow": "yellow", "warn": "yellow", "missing": "red"}
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("what was found", overflow="fold")
    for check in checks:
        found = Text(check.detail)
        if check.remedy:
            found.append(f"\n-> {check.remedy}", style="bold")
        table.add_row(check.name, Text(check.status, style=styles[check.status]), found)
    PipeFriendlyConsole().print(table)
