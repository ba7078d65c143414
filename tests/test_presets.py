from __future__ import annotations

import pytest

from specviz.config import RunSettings
from specviz.errors import BadRequest
from specviz.presets import find_pair, find_preset, load_lessons, load_pairs

PAIR = """
[[pair]]
name = "mine"
title = "Mine"
target = "me/large"
target_params = 1_000
draft = "me/small"
draft_params = 100
drafters = ["draft_model"]
"""
LESSON = """
title = "T"
order = 1
lesson = "Look."
prompt = "p"
"""


def pairs_of(tmp_path, text):
    path = tmp_path / "pairs.toml"
    path.write_text(text, encoding="utf-8")
    return load_pairs(path)


def lessons_of(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    return load_lessons(tmp_path)


def test_the_embedded_pair_comes_first_and_needs_no_draft_model():
    embedded = load_pairs()[0]
    assert (embedded.name, embedded.is_embedded, embedded.draft) == ("embedded", True, None)
    assert set(embedded.drafters) == {"prompt_lookup", "early_exit"}


def test_a_pair_is_verified_exactly_when_its_revisions_are_written_down():
    for pair in load_pairs()[1:]:
        assert pair.verified == (pair.target_revision is not None and pair.draft_revision is not None), pair.name


def test_every_shipped_draft_is_smaller_than_its_target():
    assert all(0 < pair.draft_params < pair.target_params for pair in load_pairs() if pair.draft)


def test_weights_are_estimated_at_two_bytes_a_parameter(tmp_path):
    (pair,) = pairs_of(tmp_path, PAIR)
    assert pair.weight_bytes() == 2200
    assert pair.weight_bytes(bytes_per_param=0.5) == 550


def test_every_shipped_lesson_has_settings_that_can_be_run():
    lessons = load_lessons()
    assert [lesson.order for lesson in lessons] == list(range(1, len(lessons) + 1))
    for lesson in lessons:
        assert isinstance(lesson.run_settings(), RunSettings)
        assert lesson.run_settings().drafter in lesson.pair.drafters
        assert lesson.lesson.endswith(".") and lesson.prompt and lesson.title
        assert lesson.settings.get("max_new_tokens", 128) <= 128, "a lesson is over in seconds on a small machine"


def test_a_preset_is_a_lesson_or_a_pair_and_overrides_win():
    assert find_preset("copy").prompt == load_lessons()[0].prompt
    bare = find_preset("gpt2-large")
    assert bare.prompt is None and bare.run_settings().drafter == "draft_model"
    assert bare.run_settings(drafter="none", seed=3).drafter == "none"


def test_no_pair_has_the_name_of_a_lesson():
    assert not {pair.name for pair in load_pairs()} & {lesson.name for lesson in load_lessons()}


@pytest.mark.parametrize(("find", "what"), [(find_preset, "preset"), (find_pair, "pair")])
def test_an_unknown_name_gets_the_choices_and_the_nearest(find, what):
    with pytest.raises(BadRequest, match=rf"no {what} 'embeded' \(did you mean 'embedded'\?\).*gpt2-large"):
        find("embeded")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PAIR + 'drafts = "x"', r"pairs.toml, pair 'mine': unknown key 'drafts' \(did you mean 'draft"),
        (PAIR.replace("title", "titel"), r"unknown key 'titel' \(did you mean 'title'\?\)"),
        (PAIR.replace('title = "Mine"\n', ""), "the key 'title' is missing"),
        (PAIR.replace("1_000", '"many"'), "target_params is 'many': give a value of type int"),
        (PAIR.replace('"draft_model"', '"draft_modell"'), r"'draft_modell' \(did you mean 'draft_model'\?\)"),
        (PAIR.replace('draft = "me/small"\n', ""), "go together"),
        (PAIR + PAIR, "taken by an earlier pair"),
        (PAIR.replace("[[pair]]", "[[pairs]]"), r"unknown key 'pairs' \(did you mean 'pair'\?\)"),
        ("name = ", "is not TOML"),
    ],
)
def test_a_wrong_pairs_file_names_the_file_the_key_and_the_nearest(tmp_path, text, words):
    with pytest.raises(BadRequest, match=words):
        pairs_of(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LESSON + "propmt = 1", r"mine.toml: unknown key 'propmt' \(did you mean 'prompt'\?\)"),
        (LESSON + "[settings]\ntemprature = 1", r"mine.toml, \[settings\]: unknown key 'temprature'.*'temperature'"),
        (LESSON + "[settings]\ntemperature = -1", r"mine.toml, \[settings\]: temperature is -1"),
        (LESSON + 'pair = "none"', "no pair 'none'"),
        (LESSON.replace('"p"', "7"), "prompt is 7: give a value of type str"),
    ],
)
def test_a_wrong_lesson_names_the_file_the_key_and_the_nearest(tmp_path, text, words):
    with pytest.raises(BadRequest, match=words):
        lessons_of(tmp_path, text)


def test_a_missing_pairs_file_is_one_sentence(tmp_path):
    with pytest.raises(BadRequest, match="cannot be read"):
        load_pairs(tmp_path / "pairs.toml")


def test_a_lesson_is_named_by_its_file(tmp_path):
    (lesson,) = lessons_of(tmp_path, LESSON + "raw = true\n[settings]\nnum_draft_tokens = 7")
    assert (lesson.name, lesson.raw, lesson.run_settings().num_draft_tokens) == ("mine", True, 7)
