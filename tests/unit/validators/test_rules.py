"""What the validators make of cases: a real one through the whole suite, and parts of it changed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rdma_images.core import paths
from rdma_images.inspection.inspection import Inspection
from rdma_images.report import junit
from rdma_images.validate import suite
from rdma_images.validate.probes import tools
from rdma_images.validate.validator import Requirement, SkippedError, UnmetError
from tests.support import validators_called
from validators.efa import test_environment as efa_environment
from validators.images_only import test_labels as image_labels
from validators.sagemaker import test_train as sagemaker_train

CASES = Path(__file__).parents[2] / "data" / "cases"
OF_A_FAILURE = re.compile(r"\b(?:does not|do not|cannot|fails|crash|hang|without|too old)\b")
REFUSES = {"NCCL_NET": "Libfabric", "FI_PROVIDER": "efa", "NVIDIA_VISIBLE_DEVICES": "all"}
REFUSES |= {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


def case(**changes: Any) -> Inspection:
    data = json.loads((CASES / "efa-pytorch.json").read_text())
    data["subject"].update(changes)
    return Inspection.model_validate(data)


def test_a_good_case() -> None:
    checks = suite.run(case())
    assert [c for c in checks if c.outcome == "failed"] == []
    assert all(c.reason for c in checks if c.outcome == "skipped")
    assert all(c.expected and c.actual for c in checks if c.outcome == "passed")
    assert len({c.id for c in checks}) == len(checks) > 40
    assert not [c for c in checks if c.outcome == "passed" and OF_A_FAILURE.search(c.actual)]


def test_a_mistake_in_a_validator_is_its_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(image_labels, "require_label", mistaken)
    (check,) = suite.run(case(), only={"nccl.label"})
    assert (check.outcome, check.actual) == ("failed", "the validator itself failed: KeyError: 'x'")
    assert check.fix == "report this as a defect, with report.json"


def test_a_machine_is_checked_for_all_that_is_not_about_images() -> None:
    ids = {check.id for check in suite.run(case(ref="ssh://node", digest=""))}
    every = {check.id for check in suite.run(case())}
    parts = ("layers.", "label.", "user.", "sagemaker.", "size.")
    others = {"environment.gpus", "environment.secret", "environment.refusal", "cuda.driver", "nccl.label"}
    assert every - ids == others | {check for check in every if check.startswith(parts)}
    assert {"cuda.stub", "measured.complete"} <= ids


def test_a_host_is_not_asked_what_an_image_asks_the_runtime_for() -> None:
    """A machine whose GPUs are its own has no NVIDIA_VISIBLE_DEVICES."""
    data = case(ref="ssh://node").model_dump()
    data["subject"] |= {"digest": "", "environment": {}}
    assert "environment.gpus" not in validators_called.checks_by_id(Inspection.model_validate(data))


@pytest.mark.parametrize(
    ("fabric", "environment", "severity"),
    [
        (None, {}, "note"),
        ("efa", {}, "warning"),
        (None, {"NVIDIA_VISIBLE_DEVICES": "all"}, "warning"),  # and no capabilities
    ],
)
def test_an_image_made_for_docker_alone_is_not_warned_of_enroot(
    fabric: str | None, environment: dict[str, str], severity: str
) -> None:
    data = case(environment=environment).model_dump()
    data["expected"]["fabric"] = fabric
    check = validators_called.checks_by_id(Inspection.model_validate(data))["environment.gpus"]
    assert (check.outcome, check.severity) == ("failed", severity)


def test_the_driver_of_a_machine_is_not_one_that_comes_before_the_hosts() -> None:
    data = case(ref="local://", digest="").model_dump()
    driver = "/usr/lib/x86_64-linux-gnu/libcuda.so.470.57.02"
    data["measured"]["tree"]["libraries"]["resolved"]["libcuda.so.1"].update(file=driver, path=driver)
    check = validators_called.checks_by_id(Inspection.model_validate(data))["cuda.compat"]
    assert check.outcome == "failed"
    assert check.actual.startswith(f"driver 470.57.02 at {driver}: too old for CUDA ")
    assert check.fix.startswith("update the driver, or install the cuda-compat of CUDA ")


def test_what_the_good_case_has_nothing_of_is_skipped_and_all_else_passes() -> None:
    """It was measured before files of settings were, and on no other driver, toolkit or user than root."""
    skipped = {
        check.id: check.reason for check in validators_called.checks_by_id(case()).values() if check.outcome != "passed"
    }
    unmeasured = {name for name, reason in skipped.items() if reason == "settings was not measured"}
    assert skipped.keys() - unmeasured == {
        "label.libfabric", "label.rdma-core", "libfabric.version", "plugin.project",
    }  # fmt: skip
    kinds = {"environment", "settings"}
    assert {name.partition(".")[0] for name in unmeasured} == kinds


def test_a_broken_case_has_expected_found_and_fix() -> None:
    environment = REFUSES | {"NCCL_PROTO": "simple", "MODELS": "hf_" + "a" * 34}
    checks = suite.run(case(environment=environment), ("static", "device"))
    failed = {c.id: c for c in checks if c.outcome == "failed"}
    assert set(failed) == {"environment.slow", "environment.secret"}
    assert all(c.expected and c.fix for c in failed.values())
    assert "hf_aaa" not in junit.junit_xml(checks)
    assert {c.outcome for c in checks if c.tier == "device"} == {"skipped"}


def test_what_a_pull_takes_is_not_known_where_the_engine_keeps_layers_unpacked() -> None:
    """As Docker's classic store does: all it can save of an image is tar files without compression."""
    data = case()
    assert data.measured.layers
    layers = tuple(
        layer.model_copy(update={"bytes": layer.unpacked + 512 * layer.file_count}) for layer in data.measured.layers
    )
    measured = data.measured.model_copy(update={"layers": layers})
    check = validators_called.checks_by_id(data.model_copy(update={"measured": measured}))["size.budget"]
    assert (check.outcome, check.reason) == (
        "skipped",
        "the engine keeps no compressed layers: what a pull takes is unknown",
    )


