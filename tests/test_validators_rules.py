"""What the validators make of cases: a real one through the whole suite, devices and GPUs by themselves."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rdma_images import paths
from rdma_images.errors import RdmaImagesError
from rdma_images.validate import suite
from rdma_images.validate.case import Case
from rdma_images.validate.measured import Devices, Gpus, ToolRun
from rdma_images.validate.plugin import BrokenError, Judge
from validators import test_devices as devices_suite
from validators import test_gpus as gpus_suite
from validators import test_labels as labels_suite
from validators import test_toolkit as toolkit_suite

CASES = Path(__file__).parent / "data" / "cases"
MACHINE = json.loads((CASES / "h200-x2.json").read_text())


def case(**changes: Any) -> Case:
    data = json.loads((CASES / "efa-pytorch.json").read_text())
    data["subject"].update(changes)
    return Case.model_validate(data)


def test_a_good_case_and_its_junit(tmp_path: Path) -> None:
    checks = suite.run(case(), ("static",), tmp_path / "report.xml")
    assert [c for c in checks if c.outcome == "failed"] == []
    assert all(c.reason for c in checks if c.outcome == "skipped")
    assert all(c.expected and c.found for c in checks if c.outcome == "passed")
    assert len({c.id for c in checks}) == len(checks) > 40
    root = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert {p.get("value") for p in root.iter("property") if p.get("name") == "id"} == {c.id for c in checks}


def test_a_broken_case_says_expected_found_and_mend(tmp_path: Path) -> None:
    environment = {"NCCL_VERSION": "2.18.3-1", "NCCL_PROTO": "simple", "REGISTRY_TOKEN": "not-to-be-shown"}
    checks = suite.run(case(environment=environment), ("static", "device"), tmp_path / "report.xml")
    failed = {c.id: c for c in checks if c.outcome == "failed"}
    assert set(failed) == {"nccl.environment", "environment.harmful", "environment.secret"}
    assert failed["nccl.environment"].found == "NCCL_VERSION=2.18.3-1"
    assert all(c.expected and c.mend for c in failed.values())
    assert "not-to-be-shown" not in (tmp_path / "report.xml").read_text()
    assert {c.outcome for c in checks if c.tier == "device"} == {"skipped"}


def test_what_is_empty_is_not_set(tmp_path: Path) -> None:
    """A Dockerfile cannot take away what its base sets: it can only empty it."""
    emptied = dict.fromkeys(
        ("LD_LIBRARY_PATH", "NCCL_VERSION", "NCCL_PROTO", "RDMAV_FORK_SAFE", "FI_EFA_FORK_SAFE"), ""
    )
    checks = suite.run(case(environment=emptied), ("static",), tmp_path / "report.xml")
    assert [c for c in checks if c.outcome == "failed"] == []


def test_a_cuda_bases_own_libraries_are_there_on_purpose(tmp_path: Path) -> None:
    """Beside the wheels', where the image says that it stands on such a base, and in no other folder."""
    plain = case()
    files = plain.model_dump(mode="json")["measured"]["tree"]["files"]["libraries"]
    wheels = next(path for path in files if path.endswith("/libcudart.so.13"))
    labels = {**plain.subject.labels, "io.rdma-images.component.base": "cuda13.2.1-runtime-ubuntu24.04"}
    toolkit = "/usr/local/cuda-13.2/targets/x86_64-linux/lib/libcudart.so.13.2.75"
    for place, said, red in (
        (toolkit, labels, False),
        (toolkit.replace("13.2/", "13.1/"), labels, True),
        (toolkit, plain.subject.labels, True),
    ):
        told = json.loads(case(labels=said).model_dump_json())
        told["measured"]["tree"]["files"]["libraries"][place] = files[wheels]
        checks = {c.id: c for c in suite.run(Case.model_validate(told), ("static",), tmp_path / "report.xml")}
        assert (checks["cuda.single"].outcome == "failed") is red, checks["cuda.single"]


