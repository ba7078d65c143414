"""Token texts: what each token adds to the text, in its place, for every kind of tokenizer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specviz.engine.tokens import TokenTexts, prompt_info
from specviz.engine.vocabulary import Vocabulary
from specviz.errors import BadRequest
from tests.engine.runs import finished, new_ids, rounds, run_events
from tests.table_model import ScriptedDrafter, TableModel
from tests.tiny_tokenizers import EOS, HARD_TEXT, IM_END, IM_START, TOKENIZER_KINDS, byte_level_tokenizer

REPLACEMENT = "\ufffd"
BYTE_KINDS = ("byte_level", "llama2")
TEXTS = [
    HARD_TEXT,
    "한국어와 日本語、中文",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, e\u0301 combined",
    "  two spaces, trailing  ",
    "def f(x):\n\treturn x\n\n",
    "<s> is not </s> text <|im_end|>",
    "hello hello hello",
    "مرحبا नमस्ते",
    "",
]
any_kind = pytest.mark.parametrize("kind", list(TOKENIZER_KINDS))


def vocabulary_of(kind: str) -> Vocabulary:
    return Vocabulary(TOKENIZER_KINDS[kind]())


def ids_of(kind: str, text: str) -> list[int]:
    return TOKENIZER_KINDS[kind]()(text, add_special_tokens=False).input_ids


def tokens_of(vocabulary: Vocabulary, token_ids: list[int]) -> list[dict]:
    texts = TokenTexts(vocabulary)
    return [texts.append(token_id) for token_id in token_ids]


def joined(tokens: list[dict]) -> str:
    return "".join(token["text"] for token in tokens)


@any_kind
@pytest.mark.parametrize("text", TEXTS)
def test_joined_texts_are_the_decoded_text(kind, text):
    # callummcdougall/sae_vis #55, huggingface/transformers #22710 and #28776: tokens decoded one by one.
    ids = ids_of(kind, text)
    assert joined(tokens_of(vocabulary_of(kind), ids)) == TOKENIZER_KINDS[kind]().decode(ids)


@pytest.mark.parametrize("kind", BYTE_KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_text_through_byte_tokenizers_comes_out_whole(kind, text):
    tokens = tokens_of(vocabulary_of(kind), ids_of(kind, text))
    assert REPLACEMENT not in joined(tokens)
    if "<" not in text:  # the Llama-2 kind puts a space after a special token
        assert joined(tokens) == text


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_parts_of_a_character_are_marked_with_their_bytes(kind):
    tokens = tokens_of(vocabulary_of(kind), ids_of(kind, HARD_TEXT))
    parts = [token for token in tokens if "bytes" in token]
    assert bytes.fromhex("".join(token["bytes"] for token in parts)).decode() == "👩‍🚀한국어"
    waiting = [token for token in parts if not token["text"]]
    assert len(waiting) >= 10
    assert all(token["text"] or token["bytes"] for token in tokens), "an empty text has its reason beside it"


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_a_character_belongs_to_the_token_that_completes_it(kind):
    tokens = tokens_of(vocabulary_of(kind), ids_of(kind, "x👩"))
    assert tokens[-1]["text"] == "👩"
    assert [token["text"] for token in tokens[-4:-1]] == ["", "", ""]


@any_kind
def test_leading_spaces_inside_the_text_are_kept(kind):
    tokens = tokens_of(vocabulary_of(kind), ids_of(kind, "the quick brown fox"))
    assert joined(tokens) == "the quick brown fox"
    assert joined(tokens[1:]) != "".join(t["text"].lstrip() for t in tokens[1:])


@any_kind
def test_special_tokens_are_marked_and_written_out(kind):
    tokenizer = TOKENIZER_KINDS[kind]()
    ids = [tokenizer.bos_token_id, *ids_of(kind, "hello"), tokenizer.convert_tokens_to_ids(IM_END)]
    tokens = tokens_of(vocabulary_of(kind), ids)
    assert [bool(token.get("special")) for token in tokens] == [True, *[False] * (len(ids) - 2), True]
    assert tokens[-1]["text"].strip() == IM_END
    assert joined(tokens) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_dangling_bytes_of_a_last_character_are_in_no_text(kind):
    ids = ids_of(kind, "caf 👩")[:-1]
    tokens = tokens_of(vocabulary_of(kind), ids)
    assert joined(tokens) == "caf "
    assert [token.get("bytes") for token in tokens[-3:]] == ["f0", "9f", "91"]


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_a_character_that_can_no_longer_be_finished_shows_as_the_decode_shows_it(kind):
    vocabulary = vocabulary_of(kind)
    unfinished = ids_of(kind, "a👩")[:-1]
    ids = [*unfinished, *ids_of(kind, "b")]
    tokens = tokens_of(vocabulary, ids)
    assert joined(tokens) == vocabulary.decode(ids)
    assert REPLACEMENT in joined(tokens)


def is_one_unfinished_character(rest: str) -> bool:
    """Whether a decode's rest can be the dangling bytes of one character (1 to 3 of them)."""
    return len(rest) <= 3 and set(rest) <= {REPLACEMENT}


