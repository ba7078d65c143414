"""Each engine on tiny models: the same ids wherever the same is decoded, and figures that add up."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType

import pytest
import torch

from specviz.config import DRAFTER_KINDS
from specviz.engine import draft_facts
from specviz.errors import BadRequest, RunFailed
from specviz.lab.block_clock import ClockStreamer
from specviz.lab.candidates import inspect_target
from specviz.lab.cost_meter import CostMeter
from specviz.lab.costs import fold_costs
from specviz.lab.engines import (
    ENGINES,
    OWN_ENGINES,
    PLAIN_OF,
    TRANSFORMERS_ENGINES,
    Generation,
    Setup,
    own_settings,
    why_unavailable,
)
from specviz.lab.llama_cpp_engine import LlamaCppEngine, embedded_gguf_file
from specviz.lab.own_engine import OwnEngine, draft_steps
from specviz.lab.transformers_engine import TransformersEngine
from specviz.lab.vllm_engine import VllmEngine, server_address
from tests.draft_folders import model_draft, random_head, save_draft
from tests.engine.runs import byte_vocabulary
from tests.tiny_models import build_model, tiny_model

TEXT = "one two three one two three one two"
REQUEST = {"text": TEXT, "token_ids": byte_vocabulary().encode(TEXT, raw=False)[1], "max_new_tokens": 24}


@pytest.fixture(scope="module")
def plain_ids(tiny_setup):
    return OwnEngine("plain", tiny_setup).answer(REQUEST)["token_ids"]


@pytest.mark.parametrize("drafter", ["plain", "prompt_lookup", "draft_model", "early_exit"])
def test_ours(drafter, tiny_setup, plain_ids):
    engine = OwnEngine(drafter, tiny_setup)
    made = Generation(**engine.answer(REQUEST))
    assert made.token_ids == plain_ids
    assert made.timed_tokens == len(plain_ids) and made.seconds > 0 < made.first_token_seconds
    assert made.rounds == sum(made.drafted)
    assert made.draft_steps == sum(n * length for length, n in enumerate(made.drafted))
    assert (made.rounds < len(plain_ids)) == (made.draft_steps > 0 and drafter != "plain")
    assert engine.facts["precision"] == "float32" and engine.facts["threads"] >= 1


def own_draft(setup: Setup, folder, make) -> Setup:
    """The tiny pair with a draft folder in place of its draft."""
    return replace(setup, draft=str(save_draft(folder / "draft", make(tiny_model()))))


@pytest.mark.parametrize(("drafter", "make"), [("draft_head", random_head), ("draft_model", model_draft)])
def test_ours_with_a_draft_folder(drafter, make, tiny_setup, plain_ids, tmp_path):
    setup = own_draft(tiny_setup, tmp_path, make)
    assert why_unavailable(drafter, setup) is None
    engine = OwnEngine(drafter, setup)
    made = Generation(**engine.answer(REQUEST))
    assert made.token_ids == plain_ids and made.draft_steps > 0
    assert engine.facts["draft"] is not None and OwnEngine("prompt_lookup", setup).facts["draft"] is None


def test_transformers_assisted_by_a_draft_folder(tiny_setup, plain_ids, tmp_path):
    setup = own_draft(tiny_setup, tmp_path, model_draft)
    engine = TransformersEngine("hf_assisted", setup)
    assert Generation(**engine.answer(REQUEST)).token_ids == plain_ids
    assert engine.facts["draft"] is not None and TransformersEngine("hf_plain", setup).facts["draft"] is None
    other = replace(setup, draft=str(save_draft(tmp_path / "other", model_draft(build_model("llama", seed=3)))))
    with pytest.raises(BadRequest, match="another fingerprint"):
        TransformersEngine("hf_assisted", other)


def test_a_draft_head_is_measured_beside_the_others(tiny_setup, tmp_path):
    setup = own_draft(tiny_setup, tmp_path, random_head)
    request = {"text": TEXT, "token_ids": REQUEST["token_ids"], "drafters": ["none", "draft_head"], "repetitions": 2}
    folded = fold_costs(CostMeter(setup).answer(request)["repetitions"], len(REQUEST["token_ids"]))
    assert folded.c["draft_head"] > 0 and folded.overhead > 0


def test_a_draft_folder_is_checked_before_anything_is_measured(tiny_setup, tmp_path):
    assert inspect_target(own_draft(tiny_setup, tmp_path, random_head)).model is not None
    other = str(save_draft(tmp_path / "other", random_head(build_model("llama", seed=3))))
    with pytest.raises(BadRequest, match=r"another fingerprint.*Choose another draft"):
        inspect_target(replace(tiny_setup, draft=other))


def test_a_step_is_a_drafted_token_or_one_that_found_nothing_to_say():
    assert draft_steps({"draft": [{}, {}], "draft_stop": "confidence"}) == 2
    assert draft_steps({"draft": [], "draft_stop": "confidence"}) == 1
    assert draft_steps({"draft": [], "draft_stop": "no_match"}) == 0


def test_a_prompt_that_is_read_otherwise_is_no_fair_comparison(tiny_setup):
    with pytest.raises(RunFailed, match="other tokens"):
        OwnEngine("plain", tiny_setup).answer({**REQUEST, "token_ids": [1, 2, 3]})


def test_our_drafters_have_their_own_k_unless_told_otherwise():
    own = {drafter: own_settings(drafter, Setup(), 5).num_draft_tokens for drafter in OWN_ENGINES.values()}
    adaptive = dict.fromkeys(("draft_model", "draft_head", "early_exit"), "auto")
    assert own == {"none": 4, "prompt_lookup": 4, **adaptive}
    assert own_settings("draft_head", Setup(num_draft_tokens=3), 5).num_draft_tokens == 3


@pytest.mark.parametrize("k", [None, 3, "auto"])
@pytest.mark.parametrize("name", TRANSFORMERS_ENGINES)
def test_transformers(name, k, tiny_setup, plain_ids):
    setup = Setup(**{**tiny_setup.to_dict(), "num_draft_tokens": k})
    made = Generation(**TransformersEngine(name, setup).answer(REQUEST))
    assert made.token_ids == plain_ids
    assert made.rounds == len(plain_ids) if name == "hf_plain" else made.rounds <= len(plain_ids)
    assert 0 < made.timed_tokens < len(plain_ids)


def test_blocks_are_counted_without_the_prompt_and_timed_without_the_first():
    streamer = ClockStreamer()
    for size in (9, 2, 1, 3):
        streamer.put(torch.zeros(1, size))
    made = streamer.clock.generation([5] * 6, a_block_is_a_round=True)
    assert (made.rounds, made.timed_tokens) == (3, 4)


def test_one_block_has_no_speed():
    streamer = ClockStreamer()
    streamer.put(torch.zeros(1, 9))
    streamer.put(torch.zeros(1, 4))
    assert streamer.clock.generation([5] * 4, a_block_is_a_round=True).tokens_per_second is None


def test_llama_cpp(monkeypatch, tiny_setup):
    class Llama:
        def __init__(self, **options):
            self.options = options

        def reset(self):
            pass

        def token_eos(self):
            return 2

        def generate(self, ids, **options):
            assert options == {"top_k": 1, "temp": 0.0, "repeat_penalty": 1.0}
            yield from [7, 8, 2, 9]

    module = ModuleType("llama_cpp")
    module.Llama = Llama
    monkeypatch.setitem(sys.modules, "llama_cpp", module)
    setup = Setup(**{**tiny_setup.to_dict(), "gguf_file": "/x/model.Q4_1.gguf", "threads": 2})
    engine = LlamaCppEngine(setup)
    assert engine.answer(REQUEST)["token_ids"] == [7, 8, 2]
    assert engine.answer({**REQUEST, "max_new_tokens": 2})["token_ids"] == [7, 8]
    assert engine.facts == {"precision": "Q4_1", "device": "cpu", "threads": 2, "draft": None}


def test_no_gguf_file_without_the_package_and_the_wheel():
    with embedded_gguf_file() as path:
        assert path is None


# --- vLLM, of which only the protocol can be tested --------------------------------------------


class VllmLike(BaseHTTPRequestHandler):
    sends_ids = True

    def do_GET(self):
        self._reply(b'{"data": [{"id": "tiny"}]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (body["model"], body["temperature"], body["stream"]) == ("tiny", 0, True)
        if body["max_tokens"] == 1:
            self.send_error(400, "no")
            return
        blocks = [[7], [8, 9], [2]]
        chunks = [{"choices": [{"text": "x", **({"token_ids": block} if self.sends_ids else {})}]} for block in blocks]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        self._reply("".join([*lines, "data: [DONE]\n\n"]).encode())

    def _reply(self, content):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), VllmLike) as http_server:
        thread = threading.Thread(target=http_server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http_server.server_port}"
        http_server.shutdown()
        thread.join()


@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
def test_vllm(server, suffix):
    made = VllmEngine(Setup(vllm_url=server + suffix)).answer(REQUEST)
    assert made["token_ids"] == [7, 8, 9, 2]
    assert (made["timed_tokens"], made["rounds"]) == (3, None)


def test_vllm_that_refuses_or_is_too_old_or_is_not_there(server, monkeypatch):
    engine = VllmEngine(Setup(vllm_url=server))
    with pytest.raises(RunFailed, match="answered 400"):
        engine.answer({**REQUEST, "max_new_tokens": 1})
    monkeypatch.setattr(VllmLike, "sends_ids", False)
    with pytest.raises(RunFailed, match="no token ids"):
        engine.answer(REQUEST)
    with pytest.raises(RunFailed, match="No server answers"):
        VllmEngine(Setup(vllm_url="http://127.0.0.1:9"))


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://h:99999999", "http://["])
def test_addresses_that_are_none(url):
    with pytest.raises(BadRequest, match="vllm is"):
        server_address(url)


# --- which engines there are --------------------------------------------------------------------


def test_the_names_are_a_promise():
    assert ENGINES == (
        "plain",
        "prompt_lookup",
        "draft_model",
        "draft_head",
        "draft_head_lookup",
        "early_exit",
        "hf_plain",
        "hf_prompt_lookup",
        "hf_assisted",
        "llama_cpp_plain",
        "vllm",
    )
    assert {name for name in ENGINES if name not in PLAIN_OF} == {"vllm"}
    assert {name for name, plain in PLAIN_OF.items() if name == plain} == {"plain", "hf_plain", "llama_cpp_plain"}


def test_an_engine_that_lacks_something_says_what(monkeypatch, tmp_path):
    monkeypatch.setattr(draft_facts, "SHIPPED_DIR", tmp_path / "drafts")
    assert "no draft head" in why_unavailable("draft_head", Setup())
    assert "no draft model" in why_unavailable("draft_model", Setup())
    assert "no draft model" in why_unavailable("hf_assisted", Setup())
    assert "--vllm URL" in why_unavailable("vllm", Setup())
    monkeypatch.setattr("specviz.lab.engines.find_spec", lambda name: None)
    assert "not installed" in why_unavailable("llama_cpp_plain", Setup())
    monkeypatch.setattr("specviz.lab.engines.find_spec", lambda name: object())
    assert "--gguf" in why_unavailable("llama_cpp_plain", Setup())
    head = Setup(draft=str(save_draft(tmp_path / "drafts" / "head", random_head(tiny_model()))))
    assert "is for the drafter draft_head" in why_unavailable("draft_model", head)
    assert "is for the drafter draft_head" in why_unavailable("hf_assisted", head)
    assert why_unavailable("draft_head", head) is why_unavailable("draft_head", Setup()) is None
    assert why_unavailable("plain", Setup()) is None
    assert set(OWN_ENGINES) < set(ENGINES)
    assert set(OWN_ENGINES.values()) == set(DRAFTER_KINDS)
