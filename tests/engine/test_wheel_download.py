"""pip is a real subprocess here; what it does is written by the test, as a package `pip` that comes first on its path."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import textwrap

import pytest

from specviz.cache import DiskFull
from specviz.engine.wheel_download import (
    CorruptDownload,
    DownloadFailed,
    NoNetwork,
    NoPip,
    Wheel,
    download_wheel,
    pip_arguments,
)

CONTENT = b"a wheel's bytes" * 1000
WHEEL = Wheel("thing==1.0", "thing-1.0-py3-none-any.whl", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())

OFFLINE_OUTPUT = """
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...: Failed to establish a new \
connection: [Errno -2] Name or service not known)': /thing/
ERROR: Could not find a version that satisfies the requirement thing==1.0 (from versions: none)
ERROR: No matching distribution found for thing==1.0
"""


@pytest.fixture
def fake_pip(tmp_path, monkeypatch):
    """Replace pip by a script; `dest` and `name` are where the wheel is wanted."""

    def install(script: str) -> None:
        package = tmp_path / "path" / "pip"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        header = f"import sys, os, pathlib\ndest = pathlib.Path(sys.argv[-2])\nname = {WHEEL.file_name!r}\n"
        (package / "__main__.py").write_text(header + textwrap.dedent(script))
        monkeypatch.setenv("PYTHONPATH", str(package.parent))

    return install


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "downloads"
    folder.mkdir()
    return folder


def test_a_good_download_is_returned_and_nothing_else_is_left(fake_pip, folder, capfd):
    fake_pip(f"""
        import tempfile, time
        part = pathlib.Path(tempfile.gettempdir()) / "part"
        part.write_bytes(b"x" * 5000)
        time.sleep(0.4)
        (dest / name).write_bytes({CONTENT[:15]!r} * 1000)
        print("Saved", dest / name)
    """)
    seen: list[int] = []
    path = download_wheel(WHEEL, folder, seen.append)
    assert path.read_bytes() == CONTENT
    assert list(folder.iterdir()) == [path]
    assert max(seen) == 5000, "bytes are counted while pip is still writing its temporary file"
    assert capfd.readouterr().out == "", "pip's words must not reach stdout"


@pytest.mark.parametrize("damage", ["[:-1]", " + b'x'", ".replace(b'w', b'v')"])
def test_a_corrupt_download_is_deleted(fake_pip, folder, damage):
    fake_pip(f"(dest / name).write_bytes(({CONTENT[:15]!r} * 1000){damage})")
    with pytest.raises(CorruptDownload, match=r"sha256 is not the expected one.*try again"):
        download_wheel(WHEEL, folder, lambda done: None)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "error", "words"),
    [
        (OFFLINE_OUTPUT, NoNetwork, "No network.*thing==1.0"),
        ("ERROR: Could not install: [Errno 28] No space left on device", DiskFull, "disk became full"),
        ("ERROR: No matching distribution found for thing==1.0", DownloadFailed, "No matching distribution"),
        ("", DownloadFailed, "no reason"),
    ],
)
def test_what_pip_says_becomes_one_sentence(fake_pip, folder, output, error, words):
    fake_pip(f"print({output!r}); sys.exit(1)")
    with pytest.raises(error, match=words) as caught:
        download_wheel(WHEEL, folder, lambda done: None)
    assert "\n" not in str(caught.value)
    assert list(folder.iterdir()) == []


def test_without_pip_the_remedy_is_named(monkeypatch, folder):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoPip, match=r"no pip.*-m ensurepip"):
        download_wheel(WHEEL, folder, lambda done: None)


def test_an_interruption_ends_pip_and_leaves_nothing(fake_pip, folder):
    fake_pip("import time; time.sleep(60)")

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_wheel(WHEEL, folder, interrupt)
    assert list(folder.iterdir()) == []


def test_pip_is_asked_for_one_prebuilt_wheel_without_dependencies(folder):
    arguments = pip_arguments(WHEEL, folder)
    assert arguments[0] == "download"
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} <= set(arguments)
    assert arguments[-1] == WHEEL.requirement
    assert sys.executable not in arguments
