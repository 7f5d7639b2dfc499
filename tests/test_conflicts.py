"""What uv says where packages do not go together is read as the fact and the nearest torch."""

from pathlib import Path

import pytest

from rdma_images.inputs import conflicts
from rdma_images.inputs.wheels import Asked

ONE = (
    "error: No solution found when resolving dependencies cause: Because vllm==0.32.0 depends on torch==2.13.0 and you "
    "require torch==2.15.0, we can conclude that your requirements and vllm==0.32.0 are incompatible."
)
MANY = (
    "Because vllm>=0.5.2,<=0.5.3.post1 depends on torch==2.3.1 and vllm>=0.10.0,<=0.10.1.1 depends on torch==2.7.1, we "
    "can conclude that all versions of vllm depend on one of: torch>=2.3.1. And because vllm>=0.27.0,<=0.32.0 depends "
    "on torch==2.13.0 and vllm>=0.33.0 depends on torch==2.14.0, we can conclude that vllm cannot be used."
)


def asked(*requirements: str) -> Asked:
    return Asked(requirements=requirements, python="3.13", platform="linux/amd64")


@pytest.mark.parametrize(
    ("complaint", "fact"),
    [
        (ONE, "vllm 0.32.0 needs torch 2.13.0, and torch 2.15.0 is planned\nnearest that works: --set pytorch=2.13.0"),
        (MANY, "vllm 0.33.0 and later need torch 2.14.0, and torch 2.15.0 is planned\nnearest that works: "),
    ],
)
def test_the_fact_is_the_first_line(complaint: str, fact: str) -> None:
    assert conflicts.explain(asked("torch==2.15.0", "vllm"), complaint).startswith(fact)


def test_anything_else_stays_in_uvs_words() -> None:
    said = conflicts.explain(asked("torch==2.15.0", "nothing"), "error: nothing was not found\nin the registry")
    assert said.startswith("uv finds no wheels: nothing was not found in the registry\n")


def test_an_answer_is_kept_with_its_day_until_there_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    question = asked("torch==2.15.0", "vllm")
    assert conflicts.recall(question) is None
    conflicts.remember(question, conflicts.explain(question, ONE))
    kept = conflicts.recall(question)
    assert kept
    assert kept.startswith(
        "vllm 0.32.0 needs torch 2.13.0, and torch 2.15.0 is planned (asked of the package index on 2"
    )
    conflicts.remember(question, None)
    assert conflicts.recall(question) is None


def test_targets_that_differ_in_what_is_built_from_source_have_locks_of_their_own() -> None:
    with_source = asked("torch==2.15.0", "deepspeed").model_copy(update={"sources": ("deepspeed",)})
    assert with_source.key != asked("torch==2.15.0", "deepspeed").key
