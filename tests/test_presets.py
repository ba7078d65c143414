from __future__ import annotations

import pytest

from specviz.config import RunSettings
from specviz.engine import draft_facts
from specviz.errors import BadRequest
from specviz.presets import HEAD_SETTINGS, find_pair, find_preset, load_lessons, load_pairs
from tests.draft_folders import model_draft, random_head, save_draft
from tests.tiny_models import tiny_model

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


@pytest.fixture
def ship(monkeypatch, tmp_path):
    """ship(kinds): only drafts of these kinds are shipped."""
    monkeypatch.setattr(draft_facts, "SHIPPED_DIR", tmp_path / "drafts")

    def ship_(*kinds: str) -> None:
        made = {"draft_head": random_head, "draft_model": model_draft}
        for kind in kinds:
            save_draft(tmp_path / "drafts" / kind, made[kind](tiny_model()))

    return ship_


def test_the_embedded_pair_comes_first_and_names_no_draft_of_the_hub(ship):
    ship("draft_head", "draft_model")
    embedded = load_pairs()[0]
    assert (embedded.name, embedded.is_embedded, embedded.draft) == ("embedded", True, None)
    assert embedded.drafters == ("draft_head", "draft_model", "prompt_lookup", "early_exit")


@pytest.mark.parametrize("kinds", [(), ("draft_head",), ("draft_model",)])
def test_a_drafter_whose_draft_is_not_shipped_is_left_out_and_so_are_its_lessons(kinds, ship):
    ship(*kinds)
    assert load_pairs()[0].drafters == (*kinds, "prompt_lookup", "early_exit")
    drafters = {lesson.run_settings().drafter for lesson in load_lessons()}
    assert drafters == {*kinds, "prompt_lookup"}


def test_a_damaged_draft_counts_as_missing(ship, tmp_path):
    ship("draft_head")
    (tmp_path / "drafts" / "draft_head" / draft_facts.DRAFT_FILE).write_text("{", encoding="utf-8")
    assert "draft_head" not in load_pairs()[0].drafters


def test_the_best_drafter_is_a_head_with_a_short_draft(ship):
    ship("draft_head")
    assert find_pair("embedded").best_settings == {"drafter": "draft_head", **HEAD_SETTINGS}
    assert find_pair("gpt2-large").best_settings == {"drafter": "draft_model"}


def test_a_pair_is_verified_exactly_when_its_revisions_are_written_down():
    for pair in load_pairs()[1:]:
        assert pair.verified == (pair.target_revision is not None and pair.draft_revision is not None), pair.name


def test_every_shipped_draft_is_smaller_than_its_target():
    assert all(0 < pair.draft_params < pair.target_params for pair in load_pairs() if pair.draft)


def test_weights_are_estimated_at_two_bytes_a_parameter(tmp_path):
    (pair,) = pairs_of(tmp_path, PAIR)
    assert pair.weight_bytes() == 2200
    assert pair.weight_bytes(bytes_per_param=0.5) == 550


def test_every_shipped_lesson_has_settings_that_can_be_run(ship):
    ship("draft_head", "draft_model")
    lessons = load_lessons()
    assert [lesson.run_settings().drafter for lesson in lessons[:2]] == ["prompt_lookup", "draft_head"]
    assert [lesson.order for lesson in lessons] == list(range(1, len(lessons) + 1))
    for lesson in lessons:
        assert isinstance(lesson.run_settings(), RunSettings)
        assert lesson.run_settings().drafter in lesson.pair.drafters
        assert lesson.lesson.endswith(".") and lesson.prompt and lesson.title
        assert lesson.settings.get("max_new_tokens", 128) <= 128, "a lesson is over in seconds on a small machine"


def test_a_preset_is_a_lesson_or_a_pair_and_overrides_win():
    assert find_preset(load_lessons()[0].name).prompt == load_lessons()[0].prompt
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
        (LESSON + 'draft_precision = "int3"', "mine.toml: draft_precision is 'int3': choose one of auto, bfloat16"),
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
    (lesson,) = lessons_of(tmp_path, LESSON + 'raw = true\ndraft_precision = "int4"\n[settings]\nnum_draft_tokens = 7')
    assert (lesson.name, lesson.raw, lesson.draft_precision) == ("mine", True, "int4")
    assert lesson.run_settings().num_draft_tokens == 7