def test_what_is_empty_is_not_set() -> None:
    """A Dockerfile cannot take away what its base sets: it can only empty it."""
    emptied = REFUSES | dict.fromkeys(("LD_LIBRARY_PATH", "NCCL_PROTO", "RDMAV_FORK_SAFE", "FI_EFA_FORK_SAFE"), "")
    checks = validators_called.checks_by_id(case(environment=emptied))
    assert [c for c in checks.values() if c.outcome == "failed"] == []


@pytest.mark.parametrize(
    ("plugin", "outcome", "words"),
    [
        ({"aws_platform": True, "version": "1.21.1"}, "passed", "with the AWS platform"),
        (
            {"aws_platform": False, "version": "1.21.1"},
            "failed",
            "libnccl-net-ofi.so was built without the AWS platform",
        ),
        ({"aws_platform": False, "version": ""}, "failed", "without the AWS platform"),  # of a git revision
        ({"aws_platform": False, "version": "1.5.0"}, "skipped", "has no platforms"),
        ({"aws_platform": None}, "skipped", "is no aws-ofi-nccl"),
    ],
)
def test_a_plugin_has_the_aws_platform(plugin: dict[str, Any], outcome: str, words: str) -> None:
    data = json.loads(case(labels={"io.rdma-images.fabric": "efa"}).model_dump_json())
    data["measured"]["tree"]["libraries"]["plugins"]["/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"] |= plugin
    checks = validators_called.checks_by_id(Inspection.model_validate(data))
    check = checks["plugin.platform"]
    assert (check.outcome, words in (check.actual or check.reason)) == (outcome, True), check
    assert ("--enable-platform-aws" in check.fix) is (outcome == "failed")


@pytest.mark.parametrize(
    ("fabric", "label", "environment", "outcome", "words"),
    [
        ("efa", "refuse", REFUSES, "passed", "NCCL_NET=Libfabric and FI_PROVIDER=efa"),
        ("efa", "refuse", {"NCCL_NET": "Libfabric"}, "failed", "NCCL_NET=Libfabric"),
        ("efa", "refuse", {"FI_PROVIDER": "efa"}, "failed", "FI_PROVIDER=efa"),
        ("efa", "refuse", REFUSES | {"FI_PROVIDER": "efa,tcp"}, "failed", "FI_PROVIDER=efa,tcp"),
        ("efa", "refuse", {}, "failed", "neither"),
        ("efa", "allow", {}, "passed", "neither"),
        ("efa", "allow", {"FI_PROVIDER": "efa"}, "failed", "FI_PROVIDER=efa"),
        ("efa", "refuse", REFUSES | {"NCCL_NET": "AWS Libfabric"}, "passed", "NCCL_NET=AWS Libfabric"),
        ("efa", "", {"NCCL_NET": "AWS Libfabric"}, "left out", ""),  # somebody else's
        ("efa", "", {"NCCL_NET": "OFI", "FI_PROVIDER": "tcp"}, "skipped", "FI_PROVIDER=tcp takes the fabric away"),
        ("efa", "", {"FI_PROVIDER": "efa"}, "left out", ""),
        ("erdma", "refuse", {"NCCL_NET": "IB"}, "passed", "NCCL_NET=IB"),
        ("erdma", "refuse", {"NCCL_NET": "Socket"}, "skipped", "see environment.harmful"),
    ],
)
def test_an_image_that_refuses_has_what_makes_nccl_refuse(
    fabric: str, label: str, environment: dict[str, str], outcome: str, words: str
) -> None:
    labels = {"io.rdma-images.fabric": fabric, "io.rdma-images.fallback": label}
    data = json.loads(case(labels=labels, environment=environment).model_dump_json())
    data["expected"]["fabric"] = fabric
    checks = validators_called.checks_by_id(Inspection.model_validate(data))
    assert ("environment.refusal" in checks) is (outcome != "left out")
    if outcome == "left out":
        return
    check = checks["environment.refusal"]
    assert (check.outcome, words in (check.actual or check.reason)) == (outcome, True), check
    assert bool(check.fix) is (outcome == "failed")


