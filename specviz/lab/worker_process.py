"""The other end of a worker: starts it, asks it, ends it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Protocol

from specviz.errors import RunFailed
from specviz.lab.engines import Setup

PACKAGE_PARENT = Path(__file__).resolve().parents[2]
LONGEST_ANSWER_SECONDS = 1800
SHOWN_STDERR = 300


class WorkerFailed(RunFailed):
    """A worker could not start, broke off, or does not answer; the sentence says why."""


class Worker(Protocol):
    """Somebody who answers requests; `facts` says on what it runs."""

    facts: dict[str, Any]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]: ...

    def close(self) -> None: ...


class WorkerProcess:
    """One job in a process, and a process group, of its own; the constructor waits until it is ready.

    Args:
        command: what to start; it must speak the protocol of `specviz.lab.worker`.
        longest_seconds: how long it may take to answer; beyond, it is killed.

    Raises:
        WorkerFailed: it did not become ready.
    """

    def __init__(
        self,
        job: str,
        setup: Setup,
        *,
        command: tuple[str, ...] = (sys.executable, "-m", "specviz.lab.worker"),
        longest_seconds: float = LONGEST_ANSWER_SECONDS,
    ) -> None:
        self._longest_seconds, self._is_too_late = longest_seconds, False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            env=_environment(setup.threads),
            start_new_session=True,  # Ctrl-C reaches the parent only, which ends its workers
        )
        try:
            self.facts = self._exchange({"job": job, "setup": setup.to_dict()}, "ready")
        except BaseException:
            self.close()
            raise

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer; raises WorkerFailed if there is none."""
        return self._exchange(request, "answer")

    def close(self) -> None:
        """End the process; it has nothing to lose."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._stderr.close()

    def _exchange(self, message: dict[str, Any], expected: str) -> dict[str, Any]:
        too_late = threading.Timer(self._longest_seconds, self._give_up)
        too_late.start()
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            reply = json.loads(self._process.stdout.readline() or "null")
        except OSError:
            reply = None
        except ValueError:
            raise WorkerFailed("Its answer is not JSON.") from None
        finally:
            too_late.cancel()
        if isinstance(reply, dict) and isinstance(reply.get(expected), dict):
            return reply[expected]
        raise WorkerFailed(reply["failed"] if isinstance(reply, dict) and "failed" in reply else self._how_it_ended())

    def _give_up(self) -> None:
        self._is_too_late = True
        self._process.kill()

    def _how_it_ended(self) -> str:
        if self._is_too_late:
            return f"It did not answer within {self._longest_seconds:g} seconds, and was ended."
        if self._process.stdout.closed or self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
        code = self._process.poll()
        self._stderr.seek(0)
        last_line = (self._stderr.read().decode(errors="replace").strip().splitlines() or [""])[-1][:SHOWN_STDERR]
        how = "answered what it was not asked" if code is None else f"ended with code {code}"
        return f"Its process {how}{f' ({last_line})' if last_line else ''}."


def _environment(threads: int | None) -> dict[str, str]:
    search_path = os.pathsep.join(filter(None, [str(PACKAGE_PARENT), os.environ.get("PYTHONPATH")]))
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
    wanted = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return {**os.environ, **quiet, **wanted, "PYTHONPATH": search_path}
