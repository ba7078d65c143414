"""The user's cache folder: where it is, whether it can hold what is coming, and what is intact in it."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specviz.errors import SpecVizError

CACHE_VARIABLE = "SPECVIZ_CACHE"
MB = 1_000_000


class CacheNotWritable(SpecVizError):
    """The cache folder cannot be made or written."""


class DiskFull(SpecVizError):
    """There is not enough room in the cache folder."""


def cache_dir() -> Path:
    """The folder for everything SpecViz keeps between runs; it need not exist yet.

    SPECVIZ_CACHE, else XDG_CACHE_HOME/specviz, else the system's own place (~/.cache/specviz on Linux).
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if xdg.is_absolute():
        return xdg / "specviz"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "specviz" / "cache"
    try:
        home = Path.home()
    except RuntimeError:
        raise CacheNotWritable(
            f"This user has no home folder to keep a cache in: set {CACHE_VARIABLE} to a folder that can be written."
        ) from None
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "specviz"


def make_writable(folder: Path) -> Path:
    """Create `folder` and prove that files can be made in it; raises CacheNotWritable or DiskFull."""
    with explained_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # A name of its own: another thread may be proving the same folder.
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-"):
            pass
    return folder


def require_free_space(folder: Path, num_bytes: int, what: str) -> None:
    """Raise DiskFull unless `folder`, which exists, has room for `num_bytes`."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise DiskFull(
            f"{what} needs {num_bytes / MB:.0f} MB free in {folder} and there are {free / MB:.0f} MB: "
            f"free some space, or set {CACHE_VARIABLE} to a folder on a larger disk."
        )


@contextmanager
def explained_os_errors(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses inside the block into one sentence (DiskFull or CacheNotWritable).

    Writers in native code raise errors of their own, so a full disk is also known by its text.
    """
    try:
        yield
    except SpecVizError:
        raise
    except Exception as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or says_disk_full(str(error)):
            raise DiskFull(
                f"The disk of {folder} is full: free some space, or {_naming(folder)} a folder on a larger disk."
            ) from error
        if isinstance(error, OSError):
            kind = "cache folder" if _is_cache(folder) else "folder"
            raise CacheNotWritable(
                f"The {kind} {folder} cannot be written ({error.strerror or error}): "
                f"{_naming(folder)} a folder that can."
            ) from error
        raise


def _naming(folder: Path) -> str:
    """How another folder is chosen in place of this one."""
    return f"set {CACHE_VARIABLE} to" if _is_cache(folder) else "name"


def _is_cache(folder: Path) -> bool:
    try:
        return folder.absolute().is_relative_to(cache_dir())
    except CacheNotWritable:  # this user has none
        return False


def says_disk_full(text: str) -> bool:
    """Whether an error's text, of pip or of native code, tells of a full disk."""
    return any(sign in text for sign in ("No space left", "os error 28", "Errno 28", "os error 112", "Disk quota"))


def sha256_of(path: Path) -> str:
    """The hex sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
