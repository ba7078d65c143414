"""The target writes its own training text: conversations of one turn, of which only the chat header is given.

The prompt is the target's own too, sampled (the idea of Magpie, Xu et al. 2024, arXiv 2406.08464);
some begin with a few words from `assets/training/openings.txt`, so that all kinds of tasks occur. The
answers are greedy or sampled. Many answers are then given back as a text to work on (summarise, translate, ask
about: `assets/training/tasks.txt`), so that a draft learns to look things up in a long prompt. What a sequence
says is a function of the seed and its number alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from specviz.engine.lean_model import LeanModel
from specviz.errors import BadRequest
from specviz.training.batch_forward import BatchForward

TRAINING_DIR = Path(__file__).resolve().parents[2] / "assets" / "training"
OPENINGS_FILE, TASKS_FILE = TRAINING_DIR / "openings.txt", TRAINING_DIR / "tasks.txt"
SHARE_WITH_OPENING = 0.4
USER_TEMPERATURES = (0.7, 0.8, 1.0)  # drawn from with equal chances
ANSWER_TEMPERATURES = (0.0, 0.0, 0.7, 1.0)
TASK_TEMPERATURES = (0.0, 0.0, 0.0, 0.7)  # of answers about a text
SHARE_WITH_TASK = 0.7  # of the answers that are long enough to be worked on
LEAST_TEXT = 40  # tokens of an answer that is given back
QUESTION = 40  # the most tokens that the target adds to a task
TEXT_PLACE, GOES_ON = "{text}", "..."
GRAM = 4  # tokens
LOOP_WINDOW, MOST_REPEATED = 64, 0.5  # an answer ends where half of so many 4-grams have been there before
CHECKED_EVERY = 16  # tokens
MOST_REPEATED_IN_ALL = 0.3  # share of a sequence's 4-grams that have been there before; beyond, it is dropped
LEAST_ROOM = 32  # tokens of a user's turn and an answer together, in a target's context
MARK = "\N{OBJECT REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Task:
    """The user's words around a text that was written before.

    Attributes:
        goes_on: whether the target writes the rest of the user's turn, such as a question.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    goes_on: bool

    @classmethod
    def of(cls, line: str, ids: Callable[[str], tuple[int, ...]]) -> Task:
        """Of a line of the tasks' file: `{text}` stands for the text, dots at the end for what the target adds."""
        before, _, after = line.replace("\\n", "\n").partition(TEXT_PLACE)
        return cls(ids(before), ids(after.removesuffix(GOES_ON)), after.endswith(GOES_ON))


