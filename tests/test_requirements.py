"""The requirements files agree: each range has a pin, and each pin is inside its range."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def requirements_of(name):
    lines = (line.split("#")[0].strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


PINS = {
    canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in requirements_of("constraints.txt")
}


@pytest.mark.parametrize(
    "requirement", [*requirements_of("requirements.txt"), *requirements_of("requirements-dev.txt")], ids=str
)
def test_a_requirement_is_pinned_inside_its_range(requirement):
    assert PINS[canonicalize_name(requirement.name)] in requirement.specifier


def test_every_constraint_is_one_exact_version():
    assert all(str(pin.specifier).startswith("==") and pin.url is None for pin in requirements_of("constraints.txt"))


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_requirement_says_what_it_is_for(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert all("#" in line for line in lines if line and not line.startswith(("#", "-r")))


def test_a_hosted_space_with_an_older_torch_is_inside_the_range():
    (torch,) = [each for each in requirements_of("requirements.txt") if each.name == "torch"]
    assert all(version in torch.specifier for version in ("2.8.0", "2.11.0", "2.13.0"))