@pytest.mark.parametrize(
    ("path", "release", "wheel", "broken"),
    [
        ("/usr/local/cuda/bin/nvcc", "13.1", None, None),  # a base's, of the image's major
        ("/usr/local/cuda/bin/nvcc", "13.2", "13.2.86", None),
        (
            "/usr/local/cuda/bin/nvcc",
            "13.1",
            "13.2.86",
            "nvcc of CUDA 13.2",
        ),  # a base's in the place of the image's own
        ("/usr/local/cuda/bin/nvcc", "12.8", None, "nvcc of CUDA 13,"),
        ("/opt/elsewhere/nvcc", "13.2", None, "on the PATH"),
    ],
)
def test_the_toolkit_is_found_and_of_the_images_cuda(
    path: str, release: str, wheel: str | None, broken: str | None
) -> None:
    told = json.loads(case(environment={"PATH": "/usr/local/cuda/bin:/usr/bin"}).model_dump_json())
    folder = next(iter(told["measured"]["packages"]["wheels"].values()))
    folder |= {"nvidia-cuda-nvcc": wheel} if wheel else {}
    out = f"Cuda compilation tools, release {release}, V{release}.1"
    nvcc = ToolRun(path=path, rc=0, out=out, err="", timed_out=False, seconds=0.0)
    if broken is None:
        toolkit_suite.test_toolkit(Case.model_validate(told), nvcc, Judge())
    else:
        with pytest.raises(BrokenError, match=re.escape(broken)):
            toolkit_suite.test_toolkit(Case.model_validate(told), nvcc, Judge())


def test_the_suite_has_one_digest() -> None:
    assert suite.digest().startswith("sha256:")
    assert suite.digest() == suite.digest()


def machine(**changes: Any) -> Devices:
    efa = {"driver": "efa", "state": "4: ACTIVE", "mtu": 0, "p2p": "NVIDIA"}
    base = {
        "instance": "p5en.48xlarge",
        "nodes": [f"uverbs{i}" for i in range(16)],
        "rdma": {f"rdmap{i}s0": efa for i in range(16)},
        "efa_domains": [f"rdmap{i}s0-rdm" for i in range(16)],
        "huge_pages": {"total": 10, "free": 5, "bytes": 2097152},
    }
    return Devices.model_validate({**MACHINE["devices"], **base, **changes})


def erdma(**changes: Any) -> Devices:
    device = {"driver": "erdma", "state": "4: ACTIVE", "mtu": 8500, "p2p": "", **changes.pop("device", {})}
    tool = {"path": "ibv_devinfo", "rc": 0, "out": changes.pop("shown", "hca_id:\terdma_0\n\tstate: PORT_ACTIVE (4)\n")}
    rest = {"err": "", "timed_out": False, "seconds": 0.0}
    tools = {"ibv_devinfo": {**tool, **rest}, "fi_info -p efa": MACHINE["devices"]["tools"]["fi_info -p efa"]}
    data = {"instance": "", "rdma": {"erdma_0": device}, "compat_mode": "Y", "tools": tools, **changes}
    return Devices.model_validate({**MACHINE["devices"], **data})


GOOD = [
    (devices_suite.test_nodes, (machine(), "efa")),
    (devices_suite.test_nodes, (machine(nodes=[f"uverbs{i}" for i in range(15)]), "efa")),
    (devices_suite.test_efa_domains, (machine(),)),
    (devices_suite.test_memlock, (machine(),)),
    (devices_suite.test_huge_pages, (machine(),)),
    (devices_suite.test_gpudirect, (machine(), "efa")),
    (devices_suite.test_erdma_port, (erdma(),)),
    (devices_suite.test_compat_mode, (erdma(),)),
    (devices_suite.test_mtu, (erdma(),)),
    (devices_suite.test_gpudirect, (erdma(), "erdma")),
]
BAD = [
    (devices_suite.test_nodes, (machine(nodes=["uverbs0"]), "efa"), "16 on p5en.48xlarge"),
    (devices_suite.test_efa_domains, (machine(efa_domains=["rdmap0s0-rdm"]),), "one for each"),
    (devices_suite.test_memlock, (machine(memlock=65536),), "unlimited"),
    (devices_suite.test_huge_pages, (machine(huge_pages={"total": 10, "free": 0, "bytes": 2097152}),), "at least one"),
    (devices_suite.test_erdma_port, (erdma(device={"state": "1: DOWN"}),), "PORT_ACTIVE"),
    (devices_suite.test_erdma_port, (erdma(shown="No IB devices found"),), "PORT_ACTIVE"),
    (devices_suite.test_compat_mode, (erdma(compat_mode="N"),), "Y in"),
    (devices_suite.test_mtu, (erdma(device={"mtu": 1500}),), "8500"),
    (
        devices_suite.test_gpudirect,
        (erdma(nvidia_module="NVIDIA UNIX x86_64 Kernel Module"), "erdma"),
        "nvidia_peermem",
    ),
]
ABSENT = [
    (devices_suite.test_nodes, (machine(rdma={}, nodes=[]), "efa")),
    (devices_suite.test_nodes, (machine(instance="unheard-of"), "efa")),
    (devices_suite.test_efa_domains, (machine(rdma={}),)),
    (devices_suite.test_compat_mode, (machine(),)),
    (devices_suite.test_mtu, (erdma(device={"mtu": 0}),)),
    (devices_suite.test_gpudirect, (machine(modules=[], nvidia_module=""), "efa")),
]