@pytest.mark.parametrize(
    ("provider", "red"),
    [("efa", False), ("efa,tcp", False), ("^tcp", False), ("tcp", True), ("verbs;ofi_rxm", True), ("^efa", True)],
)
def test_a_provider_other_than_efa_is_harmful(provider: str, red: bool) -> None:
    checks = validators_called.checks_by_id(case(environment={"FI_PROVIDER": provider}))
    assert (checks["environment.harmful"].outcome == "failed") is red


def for_sagemaker(run: dict[str, Any], **wheels: str) -> Inspection:
    """Return the good case as an image for SageMaker, with what became of `train --help` and more wheels."""
    data = case(labels={"io.rdma-images.target": "sagemaker-efa-pytorch"}).model_dump()
    data["expected"]["target"] = "sagemaker-efa-pytorch"
    data["measured"]["tools"]["train --help"] = tools.not_run("/usr/local/bin/train") | run
    next(iter(data["measured"]["packages"]["wheels"].values())).update(wheels)
    return Inspection.model_validate(data)


@pytest.mark.parametrize(
    ("run", "broken"),
    [
        ({"exit_code": 0}, None),
        ({"exit_code": 1, "stderr": "No module named sagemaker_job"}, "ended with 1: No module named sagemaker_job"),
        ({"path": ""}, "there is no such tool"),
        ({"stderr": "not started: it is not in /opt/sagemaker/"}, "not started"),
    ],
)
def test_sagemakers_command_can_be_started(run: dict[str, Any], broken: str | None) -> None:
    if broken is None:
        sagemaker_train.test_train(for_sagemaker(run), Requirement())
    else:
        with pytest.raises(UnmetError, match=re.escape(broken)):
            sagemaker_train.test_train(for_sagemaker(run), Requirement())


def test_sagemakers_toolkit_is_reported_once() -> None:
    with_toolkit = for_sagemaker({"exit_code": None}, **{"sagemaker-training": "5.1.4"})
    with pytest.raises(UnmetError, match=r"found: sagemaker-training 5\.1\.4 in /opt/venv"):
        efa_environment.test_toolkit(with_toolkit, Requirement())
    with pytest.raises(SkippedError, match=r"see sagemaker\.toolkit"):
        sagemaker_train.test_train(with_toolkit, Requirement())
    efa_environment.test_toolkit(for_sagemaker({"exit_code": 0}), Requirement())


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        *(("rdma_images/cli/jobs.py", False), ("rdma_images/publish/push.py", False)),
        *(("rdma_images/core/versions.py", True), ("rdma_images/preflight/devices.py", True)),
        *(("validators/nccl/test_nccl.py", True), ("facts/nccl.yaml", True), ("rdma_images/datapath/guest/init", True)),
    ],
)
def test_the_digest_of_the_suite_is_that_of_what_decides(
    name: str, decides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a report is kept, and the gate passes it, when the text of an option changes."""
    read, file, before = Path.read_bytes, paths.CODE / name, suite.digest.__wrapped__()
    assert file.is_file()
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"\n" if path == file else b""))
    assert (suite.digest.__wrapped__() != before) == decides


def test_what_validators_import_decides() -> None:
    seen: set[str] = set()
    waiting = list(paths.VALIDATORS.rglob("*.py"))
    while waiting:
        for line in re.findall(
            r"^\s*from (rdma_images[\w.]*) import ([\w, ]+)", waiting.pop().read_text(), re.MULTILINE
        ):
            names = {line[0], *(f"{line[0]}.{name.strip()}" for name in line[1].split(","))} - seen
            files = [paths.CODE / f"{name.replace('.', '/')}.py" for name in names]
            waiting += [file for file in files if file.is_file()]
            seen |= names
    packages = {name.split(".")[1] for name in seen if (paths.CODE / f"{name.replace('.', '/')}.py").is_file()}
    assert packages <= {*suite.DECIDING, "plan"}, "plan.image_settings has the names of two variables"


def test_every_validator_is_in_the_docs() -> None:
    text = "".join(path.read_text() for path in paths.VALIDATORS.rglob("test_*.py"))
    ids = re.findall(r'@validator\(\s*"([\w.-]+)"', text)
    table = (paths.PROJECT / "docs" / "reference" / "validators.md").read_text()
    assert len(ids) == len(set(ids)) > 60
    assert [name for name in ids if f"| `{name}` |" not in table] == []


@pytest.mark.parametrize(
    ("version", "true"), [("64.0", True), ("64.0-1", True), ("64.0amzn1", True), ("64.01", False), ("6.0", False)]
)
def test_rdma_cores_version_may_go_on_in_awss_words(version: str, true: bool) -> None:
    data = json.loads(case().model_dump_json())
    del data["subject"]["labels"]["io.rdma-images.rehearsal"]
    data["measured"]["packages"]["dpkg"]["libibverbs1"] = version
    real = Inspection.model_validate(data)
    assert real.measured.packages
    require = Requirement()
    if true:
        image_labels.test_rdma_core(real, real.measured.packages, require)
    else:
        with pytest.raises(UnmetError):
            image_labels.test_rdma_core(real, real.measured.packages, require)
