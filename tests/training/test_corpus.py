"""Shards on disk: what is written is read, and what is damaged, or another's, is refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from specviz.errors import BadRequest
from specviz.training import corpus as corpora
from specviz.training.corpus import Corpus, Shard
from tests.training.tiny_teachers import some_shard

FACTS = {"target": "tiny", "seed": 1, "lengths": {"user": 120, "answer": 256}}


@pytest.fixture
def corpus(tmp_path):
    return Corpus(tmp_path / "text")


def save_raw(corpus, number=0, **changes):
    corpus.folder.mkdir(exist_ok=True)
    arrays = {"ids": np.arange(12), "lengths": np.array([5, 7]), "answer_starts": np.array([2, 3])} | changes
    np.savez(corpus.path(number), **{name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize("vocab_size", [400, 1 << 16, 100_000])
def test_a_shard_is_read_as_it_was_written(corpus, vocab_size):
    ids = np.array([0, 5, vocab_size - 1, 3, 2, 1, 0, 9])
    corpus.write(Shard.of(7, [(ids[:3], 1), (ids[3:], 4)]), vocab_size)
    shard = corpus.read(7)
    assert shard.number == 7 and len(shard) == 2
    assert [shard.sequence(index).tolist() for index in range(2)] == [ids[:3].tolist(), ids[3:].tolist()]
    assert shard.answer_starts.tolist() == [1, 4]
    assert shard.ids.dtype == np.int64


def test_a_shard_without_sequences(corpus):
    corpus.write(Shard.of(0, []), 400)
    assert len(corpus.read(0)) == 0 and corpus.num_tokens() == 0


def test_numbers_and_tokens_of_what_is_there(corpus):
    assert corpus.numbers() == [] and corpus.num_tokens() == 0
    shards = [some_shard(number, 4) for number in (3, 0)]
    for shard in shards:
        corpus.write(shard, 400)
    (corpus.folder / "ids-notes.npz").write_text("not ours")
    assert corpus.numbers() == [0, 3]
    assert corpus.num_tokens() == sum(len(shard.ids) for shard in shards)
    assert [shard.number for shard in corpus.shards()] == [0, 3]


def test_the_first_shards_that_hold_so_many_tokens(corpus):
    for number in range(4):
        corpus.write(Shard.of(number, [(np.arange(10), 2)]), 400)
    held = {wanted: [shard.number for shard in corpus.shards(wanted)] for wanted in (1, 10, 11, 40, 41)}
    assert held == {1: [0], 10: [0], 11: [0, 1], 40: [0, 1, 2, 3], 41: [0, 1, 2, 3]}


def test_the_shards_after_those_that_hold_so_many_tokens(corpus):
    for number in range(4):
        corpus.write(Shard.of(number, [(np.arange(10), 2)]), 400)
    after = {left_out: [shard.number for shard in corpus.shards(35, left_out)] for left_out in (0, 1, 10, 11, 30, 31)}
    assert after == {0: [0, 1, 2, 3], 1: [1, 2, 3], 10: [1, 2, 3], 11: [2, 3], 30: [3], 31: []}


def test_nothing_partial_is_left_beside_the_shards(corpus):
    corpus.write(some_shard(0, 2), 400)
    assert [path.name for path in corpus.folder.iterdir()] == ["ids-00000.npz"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x80\x04cpickled"])
def test_what_is_no_shard_is_refused(corpus, content):
    corpus.folder.mkdir()
    corpus.path(0).write_bytes(content)
    with pytest.raises(BadRequest, match=r"ids-00000.npz cannot be read as a shard of token ids \(.*\): delete it"):
        corpus.read(0)


def test_a_shard_that_was_cut_off_is_refused(corpus):
    corpus.write(some_shard(0, 20), 400)
    content = corpus.path(0).read_bytes()
    corpus.path(0).write_bytes(content[: len(content) // 2])
    with pytest.raises(BadRequest, match="cannot be read as a shard"):
        corpus.read(0)


@pytest.mark.parametrize("lacking", ["ids", "lengths", "answer_starts"])
def test_a_shard_that_lacks_something_is_refused(corpus, lacking):
    save_raw(corpus, **{lacking: None})
    with pytest.raises(BadRequest, match="cannot be read as a shard"):
        corpus.read(0)


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": np.arange(11)},
        {"lengths": np.array([5, 6])},
        {"lengths": np.array([12])},
        {"answer_starts": np.array([2])},
        {"answer_starts": np.array([2, 7])},
        {"answer_starts": np.array([5, 3])},
    ],
)
def test_a_shard_that_contradicts_itself_is_refused(corpus, changes):
    save_raw(corpus, **changes)
    with pytest.raises(BadRequest, match="is not consistent: delete it, it is written again"):
        corpus.read(0)


def test_a_new_folder_is_claimed_and_claimed_again(corpus):
    corpus.claim(FACTS)
    corpus.write(some_shard(0, 2), 400)
    corpus.claim(FACTS)
    corpus.require({"target": "tiny"})
    assert corpus.facts() == FACTS


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"target": "large"}, "holds text whose target is 'tiny', and now it is 'large': name another folder"),
        ({"seed": 2}, "holds text whose seed is 1, and now it is 2"),
        ({"lengths": {"user": 1, "answer": 2}}, "holds text whose lengths is"),
    ],
)
def test_the_folder_of_another_text_is_refused(corpus, change, sentence):
    corpus.claim(FACTS)
    for ask in (corpus.claim, corpus.require):
        with pytest.raises(BadRequest, match=sentence):
            ask(FACTS | change)


@pytest.mark.parametrize("about", [None, "", "{", "[1]"])
def test_text_of_unknown_origin_is_refused(corpus, about):
    corpus.write(some_shard(0, 2), 400)
    if about is not None:
        (corpus.folder / corpora.ABOUT_FILE).write_text(about)
    with pytest.raises(BadRequest, match=r"about.json .*: restore it, or name another folder"):
        corpus.claim(FACTS)


def test_equal_prompts_fall_on_the_same_side(monkeypatch):
    monkeypatch.setattr(corpora, "HELD_OUT_EVERY", 3)
    prompts = [np.arange(start, start + 6) for start in range(60)]
    answers = [np.full(4, 100 + turn) for turn in range(3)]
    shard = Shard.of(0, [(np.concatenate([prompt, answer]), 6) for answer in answers for prompt in prompts])
    sides = np.array([shard.is_held_out(index) for index in range(len(shard))]).reshape(3, 60)
    assert (sides == sides[0]).all()
    assert 8 < sides[0].sum() < 35


def test_a_text_and_what_is_asked_about_it_fall_on_the_same_side(monkeypatch):
    monkeypatch.setattr(corpora, "HELD_OUT_EVERY", 3)
    texts = [np.arange(start, start + 50) for start in range(60)]
    quoting = [(np.concatenate([[7, 7], text[6:-1], [9, at, 3, 4]]), 47) for at, text in enumerate(texts)]
    shard = Shard.of(0, [one for text, task in zip(texts, quoting, strict=True) for one in ((text, 6), task)])
    sides = np.array([shard.is_held_out(index) for index in range(len(shard))]).reshape(60, 2)
    assert (sides[:, 0] == sides[:, 1]).all()
    assert 8 < sides[:, 0].sum() < 35


def test_about_one_prompt_in_forty_is_held_out():
    shard = Shard.of(0, [(np.arange(start, start + 9), 6) for start in range(4000)])
    assert 60 < sum(map(shard.is_held_out, range(len(shard)))) < 145


def test_without_a_chat_template_the_first_words_decide(monkeypatch):
    monkeypatch.setattr(corpora, "HELD_OUT_EVERY", 3)
    texts = [np.array([1, *range(start, start + 8), end]) for start in range(40) for end in (7, 9)]
    shard = Shard.of(0, [(text, 1) for text in texts])
    sides = np.array([shard.is_held_out(index) for index in range(len(shard))]).reshape(40, 2)
    assert (sides[:, 0] == sides[:, 1]).all()
    assert 4 < sides[:, 0].sum() < 25