def name(value: Any) -> str:
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("validator", "given"), GOOD, ids=name)
def test_devices_as_they_should_be(validator: Any, given: tuple[Any, ...]) -> None:
    validator(*given, Judge())


@pytest.mark.parametrize(("validator", "given", "expected"), BAD, ids=name)
def test_devices_at_fault(validator: Any, given: tuple[Any, ...], expected: str) -> None:
    judge = Judge()
    with pytest.raises(BrokenError):
        validator(*given, judge)
    assert expected in judge.expected
    assert judge.found
    assert judge.mend


@pytest.mark.parametrize(("validator", "given"), ABSENT, ids=name)
def test_devices_that_are_absent_are_skipped(validator: Any, given: tuple[Any, ...]) -> None:
    with pytest.raises(pytest.skip.Exception):
        validator(*given, Judge())


@pytest.mark.parametrize(
    ("version", "true"), [("64.0", True), ("64.0-1", True), ("64.0amzn1", True), ("64.01", False), ("6.0", False)]
)
def test_rdma_cores_version_may_go_on_in_awss_words(version: str, true: bool) -> None:
    told = json.loads(case().model_dump_json())
    del told["subject"]["labels"]["io.rdma-images.rehearsal"]
    told["measured"]["packages"]["dpkg"]["libibverbs1"] = version
    real = Case.model_validate(told)
    assert real.measured.packages
    judge = Judge()
    if true:
        labels_suite.test_rdma_core(real, real.measured.packages, judge)
    else:
        with pytest.raises(BrokenError):
            labels_suite.test_rdma_core(real, real.measured.packages, judge)


def gpus(**changes: Any) -> Gpus:
    return Gpus.model_validate({**MACHINE["gpus"], **changes})


def test_real_gpus() -> None:
    gpus_suite.test_visible(gpus(), Judge())
    gpus_suite.test_peers(gpus(), Judge())
    judge = Judge()
    gpus_suite.test_all_reduce(gpus(), judge)
    assert judge.found.startswith("0 wrong elements on 2 ranks; 4 MiB at")
    with pytest.raises(BrokenError, match="TCP sockets"):
        gpus_suite.test_network(gpus(), "efa", Judge())


def test_gpus_at_fault() -> None:
    run = MACHINE["gpus"]["runs"]["default"]
    wrong = [[{**row, "wrong": 3} for row in rank] for rank in run["rows"]]
    for broken in ({**run, "rows": wrong}, {**run, "rows": run["rows"][:1]}, {**run, "codes": [0, None]}):
        with pytest.raises(BrokenError):
            gpus_suite.test_all_reduce(gpus(runs={"default": broken}), Judge())
    network = {"default": MACHINE["gpus"]["runs"]["network"]}
    with pytest.raises(BrokenError):
        gpus_suite.test_peers(gpus(runs=network), Judge())
    with pytest.raises(BrokenError):
        gpus_suite.test_visible(gpus(names=["NVIDIA H200", "NVIDIA L40S"]), Judge())


@pytest.mark.parametrize("check", [gpus_suite.test_all_reduce, gpus_suite.test_peers], ids=name)
def test_one_gpu_is_too_few(check: Any) -> None:
    with pytest.raises(pytest.skip.Exception, match="needs two GPUs"):
        check(gpus(count=1, runs={}), Judge())


def test_every_validator_is_in_the_docs() -> None:
    text = "".join(path.read_text() for path in paths.VALIDATORS.glob("test_*.py"))
    ids = re.findall(r'mark\.validator\(\s*"([\w.-]+)"', text)
    table = (paths.PROJECT / "docs" / "validators.md").read_text()
    assert len(ids) == len(set(ids)) > 60
    assert [name for name in ids if f"| `{name}` |" not in table] == []


def test_a_tier_without_validators_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RdmaImagesError, match="no validator is of the tier multinode"):
        suite.run(case(), ("multinode",), tmp_path / "report.xml")