@any_kind
@given(data=st.data())
def test_whatever_the_ids_joined_texts_are_the_decode_less_an_unfinished_character(kind, data):
    vocabulary = vocabulary_of(kind)
    ids = data.draw(st.lists(st.integers(0, vocabulary.size - 1), max_size=14))
    text, whole = joined(tokens_of(vocabulary, ids)), vocabulary.decode(ids)
    assert whole.startswith(text)
    assert is_one_unfinished_character(whole[len(text) :])


@given(data=st.data())
def test_bytes_in_any_order_are_given_out_as_soon_as_they_are_final(data):
    vocabulary = vocabulary_of("byte_level")
    pieces = ["é", "👩", "한"]
    byte_ids = [token_id for piece in pieces for token_id in ids_of("byte_level", piece)]
    ids = data.draw(st.lists(st.sampled_from(byte_ids), max_size=10))
    text, whole = joined(tokens_of(vocabulary, ids)), vocabulary.decode(ids)
    assert whole.startswith(text)
    assert whole[len(text) :] in ("", REPLACEMENT), "one unfinished character decodes to one U+FFFD"


@any_kind
@given(text=st.text(max_size=12))
def test_whatever_the_text_joined_texts_are_the_decode(kind, text):
    ids = ids_of(kind, text)
    assert joined(tokens_of(vocabulary_of(kind), ids)) == TOKENIZER_KINDS[kind]().decode(ids)


@any_kind
@given(data=st.data())
def test_a_forks_tokens_are_those_of_the_sequence_and_leave_it_alone(kind, data):
    vocabulary = vocabulary_of(kind)
    one_id = st.integers(0, vocabulary.size - 1)
    base = data.draw(st.lists(one_id, max_size=10))
    drafts = [data.draw(st.lists(one_id, max_size=4)) for _ in range(2)]
    texts = TokenTexts(vocabulary, base)
    for draft in drafts:
        fork = texts.fork()
        assert [fork.append(i) for i in draft] == tokens_of(vocabulary, base + draft)[len(base) :]
    after = [texts.append(i) for i in drafts[0]]
    assert after == tokens_of(vocabulary, base + drafts[0])[len(base) :]


@any_kind
def test_a_long_text_costs_no_more_per_token_than_a_short_one(kind, monkeypatch):
    vocabulary = vocabulary_of(kind)
    texts = TokenTexts(vocabulary)
    lengths: list[int] = []
    decode = vocabulary.decode
    monkeypatch.setattr(vocabulary, "decode", lambda ids: lengths.append(len(ids)) or decode(ids))
    for token_id in ids_of(kind, "the quick brown fox " * 40):
        texts.append(token_id)
    assert max(lengths) <= 40, "a window of the text is decoded, not all of it"


@any_kind
def test_ids_beyond_the_tokenizer_never_crash_the_texts(kind):
    # Padded heads can name ids that no token has: huggingface/transformers #45307.
    vocabulary = vocabulary_of(kind)
    beyond = vocabulary.size + 100
    tokens = tokens_of(vocabulary, [*ids_of(kind, "hello"), beyond, *ids_of(kind, "world")])
    assert [token["id"] for token in tokens].count(beyond) == 1
    assert isinstance(vocabulary.lone_text(beyond), str)


@any_kind
def test_lone_texts_keep_their_space(kind):
    vocabulary = vocabulary_of(kind)
    second = ids_of(kind, "the quick")
    spaced = [vocabulary.lone_text(token_id) for token_id in second]
    assert any(text.startswith(" ") for text in spaced[1:])


