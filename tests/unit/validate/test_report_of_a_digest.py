"""A report proves the image that was measured, and no other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images import report
from rdma_images.core import paths
from rdma_images.core.check import Check
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord
from rdma_images.engine import Engine, docker_command
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import Measured
from rdma_images.inspection.report import Report
from rdma_images.report import checks_table
from rdma_images.validate import probe_host, probe_image, validate_image
from rdma_images.validate.run_probes import mark_timed_out
from rdma_images.validate.validate_image import FabricScenario, validate

CASE = Inspection.model_validate(
    json.loads((Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json").read_text())
)
CASE_BARE = CASE.measured.model_copy(update={"torch": None, "missing": {"torch": "the image's Python was not asked"}})
A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
REF = "rdma-images/efa-pytorch:1"
BUILT = BuildRecord("efa-pytorch-1", REF, A, "sha256:0", ("efa-installer-1.50.0",), "2026-11-21T09:00:00+00:00", 1.0)
GREEN = Check("nccl.single", "one libnccl is in the image", "static", "error", "passed", "one file", "one")
ENGINE = Engine("docker", "existing", "unix:///nowhere", "28.0", "0.21", "containerd", "default", {})


class Named:
    """An engine in which REF is the name of the images of `digests`, one after the other."""

    def __init__(self, *digests: str) -> None:
        self.digests, self.api = list(digests), self
        self.names: list[str] = []

    def inspect_image(self, name: str) -> dict[str, object]:
        self.names.append(name)
        digest = name if name.startswith("sha256:") else self.digests[min(len(self.names), len(self.digests)) - 1]
        return {"Id": digest, "Os": "linux", "Architecture": "amd64", "Config": {"Labels": {}}}

    def history(self, _digest: str) -> list[dict[str, object]]:
        return []

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use reports of the test's own."""
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(validate_image, "state_folder", lambda: tmp_path / "state")

    monkeypatch.setattr(probe_image, "measure_image", lambda *_: CASE.measured)


def validated(
    monkeypatch: pytest.MonkeyPatch, *digests: str, build: BuildRecord | None = BUILT, again: bool = False
) -> Report:
    monkeypatch.setattr(engines, "client", lambda _engine: Named(*digests))
    monkeypatch.setattr(docker_command, "image_digests", lambda *_: {REF: digests[0], digests[0]: digests[0]})
    return validate(REF, ENGINE, build=build, again=again)


def test_the_digest_is_of_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert validated(monkeypatch, A).digest == A
    assert validated(monkeypatch, A).reused


def test_another_image_of_the_name_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=f"{A}, any more: the name {REF} was given to another image"):
        validated(monkeypatch, B)
    assert not list(paths.IMAGES.glob("*/report.json"))
    assert validated(monkeypatch, B, build=None).digest == B
    with pytest.raises(RefusedError, match="another image"):  # also where it is known to be green
        validated(monkeypatch, B)


def test_a_name_that_moves_meanwhile_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert validated(monkeypatch, A, B).digest == A


def test_a_cached_report_of_another_image_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = validated(monkeypatch, A)
    (path,) = (tmp_path / "state").glob("reports/*/report.json")
    report.REPORT.write_file(path, replace(first, digest=B))
    again = validated(monkeypatch, A)
    assert (again.digest, again.reused) == (A, False)


def test_stand_ins_are_known_by_the_build_and_by_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    assert validated(monkeypatch, A).stand_ins == BUILT.stand_ins


def test_the_answer_about_an_image_comes_with_its_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tier device alone ended with 0 beside an answer that NCCL would use TCP sockets."""
    monkeypatch.setattr(engines, "client", lambda _engine: Named(A))
    monkeypatch.setattr(docker_command, "image_digests", lambda *_: {REF: A})
    device_report = validate(REF, ENGINE, build=BUILT, tiers=("device",))
    assert device_report.chain
    assert {"chain.holds", "environment.harmful"} <= {check.id for check in device_report.checks}


def test_a_host_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_host, "measure_host", lambda _host, _tiers, _instance: Measured())
    host_report = validate(REF, None, build=BUILT, tiers=("device",), host="local://")
    assert host_report.digest == ""


def test_a_question_about_a_host_is_answered_from_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tier device measures no file: its answer was that no libnccl is there, and no check asked for the chain."""
    asked: list[tuple[tuple[str, ...], str]] = []

    def measure(_host: str, tiers: tuple[str, ...], instance: str) -> Measured:
        asked.append((tiers, instance))
        return Measured()

    monkeypatch.setattr(probe_host, "measure_host", measure)
    scenario = FabricScenario(instance="p5.48xlarge")
    host_report = validate(REF, None, build=BUILT, tiers=("device",), host="local://", scenario=scenario)
    assert asked == [(("static", "device"), "p5.48xlarge")]
    assert "chain.holds" in {check.id for check in host_report.checks}


def test_what_the_clock_stopped_is_not_measured_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        probe_image, "measure_image", lambda *_: mark_timed_out(("torch",), "was stopped after 90 s", CASE_BARE)
    )
    stopped = validated(monkeypatch, A)
    by_id = {check.id: check for check in stopped.checks}
    assert {"torch.imports", "measured.complete"} <= set(stopped.unmeasured)
    assert by_id["torch.imports"].reason == "torch was stopped after 90 s"
    assert not stopped.passed
    line = checks_table.summary_line(stopped)
    assert f"{len(stopped.unmeasured)} not measured (" in line
    monkeypatch.setattr(probe_image, "measure_image", lambda *_: CASE.measured)
    whole = validated(monkeypatch, A)
    assert (whole.reused, whole.unmeasured) == (False, ())
    failed = {check.id for check in whole.checks if check.outcome == "failed"}
    assert {check.id for check in stopped.checks if check.outcome == "failed"} == failed
    assert validated(monkeypatch, A).reused


def test_a_check_that_passed_before_is_said_to_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert validated(monkeypatch, A).no_longer_checked == ()
    monkeypatch.setattr(probe_image, "measure_image", lambda *_: CASE_BARE)
    later = validated(monkeypatch, A, again=True)
    assert "nccl.loaded" in later.no_longer_checked
    assert "; no longer checked: " in checks_table.summary_line(later)


def test_again_measures_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    validated(monkeypatch, A)
    assert validated(monkeypatch, A).reused
    assert not validated(monkeypatch, A, again=True).reused
