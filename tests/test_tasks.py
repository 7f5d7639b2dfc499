"""What a user types: exit codes, sentences, JSON; never a traceback."""

import json
import subprocess
import sys

import pytest

from rdma_images import choice, paths
from rdma_images.errors import RefusedError


def said(*words):
    return subprocess.run([sys.executable, "-m", "invoke", *words], cwd=paths.PROJECT, capture_output=True, text=True)


def test_a_plan_for_programs():
    done = said("plan", "--target", "efa-pytorch", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["images"][0]["target"] == "efa-pytorch"


def test_a_refusal_ends_with_two_and_says_why():
    done = said("plan", "--target", "efa-pytorch", "--set", "nccl=2.19.3")
    assert done.returncode == 2
    for word in ("nccl-pin", "2.30.7", "2.19.3", "source:", "nearest that works"):
        assert word in done.stdout


def test_a_refused_combination_is_not_built():
    done = said("build", "--target", "efa-pytorch", "--set", "nccl=2.19.3", "--rehearse")
    assert done.returncode == 2
    assert "nccl-pin" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ci.matrix", "--runner", "x"], "--runner x: write platform=label"),
        (["plan", "--target", "efa-pytorc"], "did you mean efa-pytorch"),
        (["plan", "--set", "base=debian14"], "base 'debian14' is not known"),
        (["plan", "--set", "pytorch"], "--set pytorch: write axis=value"),
        (["plan", "--set", "colour=red"], "colour"),
        (["build", "--compression", "lzma"], "Known: zstd, gzip"),
        (["validate", "--tier", "statik"], "did you mean static"),
    ],
)
def test_a_mistake_gets_a_sentence(words, sentence):
    done = said(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--target"], ["--target", "--all"], ["--set"]])
def test_an_option_without_its_value_is_a_mistake(words):
    done = said("plan", *words)
    assert done.returncode == 1
    assert "needed value and was not given one" in done.stderr


def test_help_shows_an_example():
    assert "invoke build --target efa-pytorch --rehearse" in said("--help", "build").stdout


def test_changes_are_read_as_axis_and_value():
    assert choice.changes(["nccl=2.30.7", "base=debian13"]) == {"nccl": "2.30.7", "base": "debian13"}


def test_one_axis_has_one_value():
    with pytest.raises(RefusedError, match=r"nccl twice, 1 and 2"):
        choice.changes(["nccl=1", "nccl=2"])


def test_no_colour_outside_a_terminal():
    assert "\x1b[" not in said("plan", "--target", "efa-pytorch").stdout