@any_kind
def test_every_token_object_is_json_plain(kind):
    for token in tokens_of(vocabulary_of(kind), ids_of(kind, HARD_TEXT)):
        assert type(token["id"]) is int
        assert type(token["text"]) is str
        assert set(token) <= {"id", "text", "bytes", "special"}


# --- prompts ----------------------------------------------------------------------------------


def test_a_prompt_goes_through_the_chat_template():
    vocabulary = vocabulary_of("byte_level")
    templated, ids = vocabulary.encode("hello world", raw=False)
    assert templated == f"{IM_START}user\nhello world{IM_END}\n{IM_START}assistant\n"
    assert vocabulary.decode(ids) == templated
    assert ids.count(vocabulary.tokenizer.convert_tokens_to_ids(IM_START)) == 2


def test_a_raw_prompt_does_not_go_through_the_template():
    templated, ids = vocabulary_of("byte_level").encode("hello world", raw=True)
    assert templated == "hello world"
    assert ids == byte_level_tokenizer()("hello world").input_ids


def test_a_tokenizer_without_a_template_reads_the_prompt_raw():
    vocabulary = vocabulary_of("llama2")
    assert vocabulary.encode("hello", raw=False) == vocabulary.encode("hello", raw=True)


def test_an_empty_raw_prompt_begins_with_the_tokenizers_first_token():
    vocabulary = vocabulary_of("byte_level")
    assert vocabulary.encode("", raw=True)[1] == [vocabulary.tokenizer.bos_token_id]


def test_a_lone_surrogate_is_refused_by_name_and_place():
    with pytest.raises(BadRequest, match=r"ud800.*position 2"):
        vocabulary_of("byte_level").encode("ab\ud800", raw=True)


@any_kind
def test_the_pieces_of_a_prompt_join_to_what_the_target_reads(kind):
    vocabulary = vocabulary_of(kind)
    text = HARD_TEXT + EOS + "end"
    _, ids = vocabulary.encode(text, raw=True)
    info = prompt_info(vocabulary, text, text, ids)
    assert "".join(info["pieces"]) == vocabulary.decode(ids)
    assert len(info["pieces"]) == len(info["token_ids"]) == len(ids)
    assert [ids[index] for index in info["special"]] == [i for i in ids if i in vocabulary.special_ids]
    assert "".join(info["pieces"]).count(EOS) == 1


# --- through the engine -----------------------------------------------------------------------


class SayingModel(TableModel):
    """Says a given text, token by token, after a prompt of one token."""

    def __init__(self, script: list[int], vocab_size: int) -> None:
        super().__init__(torch.zeros(vocab_size, vocab_size))
        self.script = script

    def logits_after(self, ids):
        logits = torch.zeros(self.vocab_size)
        logits[self.script[min(len(ids), len(self.script)) - 1]] = 9.0
        return logits


@any_kind
@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_chips_of_a_run_join_to_its_text_also_where_a_draft_breaks_a_character(kind, k):
    vocabulary, script = vocabulary_of(kind), ids_of(kind, HARD_TEXT)
    target = SayingModel(script, vocabulary.size)

    def often_wrong(committed, num_asked, round_index):
        right = script[len(committed) - 1 : len(committed) - 1 + num_asked]
        return [*right[:-1], 7] if round_index % 2 else right

    events = run_events(
        target,
        [script[0]],
        vocabulary=vocabulary,
        drafter=ScriptedDrafter(often_wrong),
        drafter_kind="draft_model",
        num_draft_tokens=k,
        max_new_tokens=len(script),
        trace_detail="full",
    )
    chips = []
    for event in rounds(events):
        chips += [token["text"] for token in event["draft"] if token["status"] == "accepted"]
        chips += [event["extra"]["text"]] if event["extra"] else []
    assert new_ids(events) == script
    assert "".join(chips) == finished(events)["text"]
    # In its place behind the prompt's token, the text keeps the space that a decode from its start may drop.
    anchor = vocabulary.decode([script[0]])
    assert anchor + "".join(chips) == vocabulary.decode([script[0], *script])
    assert HARD_TEXT in "".join(chips)
    assert REPLACEMENT not in "".join(chips)
    assert finished(events)["counts"]["rejected"] > 0
