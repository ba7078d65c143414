"""What a target writes: alone as in a batch, turn by turn, and ended where it only repeats itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from specviz.errors import BadRequest
from specviz.training import writing
from specviz.training.batch_forward import BatchForward
from specviz.training.writing import ChatFrame, Lengths, Sequence, Task, repeated_share, write
from tests.engine.lean_models import lean_int8, some_ids
from tests.tiny_tokenizers import IM_END, IM_START, byte_level_tokenizer, llama2_tokenizer
from tests.training.tiny_teachers import END, FRAME, HEADER, MIDDLE, SHORT, tiny_teacher

LAYERS = (0, 2, 3)


def written(indices, *, rows=8, seed=5, frame=FRAME, lengths=SHORT, model=None, layers=LAYERS):
    """{number: what was written} of some numbers."""
    model = model or tiny_teacher().model
    sequences = write(model, frame, iter(indices), seed=seed, rows=rows, lengths=lengths, feature_layers=layers)
    return {sequence.index: sequence for sequence in sequences}


@pytest.fixture
def nothing_is_dropped(monkeypatch):
    monkeypatch.setattr(writing, "MOST_REPEATED_IN_ALL", 1.0)


def some_sequence(frame=FRAME, lengths=SHORT):
    """One whose user begins without an opening."""
    return next(s for s in (Sequence(n, frame, lengths, 1) for n in range(50)) if not s._forced)


@pytest.mark.parametrize("shape", ["grouped", "heads wider than hidden", "narrow heads, odd widths"])
def test_a_sequence_is_bit_for_bit_the_same_alone_and_beside_others(shape, nothing_is_dropped):
    model = lean_int8(shape)
    together = written(range(24), rows=16, model=model)
    assert sorted(together) == list(range(24))
    assert len({len(sequence.ids) for sequence in together.values()}) > 1
    for index in (0, 7, 23):
        (alone,) = written([index], rows=1, model=model).values()
        np.testing.assert_array_equal(alone.ids, together[index].ids)
        assert alone.answer_start == together[index].answer_start
        np.testing.assert_array_equal(alone.features, together[index].features)
        np.testing.assert_array_equal(alone.log_sums, together[index].log_sums)


def test_rows_at_their_own_lengths_are_forwards_of_their_own():
    model = tiny_teacher().model
    texts = [some_ids(length, length) for length in (5, 9, 2)]
    batch = BatchForward(model, 3, 16)
    still = np.zeros(3, np.float32)
    features, log_sums = [[], [], []], [[], [], []]
    for place in range(9):
        batch.lengths[:] = np.minimum(place, [len(text) - 1 for text in texts])
        fed = [text[min(place, len(text) - 1)] for text in texts]
        output = batch.step(fed, still, still, (1, 3))
        for row, text in enumerate(texts):
            if place < len(text):
                features[row].append(torch.stack([output.features[layer][row] for layer in (1, 3)]))
                log_sums[row].append(output.log_sums[row])
    for row, text in enumerate(texts):
        whole = model.forward(text, model.new_cache(), feature_layers=(1, 3))
        expected = torch.stack([whole.features[layer] for layer in (1, 3)], 1)
        assert torch.equal(torch.stack(features[row]), expected)
        np.testing.assert_allclose(log_sums[row], whole.logits.logsumexp(-1), rtol=1e-5)


def test_a_greedy_answer_is_what_plain_decoding_says(monkeypatch, nothing_is_dropped):
    monkeypatch.setattr(writing, "ANSWER_TEMPERATURES", (0.0,))
    model = tiny_teacher().model
    for sequence in written(range(6)).values():
        ids = sequence.ids.tolist()
        cache = model.new_cache()
        plain, fed = ids[: sequence.answer_start], ids[: sequence.answer_start]
        while len(plain) < len(ids):
            plain.append(int(model.forward(fed, cache).logits[-1].argmax()))
            fed = plain[-1:]
        assert plain == ids
        assert ids[-1] in FRAME.ends or len(ids) - sequence.answer_start == SHORT.answer


def test_a_seed_and_a_number_decide_what_a_sequence_says(nothing_is_dropped):
    first, again, other = written(range(6)), written(reversed(range(6)), rows=2), written(range(6), seed=6)
    for index in range(6):
        assert first[index].ids.tolist() == again[index].ids.tolist()
    assert any(first[index].ids.tolist() != other[index].ids.tolist() for index in range(6))
    assert len({tuple(sequence.ids) for sequence in first.values()}) == 6


def test_every_sequence_begins_with_the_header_and_has_the_middle_before_its_answer(nothing_is_dropped):
    for sequence in written(range(24)).values():
        ids, start = tuple(sequence.ids.tolist()), sequence.answer_start
        assert ids[:3] == HEADER and ids[start - 3 : start] == MIDDLE
        user = ids[3 : start - 3]
        assert len(user) <= SHORT.user and not set(user) & {MIDDLE[0], *FRAME.ends}
        assert 1 <= len(ids) - start <= SHORT.answer
        assert not set(ids[start:-1]) & FRAME.ends


def test_what_is_known_of_each_token(nothing_is_dropped):
    for sequence in written(range(8)).values():
        unknown = np.isnan(sequence.log_sums)
        assert unknown.nonzero()[0].tolist() == [0, 1, len(sequence.ids) - 1]
        assert sequence.features.shape == (len(sequence.ids), len(LAYERS), 48)
        assert sequence.features[:-1].any(-1).all() and not sequence.features[-1].any()


def test_some_users_begin_with_an_opening_and_go_on_in_their_own_words(nothing_is_dropped):
    starts = [tuple(sequence.ids[3:5].tolist()) for sequence in written(range(48)).values()]
    assert 5 < sum(start == (20, 21) or start[0] == 22 for start in starts) < 40


def test_an_opening_may_fill_the_users_turn_and_everything_still_fits(nothing_is_dropped):
    frame = ChatFrame(HEADER, MIDDLE, FRAME.ends, (tuple(range(30, 60)),))
    sequences = written(range(12), frame=frame, lengths=Lengths(4, 8)).values()
    opened = [sequence for sequence in sequences if tuple(sequence.ids[3:33]) == tuple(range(30, 60))]
    assert opened and all(sequence.answer_start - 36 <= 1 for sequence in opened)


def test_a_header_of_one_token_needs_no_pass_before(nothing_is_dropped):
    frame = ChatFrame((1,), (), frozenset([END]))
    sequences = written(range(6), frame=frame)
    for sequence in sequences.values():
        assert sequence.ids[0] == 1 and sequence.answer_start == 1
        assert np.isnan(sequence.log_sums).nonzero()[0].tolist() == [len(sequence.ids) - 1]


def test_more_rows_than_sequences_and_none_at_all(nothing_is_dropped):
    assert sorted(written(range(3), rows=8)) == [0, 1, 2]
    assert written([]) == {}


def test_a_request_to_stop_is_heard_at_the_next_token():
    asked = []
    sequences = write(
        tiny_teacher().model,
        FRAME,
        iter(range(100)),
        seed=1,
        rows=4,
        lengths=Lengths(100, 100),
        feature_layers=(),
        should_stop=lambda: asked.append(0) or len(asked) > 3,
    )
    assert list(sequences) == [] and len(asked) == 4


def test_the_middle_is_forced_once_its_first_token_is_written():
    sequence = some_sequence()
    for chosen in (50, 51, MIDDLE[0], 99, 99, 60):
        assert sequence.extend(chosen)
    assert sequence.ids == [*HEADER, 50, 51, *MIDDLE, 60]
    assert sequence.answer_start == 8
    assert not sequence.extend(END)
    assert sequence.ids[-1] == END


def test_an_end_token_ends_the_users_turn_too():
    sequence = some_sequence()
    sequence.extend(50)
    sequence.extend(END)
    assert sequence.ids == [*HEADER, 50, MIDDLE[0]] and sequence.answer_start == 7


def test_a_user_who_goes_on_too_long_is_cut_short():
    sequence = some_sequence()
    for step in range(SHORT.user + 5):
        sequence.extend(100 + step)
    assert sequence.answer_start == len(HEADER) + SHORT.user + len(MIDDLE)
    assert sequence.ids[sequence.answer_start - 3 : sequence.answer_start] == list(MIDDLE)


def test_the_temperature_is_the_answers_once_the_middle_begins(monkeypatch):
    monkeypatch.setattr(writing, "USER_TEMPERATURES", (0.9,))
    monkeypatch.setattr(writing, "ANSWER_TEMPERATURES", (0.0,))
    sequence = some_sequence()
    assert sequence.temperature == 0.9
    sequence.extend(MIDDLE[0])
    assert sequence.temperature == 0.0


def test_an_answer_that_loops_ends_and_keeps_what_came_before():
    sequence = some_sequence(lengths=Lengths(12, 400))
    sequence.extend(MIDDLE[0])
    own = [10 + token_id for token_id in some_ids(100, 1, 290)]
    loop = [301, 302, 303, 304, 305] * 60
    tokens = iter([*MIDDLE[1:], *own, *loop])
    while sequence.extend(next(tokens)):
        pass
    answer = sequence.ids[sequence.answer_start :]
    assert answer == own[: len(answer)]
    assert 64 < len(answer) < 100 and len(answer) % writing.CHECKED_EVERY == 0


def test_an_answer_that_does_not_loop_is_as_long_as_it_may_be():
    sequence = some_sequence(lengths=Lengths(12, 200))
    sequence.extend(MIDDLE[0])
    tokens = iter([*MIDDLE[1:], *some_ids(300, 1, 300)])
    ends = FRAME.ends
    while sequence.extend(
        10 if (token := next(tokens)) in ends and sequence.answer_start < len(sequence.ids) else token
    ):
        pass
    assert len(sequence.ids) - sequence.answer_start == 200


def test_the_repeated_share_of_a_text():
    assert repeated_share([1, 2, 3]) == 0
    assert repeated_share(list(range(50))) == 0
    assert repeated_share([1, 2, 3, 4] * 2) == pytest.approx(1 / 5)
    assert repeated_share([7] * 103) == pytest.approx(99 / 100)
    text = [*range(50), *range(50)]
    assert repeated_share(text, 50) == pytest.approx(47 / 47)
    assert repeated_share(text) == pytest.approx(47 / 97)


def test_a_sequence_that_mostly_repeats_itself_or_says_nothing_is_dropped():
    def worth(tokens):
        sequence = some_sequence(lengths=Lengths(200, 200))
        sequence.ids += tokens
        return sequence.is_worth_keeping()

    assert worth(list(range(20, 60)))
    assert not worth([20, 21] * 30)
    assert not worth(list(range(20, 28)))


def test_the_frame_of_a_chat_template():
    tokenizer = byte_level_tokenizer()
    frame = ChatFrame.of(tokenizer, frozenset([END]))
    start, end = (tokenizer.convert_tokens_to_ids(token) for token in (IM_START, IM_END))
    assert frame.header[0] == start and frame.middle[0] == end
    assert tokenizer.decode(frame.header) == "<|im_start|>user\n"
    assert tokenizer.decode(frame.middle) == "<|im_end|>\n<|im_start|>assistant\n"
    assert len(frame.openings) > 40 and all(frame.openings)
    said = [{"role": "user", "content": "one two"}]
    own = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
    words = tokenizer("one two", add_special_tokens=False)["input_ids"]
    assert tuple(own) == (*frame.header, *words, *frame.middle)


def test_the_frame_without_a_chat_template_is_the_first_token():
    tokenizer = llama2_tokenizer()
    assert ChatFrame.of(tokenizer, frozenset([END])) == ChatFrame((tokenizer.bos_token_id,), (), frozenset([END]))


@pytest.mark.parametrize(
    ("template", "header", "middle"),
    [
        ("{{ messages[0]['content'] }}</s>", "<s>", "</s>"),
        ("<|im_start|>{{ messages[0]['content'] }}", "<s>", ""),
        ("<|im_start|>no words are taken<|im_end|>", "<s>", ""),
    ],
)
def test_templates_that_leave_something_out(template, header, middle):
    tokenizer = byte_level_tokenizer().__class__(tokenizer_object=byte_level_tokenizer().backend_tokenizer)
    tokenizer.bos_token, tokenizer.eos_token, tokenizer.chat_template = "<s>", "</s>", template
    frame = ChatFrame.of(tokenizer, frozenset([END]))
    assert (tokenizer.decode(frame.header), tokenizer.decode(frame.middle)) == (header, middle)


def test_lengths_are_cut_to_the_context():
    assert Lengths(100, 200).within(1000, FRAME) == Lengths(100, 200)
    shorter = Lengths(100, 200).within(129, FRAME)
    assert shorter == Lengths(40, 80)
    assert Sequence(0, FRAME, shorter, 1).longest == 129
    with pytest.raises(BadRequest, match="has a context of 40 tokens, of which its chat template leaves 31"):
        Lengths().within(40, FRAME)


TASKED = replace(FRAME, tasks=(Task((30, 31), (32,), False), Task((33,), (), True)))
LONG = Lengths(user=12, answer=60)


def conversations_and_tasks(**options):
    """[(a conversation, the sequence about its answer or None)] of some numbers, in the order of the numbers."""
    options = {"rows": 8, "seed": 5, "lengths": LONG, "feature_layers": LAYERS} | options
    by_number = {}
    for sequence in write(tiny_teacher().model, TASKED, iter(range(24)), **options):
        by_number.setdefault(sequence.index, []).append(sequence)
    return [(each[0], each[1] if each[1:] else None) for _, each in sorted(by_number.items())]


def test_some_answers_are_given_back_as_a_text_to_work_on(nothing_is_dropped):
    pairs = conversations_and_tasks()
    assert all((task is None) == conversation.is_last for conversation, task in pairs)
    tasks = [(conversation, task) for conversation, task in pairs if task is not None]
    assert 0 < len(tasks) < len(pairs)
    kinds = set()
    for conversation, task in tasks:
        assert task.is_last
        if not len(task.ids):
            continue  # it said next to nothing
        text = conversation.ids[conversation.answer_start :].tolist()
        text = text[:-1] if text[-1] in TASKED.ends else text
        assert len(text) >= writing.LEAST_TEXT
        ids = task.ids.tolist()
        kind = TASKED.tasks[0 if ids[len(HEADER)] == 30 else 1]
        kinds.add(kind.goes_on)
        given = [*HEADER, *kind.before, *text, *kind.after]
        assert ids[: len(given)] == given
        assert tuple(ids[task.answer_start - len(MIDDLE) : task.answer_start]) == MIDDLE
        added = task.answer_start - len(MIDDLE) - len(given)
        assert added <= writing.QUESTION if kind.goes_on else added == 0
        assert np.isfinite(task.log_sums[len(HEADER) - 1 : -1]).all()
    assert kinds == {True, False}


def test_a_conversation_is_the_same_whether_its_answer_is_worked_on_or_not(nothing_is_dropped):
    plain = written(range(24), lengths=LONG)
    for index, (conversation, _) in enumerate(conversations_and_tasks()):
        np.testing.assert_array_equal(conversation.ids, plain[index].ids)


def test_tasks_are_the_same_alone_and_beside_others(nothing_is_dropped):
    for (_, task), (_, alone) in zip(conversations_and_tasks(), conversations_and_tasks(rows=1), strict=True):
        assert (task is None) == (alone is None)
        if task is not None:
            np.testing.assert_array_equal(task.ids, alone.ids)
            np.testing.assert_array_equal(task.features, alone.features)


def test_a_text_that_does_not_fit_into_the_context_is_not_worked_on(nothing_is_dropped):
    sequences = [Sequence(number, TASKED, LONG, 1) for number in range(40)]
    for sequence in sequences:
        sequence.ids += [*MIDDLE, *range(40, 90)]
        sequence.answer_start = len(HEADER) + len(MIDDLE)
    tasks = [sequence.task(1000) for sequence in sequences]
    assert 0 < sum(task is not None for task in tasks) < len(tasks)
    longest = next(task.longest for task in tasks if task)
    assert all(sequence.task(longest - 3) is None for sequence in sequences)
    assert all(task.task(1000) is None for task in tasks if task)


def test_a_line_of_the_tasks_file():
    ids = lambda text: tuple(text.encode())  # noqa: E731
    assert Task.of("Sum up:\\n{text}", ids) == Task(ids("Sum up:\n"), (), False)
    assert Task.of("{text} Question: Who...", ids) == Task((), ids(" Question: Who"), True)
    lines = writing.TASKS_FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) > 20 and all(line.count(writing.TEXT_PLACE) == 1 for line in lines)
