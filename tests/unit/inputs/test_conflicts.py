"""Conflicting packages are explained by the torch they need and the nearest that works."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.inputs import conflicts, lock, package_problems
from rdma_images.inputs.wheels import Lock, LockRequest, Wheel
from rdma_images.plan import matrix, planner

COMPLAINT = (
    "error: No solution found when resolving dependencies cause: Because vllm==0.32.0 depends on torch==2.13.0 and you "
    "require torch==2.15.0, we can conclude that your requirements and vllm==0.32.0 are incompatible."
)
MANY = (
    "Because vllm>=0.5.2,<=0.5.3.post1 depends on torch==2.3.1 and vllm>=0.10.0,<=0.10.1.1 depends on torch==2.7.1, we "
    "can conclude that all versions of vllm depend on one of: torch>=2.3.1. And because vllm>=0.27.0,<=0.32.0 depends "
    "on torch==2.13.0 and vllm>=0.33.0 depends on torch==2.14.0, we can conclude that vllm cannot be used."
)


TODAY = datetime.now(UTC).date()


@cache
def planned(target: str, torch: str) -> Image:
    (image,) = planner.plan(matrix.load(), facts.load(), [target], changes={"pytorch": torch}).images
    return replace(image, python_packages=("vllm",))


def request(*requirements: str) -> LockRequest:
    return LockRequest(requirements=requirements, python="3.13", platform="linux/amd64")


def explained(complaint: str, torch: str = "2.15.0", target: str = "efa-pytorch") -> str:
    return conflicts.explain(conflicts.parse_complaint(complaint, TODAY), planned(target, torch), facts.load())


@pytest.mark.parametrize(
    ("complaint", "torch", "needs", "nearest"),
    [
        (COMPLAINT, "2.15.0", "0.32.0 needs", "2.13.0"),
        (MANY, "2.15.0", "0.33.0 and later need", "2.14.0"),
        (MANY, "2.12.1", "0.27.0 to 0.32.0 need", "2.13.0"),
        (MANY, "2.8.0", "0.10.0 to 0.10.1.1 need", "2.7.1"),
    ],
)
def test_the_nearest_torch_is_named_with_the_releases_that_need_it(
    complaint: str, torch: str, needs: str, nearest: str
) -> None:
    assert explained(complaint, torch) == (
        f"vllm {needs} torch {nearest}, and torch {torch} is planned\nnearest that works: --set pytorch={nearest}"
    )


def test_a_torch_that_no_fact_knows_is_not_called_nearest() -> None:
    assert explained(COMPLAINT.replace("2.13.0", "2.13.9")) == (
        "vllm 0.32.0 needs torch 2.13.9, and torch 2.15.0 is planned\n"
        "no torch that its releases need works in this image: name another version of vllm, or leave it out"
    )


def test_a_torch_that_breaks_a_rule_of_the_image_is_not_called_nearest() -> None:
    """The NCCL of torch 2.11.0 crashes on eRDMA."""
    complaint = COMPLAINT.replace("2.13.0", "2.11.0")
    assert "nearest that works: --set pytorch=2.11.0" in explained(complaint, "2.14.1")
    assert "nearest that works" not in explained(complaint, "2.14.1", "erdma-pytorch")


def test_anything_else_stays_in_uvs_words() -> None:
    text = explained("error: nothing was not found\nin the registry")
    assert text.startswith("uv finds no wheels: nothing was not found in the registry\n")


def test_a_package_that_is_there_as_source_alone_is_named() -> None:
    """As uv 0.12 answers for transformer-engine[pytorch]==2.20.2."""
    text = explained(
        "error: No solution found when resolving dependencies\n"
        "cause: Because transformer-engine-torch==2.20.2 has no usable wheels and transformer-engine[pytorch]>=2.20.2\n"
        "depends on transformer-engine-torch==2.20.2, we can conclude that your requirements are unsatisfiable.\n"
        "hint: Wheels are required for `transformer-engine-torch` because building from source is disabled for all\n"
        "packages (i.e., with `--no-build`)"
    )
    assert text.endswith("\nname transformer-engine-torch under source-packages")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a project without locks, on a machine that asked nothing yet."""
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "LOCKS", tmp_path / "locks")


def problem(torch: str = "2.15.0") -> str | None:
    return package_problems.problem(planned("efa-pytorch", torch), facts.load())


def note(image: Image) -> str | None:
    return package_problems.note(image, facts.load())


def remember(day: date = TODAY) -> None:
    conflicts.remember(lock.lock_request(planned("efa-pytorch", "2.15.0")), conflicts.parse_complaint(COMPLAINT, day))


def write_lock(image: Image, **versions: str) -> None:
    names = {name.replace("_", "-"): version for name, version in versions.items()}
    wheels = tuple(
        Wheel(name=name, version=version, file=f"{name}-{version}-py3-none-any.whl", sha256="0", size=9)
        for name, version in names.items()
    )
    path = lock.lock_path(lock.lock_request(image))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Lock(request=lock.lock_request(image), wheels=wheels).text())


def test_a_plan_knows_what_the_index_answered_until_it_answers_otherwise() -> None:
    assert problem() is None
    remember()
    assert problem() == (
        f"vllm 0.32.0 needs torch 2.13.0, and torch 2.15.0 is planned (asked of the package index on {TODAY})\n"
        "nearest that works: --set pytorch=2.13.0"
    )
    conflicts.remember(lock.lock_request(planned("efa-pytorch", "2.15.0")), None)
    assert problem() is None


def test_what_the_index_answered_a_week_ago_refuses_nothing() -> None:
    remember(TODAY - timedelta(days=6))
    assert problem()
    remember(TODAY - timedelta(days=8))
    assert problem() is None


def test_a_lock_is_newer_than_what_the_index_did_not_have() -> None:
    remember()
    write_lock(planned("efa-pytorch", "2.15.0"), torch="2.15.0", vllm="0.40.0", nvidia_nccl_cu13="2.30.7")
    assert problem() is None


def test_a_plan_refuses_a_lock_with_another_torch() -> None:
    write_lock(planned("efa-pytorch", "2.15.0"), torch="2.14.0", vllm="0.33.0", nvidia_nccl_cu13="2.30.7")
    text = problem()
    assert text
    assert "has torch 2.14.0, and torch 2.15.0 is planned\nrun `invoke lock`" in text


def test_a_plan_says_that_packages_are_locked_for_another_torch_alone() -> None:
    image = planned("efa-pytorch", "2.15.0")
    assert note(image) is None
    write_lock(planned("efa-pytorch", "2.14.0"), torch="2.14.0", vllm="0.33.0", nvidia_nccl_cu13="2.30.7")
    assert note(image) == (
        "not locked  efa-pytorch with torch 2.15.0: its packages are locked with torch 2.14.0 (vllm 0.33.0); "
        "`invoke lock` asks the package index for this torch"
    )
    write_lock(image, torch="2.15.0", vllm="0.40.0", nvidia_nccl_cu13="2.30.7")
    assert note(image) is None


def test_targets_that_differ_in_what_is_built_from_source_have_locks_of_their_own() -> None:
    with_source = request("torch==2.15.0", "deepspeed").model_copy(update={"sources": ("deepspeed",)})
    assert with_source.key != request("torch==2.15.0", "deepspeed").key
