"""`ExitSettings`: what is refused, which layers are chosen, how a threshold falls."""

from __future__ import annotations

import math

import pytest

from specviz.early_exit.exit_settings import LEAST_DECAYED, ExitSettings, decayed, handful_of
from specviz.errors import BadRequest


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"measure": "luck"}, "exit_measure is 'luck': choose one of top1, gap, entropy, saturation"),
        ({"heads": "big"}, "exit_heads is 'big': choose one of auto, translators, plain"),
        ({"threshold": "often"}, "exit_threshold is 'often': give a number from 0 to 1 or \"never\""),
        ({"threshold": 1.5}, "exit_threshold is 1.5"),
        ({"threshold": -0.1}, "exit_threshold is -0.1"),
        ({"threshold": math.nan}, "exit_threshold is nan"),
        ({"threshold": True}, "exit_threshold is True"),
        ({"threshold": None}, "exit_threshold is None"),
        ({"threshold_decay": -1}, "exit_threshold_decay is -1"),
        ({"min_layer": 0}, "exit_min_layer is 0"),
        ({"min_layer": 2.5}, "exit_min_layer is 2.5"),
        ({"exit_layers": ()}, "exit_layers is .*give a list of 1 to 16 layers"),
        ({"exit_layers": tuple(range(1, 18))}, "give a list of 1 to 16 layers"),
        ({"exit_layers": "10"}, "exit_layers is '10'"),
        ({"exit_layers": (5, 3)}, "ascending order"),
        ({"exit_layers": (3, 3)}, "each layer once"),
        ({"exit_layers": (0, 3)}, "an exit layer is 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(values, words):
    with pytest.raises(BadRequest, match=words):
        ExitSettings(**values)


def test_they_survive_being_stored():
    settings = ExitSettings("gap", 0.3, 1.5, 4, (4, 8), "plain")
    assert ExitSettings.from_dict(settings.to_dict()) == settings
    with pytest.raises(BadRequest, match="Unknown exit setting 'speed'"):
        ExitSettings.from_dict({"speed": 1})


@pytest.mark.parametrize(
    ("num_layers", "expected"),
    [(30, (10, 14, 18, 21, 24, 26, 28)), (12, (4, 6, 7, 8, 10, 11)), (6, (2, 3, 4, 5)), (2, (1,)), (1, ())],
)
def test_the_usual_exit_layers_keep_their_proportions(num_layers, expected):
    assert handful_of(num_layers) == expected


def chosen(values, readable=range(1, 12), usual=(4, 6, 8), num_layers=12):
    return ExitSettings(**values).chosen_layers(tuple(readable), usual, num_layers, "a model")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, (4, 6, 8)),
        ({"min_layer": 6}, (6, 8)),
        ({"exit_layers": (2, 11)}, (2, 11)),
        ({"exit_layers": (2, 11), "min_layer": 3}, (11,)),
        ({"min_layer": 12, "threshold": "never"}, ()),
    ],
)
def test_the_exit_layers_of_a_run(values, expected):
    assert chosen(values) == expected


@pytest.mark.parametrize(
    ("values", "more", "words"),
    [
        ({"exit_layers": (12,)}, {}, "an exit layer is 12: a model has 12 layers"),
        (
            {"exit_layers": (3,)},
            {"readable": (2, 5)},
            "an exit layer is 3, and there is no exit head for it: choose from 2, 5",
        ),
        ({"min_layer": 13}, {}, "exit_min_layer is 13: a model has 12 layers, choose 1 to 12"),
        ({"min_layer": 9}, {}, "leaves none of the exit layers 4, 6, 8"),
    ],
)
def test_layers_that_are_not_there_are_refused_with_those_that_are(values, more, words):
    with pytest.raises(BadRequest, match=words):
        chosen(values, **more)


def test_a_threshold_falls_to_nine_tenths_and_never_of_itself():
    assert [decayed(0.5, 0.0, index, 10) for index in range(3)] == [0.5] * 3
    falling = [decayed(0.5, 4.0, index, 10) for index in range(200)]
    assert falling[0] == 0.5
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == pytest.approx(0.5 * LEAST_DECAYED)
    assert ExitSettings(threshold="never").threshold_at(0, 10) is None
