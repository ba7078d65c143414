"""What a disk refuses, in one sentence that names the right remedy."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from specviz.cache import CACHE_VARIABLE, CacheNotWritable, DiskFull, explained_os_errors, make_writable


@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        (errno.ENOSPC, DiskFull, "The disk of {} is full: free some space, or {} a folder on a larger disk."),
        (errno.EACCES, CacheNotWritable, r"folder {} cannot be written \(Permission denied\): {} a folder that can."),
    ],
)
@pytest.mark.parametrize("is_cache", [True, False])
def test_the_remedy_is_the_one_that_chooses_this_folder(code, kind, sentence, is_cache, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "models" if is_cache else tmp_path / "work"
    remedy = f"set {CACHE_VARIABLE} to" if is_cache else "name"
    with pytest.raises(kind, match=sentence.format(folder, remedy)), explained_os_errors(folder):
        raise OSError(code, "Permission denied")


def test_who_has_no_home_is_told_of_the_disk_and_not_of_the_home(tmp_path, monkeypatch):
    for variable in (CACHE_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(DiskFull, match="name a folder on a larger disk"), explained_os_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_many_at_once_prove_the_same_folder_writable(tmp_path):
    start = threading.Barrier(8)

    def prove(_):
        start.wait()
        return [make_writable(tmp_path / "cache") for _ in range(200)]

    with ThreadPoolExecutor(8) as threads:
        assert all(folders == [tmp_path / "cache"] * 200 for folders in threads.map(prove, range(8)))
    assert list((tmp_path / "cache").iterdir()) == []
