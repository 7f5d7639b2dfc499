"""Public Dockerfiles as targets: what docs/explanation/other-dockerfiles.md says of each."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdma_images import facts
from rdma_images.core import local_package, paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.inputs.wheels import Lock, Wheel
from rdma_images.plan import onto, planner
from rdma_images.plan.matrix import Matrix
from rdma_images.plan.refusals import Plan
from rdma_images.render import dockerfiles
from tests.support import hadolint, locks
from tests.support.existing_images import ngc

FACTS = facts.load()
TEXT = (paths.PROJECT / "tests" / "data" / "field.yaml").read_text(encoding="utf-8")
TARGETS = yaml_file.loads(TEXT, Matrix, "field.yaml").targets
DEBIAN_NCCL = {"nccl_path": "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "python_packages": {}}
# The images after a Dockerfile that removes NVIDIA's OFED, and on 25.04 installs another NCCL, as theirs do.
BASES: dict[str, dict[str, Any]] = {
    "megatron-lm-ngc": {"pytorch": "2.11.0", "cuda": "13.1", "nccl": "2.29.2"} | DEBIAN_NCCL,
    "deepspeed-ngc": {"pytorch": "2.7.0", "cuda": "12.9", "nccl": "2.29.3"} | DEBIAN_NCCL,
    "megatron-bridge-nemo": {"cuda": "13.3"},
}
OFED = {"verbs_package": "2507mlnx58-1.2507097"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    for name in re.findall(r"\./([^\s,}\]]+\.(?:whl|patch))", TEXT):
        (tmp_path / name).touch()


def plan(name: str, measured: dict[str, Any], changes: dict[str, str]) -> Plan:
    mine = yaml_file.loads(TEXT, Matrix, "field.yaml")
    if ref := mine.target(name).onto:
        onto.write_record(replace(ngc(), ref=ref, **BASES[name] | measured))
    return planner.plan(mine, FACTS, [name], changes=changes)


def locked(image: Image) -> Lock:
    """Return a lock with the packages of no index, too."""
    lock, own = locks.wheels(image), []
    for name, package in local_package.by_name(image.python_packages).items():
        file = Path(package.address).name if package.kind == "wheel" else ""
        own.append(Wheel(name=name, version="1.0", file=file, sha256="1" * 64, origin=package.origin))
    return lock.model_copy(update={"wheels": (*(wheel for wheel in lock.wheels if " @ " not in wheel.name), *own)})


@pytest.mark.parametrize("name", TARGETS)
def test_it_is_planned_and_rendered(name: str, tmp_path: Path) -> None:
    answer = plan(name, {}, {})
    assert answer.refusals == ()
    (image,) = answer.images
    text = dockerfiles.render(image, locked(image), locks.toolkit(image), locks.TOOLS)
    (tmp_path / "Dockerfile").write_text(text, encoding="utf-8")
    assert hadolint.findings(tmp_path / "Dockerfile") == ""


TORCH = {"pytorch": "2.11.0", "nccl": "2.29.7"}
REFUSED: list[tuple[str, dict[str, Any], dict[str, str], str, str, dict[str, str] | None]] = [
    ("megatron-lm-ngc", OFED, {}, "onto-rdma-core", "apt-get purge it in a Dockerfile of your own first", None),
    ("deepspeed-ngc", {"nccl": "2.26.3"}, {}, "onto-nccl", "nearest that is known: NCCL 2.26.5", None),
    ("gb200-disagg", {}, {"base": "debian13"}, "installer-plugin", "on debian13", {"aws-ofi-nccl": "1.19.0"}),
    ("nixlbench", {}, {"efa-installer": "1.50.0"}, "package-needs", "needs libfabric >=2.7.0", {"nixl": "1.5.0"}),
    ("erdma-torch26", {}, {"nccl-tests": "newest"}, "nccl-tests-compiler", "CUDA 13 alone", TORCH),
    ("deepep2", {}, {"nccl": "2.30.7"}, "gin-needs", "needs nccl >=2.31.2", {"nccl": "2.31.2"}),
]


@pytest.mark.parametrize(("name", "measured", "changes", "rule", "words", "nearest"), REFUSED)
def test_refused_with_the_nearest_that_works(
    name: str, measured: dict[str, Any], changes: dict[str, str], rule: str, words: str, nearest: dict[str, str] | None
) -> None:
    (refusal,) = plan(name, measured, changes).refusals
    assert words in {broken.rule: broken.reason for broken in refusal.broken}[rule]
    assert refusal.nearest == nearest


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("deepspeed-ngc", {"nccl": "2.31.2"}, "which no wheel would replace\nleave nccl out, or replace it in the"),
        ("dlc-pytorch", {"base": "amazonlinux2023"}, "never tried on RPM systems .*\nbuild on ubuntu24.04"),
        ("erdma-torch26", {"cuda": "12.9"}, "no such value\ndid you mean 13.0 or 12.8"),
    ],
)
def test_what_no_file_of_facts_knows(name: str, changes: dict[str, str], words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        plan(name, {}, changes)