@dataclass(frozen=True, slots=True)
class ChatFrame:
    """The tokens around a conversation of one turn.

    Attributes:
        header: before the user's words; at least one token.
        middle: between the user's words and the answer; () where there is no chat template. Writing its
            first token is how the target ends the user's turn.
        ends: tokens that end an answer.
        openings: beginnings of user's words.
        tasks: what can be asked about a text.
    """

    header: tuple[int, ...]
    middle: tuple[int, ...]
    ends: frozenset[int]
    openings: tuple[tuple[int, ...], ...] = ()
    tasks: tuple[Task, ...] = ()

    @classmethod
    def of(cls, tokenizer, ends: frozenset[int]) -> ChatFrame:
        """Of a transformers tokenizer: from its chat template, or, without one, just a first token."""

        def ids(text: str) -> tuple[int, ...]:
            return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

        first = next((t for t in (tokenizer.bos_token_id, tokenizer.eos_token_id) if t is not None), 0)
        if tokenizer.chat_template is None:
            return cls((first,), (), ends)
        message = [{"role": "user", "content": MARK}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        header, mark, middle = text.partition(MARK)
        if not mark or not ids(middle):
            return cls((first,), (), ends)
        openings = OPENINGS_FILE.read_text(encoding="utf-8").splitlines()
        tasks = tuple(Task.of(line, ids) for line in TASKS_FILE.read_text(encoding="utf-8").splitlines())
        return cls(ids(header) or (first,), ids(middle), ends, tuple(map(ids, openings)), tasks)

    @property
    def most_given_with_task(self) -> int:
        """As `most_given`, for a sequence about a text, the text apart."""
        around = max((len(task.before) + len(task.after) for task in self.tasks), default=0)
        return len(self.header) + around + len(self.middle)

    @property
    def most_given(self) -> int:
        """How many tokens of a sequence are given, not written, at most."""
        return len(self.header) + max(map(len, self.openings), default=0) + len(self.middle)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The most tokens of each part of a sequence."""

    user: int = 120
    answer: int = 256

    def within(self, num_positions: int, frame: ChatFrame) -> Lengths:
        """These, or shorter ones in the same ratio, so that a whole sequence fits into a target's context.

        Raises:
            BadRequest: the context is too short for a conversation.
        """
        room = num_positions - frame.most_given - 1
        if room >= self.user + self.answer:
            return self
        if room < LEAST_ROOM:
            raise BadRequest(
                f"target has a context of {num_positions} tokens, of which its chat template leaves {max(0, room)}: "
                f"choose one with at least {LEAST_ROOM - room} more."
            )
        user = room * self.user // (self.user + self.answer)
        return replace(self, user=user, answer=room - user)


@dataclass(slots=True)
class Sequence:
    """One conversation as it is written.

    Args:
        text: an earlier answer, to work on; () for a conversation of its own.

    Attributes:
        ids: the tokens so far.
        answer_start: index of the answer's first token; 0 while the user's turn goes on.
    """

    index: int
    frame: ChatFrame
    lengths: Lengths
    seed: int
    text: tuple[int, ...] = ()
    ids: list[int] = field(default_factory=list)
    answer_start: int = 0
    _forced: list[int] = field(default_factory=list)
    _user_start: int = 0
    _user_end: int = 0
    _user_temperature: float = 0.0
    _answer_temperature: float = 0.0
    uniforms: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        rng = np.random.Generator(np.random.Philox(key=[self.seed, self.index], counter=bool(self.text)))
        self._user_temperature = float(rng.choice(USER_TEMPERATURES))
        self._answer_temperature = float(rng.choice(TASK_TEMPERATURES if self.text else ANSWER_TEMPERATURES))
        self.ids = list(self.frame.header)
        self._user_start = len(self.ids)
        self._user_end = self._user_start + self.lengths.user
        if self.text:
            task = self.frame.tasks[rng.integers(len(self.frame.tasks))]
            self._forced = [*task.before, *self.text, *task.after]
            self._user_end = self._user_start + len(self._forced) + QUESTION
            if not task.goes_on:
                self._forced += self.frame.middle
                self.answer_start = self._user_start + len(self._forced)
        else:
            openings = self.frame.openings
            has_opening = openings and rng.random() < SHARE_WITH_OPENING
            self._forced = list(openings[rng.integers(len(openings))]) if has_opening else []
        if not self.frame.middle:
            self.answer_start = len(self.ids)
        self.uniforms = rng.random(self.longest)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence of this kind."""
        if self.text:
            return self._user_end + len(self.frame.middle) + self.lengths.answer + 1
        return self.frame.most_given + self.lengths.user + self.lengths.answer + 1

    def task(self, capacity: int) -> Sequence | None:
        """A sequence that works on this one's answer, where the dice want it and it fits into `capacity` tokens."""
        answer = self.ids[self.answer_start :]
        text = tuple(answer[:-1] if answer and answer[-1] in self.frame.ends else answer)
        wanted = self.frame.tasks and self.uniforms[-1] < SHARE_WITH_TASK
        if self.text or not wanted or len(text) < LEAST_TEXT or not self.is_worth_keeping():
            return None
        task = Sequence(self.index, self.frame, self.lengths, self.seed, text)
        return task if task.longest <= capacity else None

    @property
    def temperature(self) -> float:
        """Of the next token."""
        return self._answer_temperature if self.answer_start else self._user_temperature

    def extend(self, chosen: int) -> bool:
        """Take the target's choice, unless a token is given here; False when the sequence is complete."""
        if self._forced:
            self.ids.append(self._forced.pop(0))
            return True
        if not self.answer_start:
            middle = self.frame.middle
            too_long = len(self.ids) >= self._user_end
            if chosen == middle[0] or chosen in self.frame.ends or too_long:
                self.answer_start = len(self.ids) + len(middle)
                self._forced = list(middle[1:])
                chosen = middle[0]
            self.ids.append(chosen)
            return True
        self.ids.append(chosen)
        length = len(self.ids) - self.answer_start
        if chosen in self.frame.ends or length >= self.lengths.answer:
            return False
        if length % CHECKED_EVERY == 0 and length > LOOP_WINDOW and self._loops():
            del self.ids[-LOOP_WINDOW:]
            return False
        return True

    def is_worth_keeping(self) -> bool:
        written = self.ids[self.answer_start if self.text else self._user_start :]
        return len(written) > 2 * GRAM and repeated_share(written) <= MOST_REPEATED_IN_ALL

    def _loops(self) -> bool:
        answer = self.ids[self.answer_start :]
        return repeated_share(answer, len(answer) - LOOP_WINDOW) > MOST_REPEATED


def repeated_share(ids: list[int], start: int = 0) -> float:
    """The share of the 4-grams from `start` on that have been there before, 0 to 1."""
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    before: Counter[tuple[int, ...]] = Counter(grams[:start])
    repeated = 0
    for gram in grams[start:]:
        repeated += before[gram] > 0
        before[gram] += 1
    return repeated / max(1, len(grams) - start)


@dataclass(frozen=True, slots=True)
class Written:
    """A finished sequence.

    Attributes:
        ids: [tokens]; empty where it was dropped.
        is_last: whether no other sequence of this number follows.
        answer_start: index of the answer's first token.
        features: [tokens, layers, hidden] float16, of every token.
        log_sums: [tokens] float32, log of the sum of the exponentials of the logits after each token; NaN in the header
            and after the last token, which was never fed.
    """

    index: int
    ids: np.ndarray
    answer_start: int
    features: np.ndarray
    log_sums: np.ndarray
    is_last: bool = True


def write(
    model: LeanModel,
    frame: ChatFrame,
    indices: Iterator[int],
    *,
    seed: int,
    rows: int,
    lengths: Lengths,
    feature_layers: tuple[int, ...],
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Written]:
    """Sequences by their numbers, `rows` at a time, in the order in which they are completed."""
    header = list(frame.header)
    cache = model.new_cache()
    prefix = model.forward(header[:-1], cache, num_logits=0, feature_layers=feature_layers) if header[1:] else None
    numbers = iter(indices)
    capacity = Sequence(0, frame, lengths, seed).longest
    if frame.tasks:
        with_task = frame.most_given_with_task + 2 * lengths.answer + QUESTION + 1
        capacity = max(capacity, min(with_task, model.max_positions))
    batch = BatchForward(model, rows, capacity)
    features = np.zeros((rows, capacity, len(feature_layers), model.weights.embedding.shape[1]), np.float16)
    log_sums = np.full((rows, capacity), np.nan, np.float32)  # those of the header are never computed
    at_work: list[Sequence | None] = [None] * rows

    def begin(row: int, task: Sequence | None = None) -> None:
        number = next(numbers, None) if task is None else task.index
        at_work[row] = task or (None if number is None else Sequence(number, frame, lengths, seed))
        batch.start_row(row, cache)
        if prefix is not None:
            for place, layer in enumerate(feature_layers):
                features[row, : len(header) - 1, place] = prefix.features[layer].numpy()

    for row in range(rows):
        begin(row)
    while any(at_work) and not should_stop():
        places = batch.lengths.copy()
        places[[sequence is None for sequence in at_work]] = 0
        batch.lengths[:] = places
        fed = [0 if s is None else s.ids[-1] for s in at_work]
        temperatures = np.array([0 if s is None else s.temperature for s in at_work], np.float32)
        uniforms = np.array([0 if s is None else s.uniforms[places[row]] for row, s in enumerate(at_work)])
        output = batch.step(fed, temperatures, uniforms, feature_layers)
        log_sums[np.arange(rows), places] = output.log_sums
        for place, layer in enumerate(feature_layers):
            features[np.arange(rows), places, place] = output.features[layer].numpy()
        for row, sequence in enumerate(at_work):
            if sequence is not None and not sequence.extend(int(output.tokens[row])):
                task = sequence.task(capacity)
                yield _finished(sequence, features[row], log_sums[row], is_last=task is None)
                begin(row, task)


def _finished(sequence: Sequence, features: np.ndarray, log_sums: np.ndarray, *, is_last: bool) -> Written:
    length = len(sequence.ids) if sequence.is_worth_keeping() else 0
    ids = np.array(sequence.ids[:length], np.int64)
    kept = features[:length].copy()
    sums = log_sums[:length].copy()
    if length:
        kept[-1], sums[-1] = 0, np.nan
    return Written(sequence.index, ids, sequence.answer_start, kept, sums, is_last)
