"""Tasks crossed with what they are about: a target, one with `onto` in matrix.yaml, --onto and --image."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from invoke.exceptions import Exit

import tasks
from rdma_images import engine, facts
from rdma_images.ci import select
from rdma_images.core import paths
from rdma_images.core.image import ExistingImage
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.engine import prune
from rdma_images.maintain import relock
from rdma_images.plan import matrix, onto, planner
from rdma_images.publish import publish_images
from rdma_images.publish.approved_image import ApprovedImage
from rdma_images.report.report_files import REPORT, report_folder
from rdma_images.validate import existing_image, suite
from tests.support.existing_images import REF, existing
from tests.support.published_image import approve
from tests.support.scan_parts import DIGEST, trivy, write_report

TYPED, ELSEWHERE = f"team/other@sha256:{'2e' * 32}", f"h.example/team/elsewhere@{DIGEST}"
ABOUT: dict[str, tuple[dict[str, Any], list[str]]] = {  # options, and what is measured
    "target": ({"target": ["efa-pytorch"]}, []),
    "onto": ({"target": ["mine"]}, [REF]),
    "--onto": ({"target": ["efa-nccl-tests"], "onto": TYPED}, [TYPED]),
    "--image": ({"image": [ELSEWHERE]}, []),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plan": {},
    "lock": {},
    "render": {},
    "describe": {},
    "validate": {"list": True},
    "scan": {"report": "report.json", "policy": "policy.yaml"},
    "publish": {"to": ["team"], "policy": "policy.yaml"},
    "job": {"image": [ELSEWHERE], "launcher": "slurm", "instance": "p5.48xlarge", "field": ["launch=torchrun"]},
}
CROSSINGS = [(task, about) for task in OPTIONS for about in ABOUT if about != "--image" or task in list(OPTIONS)[-3:]]


@pytest.fixture(name="measured")
def _measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make a project whose images are built and validated; return the images to add to that tasks measure."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("RDMA_IMAGES_REGISTRIES", "registries.yaml")
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(paths, "LOCKS", Path(shutil.copytree(paths.LOCKS, tmp_path / "locks")))
    monkeypatch.setattr(sys, "argv", ["invoke", "job", "--", "train.py"])
    monkeypatch.setattr(suite, "digest", lambda: "sha256:2")
    monkeypatch.setattr(relock, "relock_images", lambda *_: ())
    monkeypatch.setattr(engine, "running", lambda: None)
    Path("registries.yaml").write_text("registries:\n  team: {kind: oci, host: h.example, credentials: none}\n")
    Path("policy.yaml").write_text("grace-days: {}\nmax-scan-age: 3650\n")
    write_report(tmp_path, trivy())
    ours = matrix.load()
    targets = {name: ours.target(name) for name in ("efa-pytorch", "efa-nccl-tests")}
    targets["mine"] = onto.target_onto(targets["efa-pytorch"], REF).model_copy(update={"python_packages": ()})
    own = ours.model_copy(update={"targets": targets})
    monkeypatch.setattr(matrix, "load", lambda: own)
    for crossed in (own, onto.matrix_onto(own, ["efa-nccl-tests"], TYPED)):
        for image in planner.plan(crossed, facts.load(), measure_base=lambda ref: existing(ref=ref)).images:
            built = approve(image, DIGEST)
            BUILD_FILE.write(image.id, built.build)
            REPORT.write(image.id, built.report)
    REPORT.write(report_folder(ELSEWHERE).name, built.report)
    asked = []

    def measure(ref: str, _progress: object) -> ExistingImage:
        asked.append(ref)
        onto.write_record(existing(ref=ref))
        return existing(ref=ref)

    monkeypatch.setattr(existing_image, "measure_base_image", measure)
    return asked


def call(task: str, **options: Any) -> None:
    if task == "job":  # is about one image
        options |= {name: options[name][0] for name in ("target", "image") if name in options}
    tasks.ns[task].body(**options)


@pytest.mark.parametrize(("task", "about"), CROSSINGS)
def test_only_what_is_asked_for_is_measured(
    task: str, about: str, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moving: list[bool] = []  # whether the images that are published have tags like `latest`

    def publish(approved: tuple[ApprovedImage, ...], *_: object) -> tuple[()]:
        moving.extend(bool(item.tags.short) for item in approved)
        return ()

    monkeypatch.setattr(publish_images, "publish", publish)
    options, images = ABOUT[about]
    if task == "publish":
        call("scan", **options, **OPTIONS["scan"])
        measured.clear()
    call(task, **OPTIONS[task] | options)
    assert (measured, moving) == (images, [about in ("target", "onto")] * (task == "publish"))
    assert ("no target of matrix.yaml asks" in capsys.readouterr().err) == ((task, about) == ("lock", "target"))


COMPARING: dict[str, dict[str, Any]] = {"lock": {"check": True}, "publish": {"join": True, "to": ["team"]}}


@pytest.mark.parametrize("task", [*COMPARING, "ci.matrix", "engine.prune", "job.launchers"])
def test_what_only_compares_images_measures_none(
    task: str, measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(select, "require_locks", lambda *_: None)
    monkeypatch.setattr(engine, "exists", lambda: True)
    monkeypatch.setattr(engine, "ensure", lambda _: None)
    monkeypatch.setattr(prune, "prune_images", lambda _engine, _ids, targets, *_: sorted(targets))
    call(task, **COMPARING.get(task, {}))
    output = capsys.readouterr()
    assert (measured, "mine" in output.out) == ([], False)
    assert task == "publish" or output.err == f"mine is left out: {REF} was not measured on this machine\n"


def test_a_named_target_was_measured_before(measured: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exit, match=f"mine: {REF} was not measured on this machine\nrun `invoke plan --target mine "):
        call("ci.matrix", target=["mine"])
    call("plan", target=["mine"])
    capsys.readouterr()
    call("ci.matrix", target=["mine"])
    assert [job["arguments"] for job in json.loads(capsys.readouterr().out)["include"]] == [
        f"--target mine --onto {REF}"
    ]
    assert measured == [REF]
