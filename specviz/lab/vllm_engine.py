"""A running vLLM server, through its OpenAI-compatible completions API, with prompt token ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from specviz.errors import BadRequest, RunFailed
from specviz.lab.block_clock import BlockClock
from specviz.lab.engines import Setup

TIMEOUT_SECONDS = 600
SHOWN_CHARACTERS = 200


class VllmEngine:
    """Streams greedy completions; what speculation the server does, it does by its own configuration.

    Raises:
        BadRequest: the address is none.
        RunFailed: no server answers there, or not as vLLM does.
    """

    def __init__(self, setup: Setup) -> None:
        self._address = server_address(setup.vllm_url)
        answer = self._send("GET", "/v1/models", None)
        try:
            self._model = str(json.loads(answer.read())["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise RunFailed(
                f"What answers at {self._address.geturl()} names no models, as vLLM does: give the address of a vLLM server."
            ) from None
        self.facts = {"precision": None, "device": None, "threads": None, "draft": None, "model": self._model}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        body = {
            "model": self._model,
            "prompt": request["token_ids"],
            "max_tokens": request["max_new_tokens"],
            "temperature": 0,
            "stream": True,
            "return_token_ids": True,
        }
        new_ids, clock = [], BlockClock()
        for chunk in _chunks(self._send("POST", "/v1/completions", body)):
            for choice in chunk.get("choices", ()):
                ids = choice.get("token_ids")
                if ids is None and choice.get("text"):
                    raise RunFailed("The server sends no token ids: it takes vLLM 0.10.2 or newer.")
                if ids:
                    clock.block(len(ids))
                    new_ids.extend(ids)
        return clock.generation(new_ids, a_block_is_a_round=False).to_dict()

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> HTTPResponse:
        address = self._address
        connect = HTTPSConnection if address.scheme == "https" else HTTPConnection
        connection = connect(address.hostname, address.port, timeout=TIMEOUT_SECONDS)
        base = address.path.rstrip("/").removesuffix("/v1")
        try:
            connection.request(
                method,
                base + path,
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/json"},
            )
            response = connection.getresponse()
        except (OSError, HTTPException) as error:
            raise RunFailed(
                f"No server answers at {address.geturl()} ({error}): start one with `vllm serve`."
            ) from None
        if response.status != 200:
            said = response.read(SHOWN_CHARACTERS).decode(errors="replace")
            raise RunFailed(f"The server answered {response.status} to {path}: {said!r}.")
        return response


def server_address(url: str) -> SplitResult:
    """The parts of an http address; raises BadRequest for anything else."""
    try:
        address = urlsplit(url)
        is_usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise BadRequest(f"vllm is {url!r}: give the address of a server, such as http://127.0.0.1:8000.")
    return address


def _chunks(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        data = line.decode().removeprefix("data:").strip()
        if line.startswith(b"data:") and data != "[DONE]":
            yield json.loads(data)
