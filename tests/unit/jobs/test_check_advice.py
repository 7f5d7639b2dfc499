"""Each rule finds its fault, and its advice is tried: what it makes has neither that finding nor a worse one."""

from pathlib import Path
from typing import NamedTuple

import pytest

from rdma_images import report as reports
from rdma_images.core import paths
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.report import Report
from rdma_images.jobs.check import RULES, check_files
from rdma_images.jobs.check.node_group import JobFinding
from tests.support.foreign_jobs import DIGEST, EFA, SKYPILOT, TRAIN_JOB, pods, sbatch

CASE = Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json"
TUNER = "/opt/aws-ofi-nccl/install/lib/libnccl-ofi-tuner.so"
POD = pods()
SBATCH = sbatch("export NCCL_DEBUG=INFO", f"srun --container-image={DIGEST} train")
CONNECTOR = 'vllm serve m --kv-transfer-config {"kv_connector":"MooncakeConnector","kv_connector_extra_config":{}}'
DEVICES = "hostNetwork: true\n      volumes: [{name: ib, hostPath: {path: /dev/infiniband}}]"
SGLANG = "[python3, -m, sglang.launch_server, --disaggregation-transfer-backend, mooncake]"
ERDMA_POD = pods(instance="ecs.ebmgn8v.48xlarge").replace(f"{EFA}: 32", "aliyun/erdma: 1")
LOCK = "        securityContext: {capabilities: {add: [IPC_LOCK]}}\n        resources:"


class Fault(NamedTuple):
    """A fault in a good file, the advice that is printed, and the change that it asks for."""

    rule: str
    file: str  # the fault in it
    advice: str
    old: str
    new: str
    name: str = "job.yaml"


def variable(rule: str, setting: str, advice: str, new: str | None = None) -> Fault:
    """Return a fault in a variable of a pod; the advice is to write `new`, or to remove it."""
    text = pods(setting)
    line = next(line for line in text.splitlines() if "env: [" in line)
    good = "" if new is None else line.replace(setting.partition("=")[2], new)
    return Fault(rule, text, advice, line, good)


FAULTS = [
    Fault("gpus.node", pods(gpus="16"), "ask for 8 at most", "gpu: 16", "gpu: 8"),
    Fault("gpus.node", pods(gpus="9" * 5000), "ask for 8 at most", "9" * 5000, "8"),
    Fault("efa.count", pods(efa="4"), "ask for 32", f"{EFA}: 4", f"{EFA}: 32"),
    Fault("efa.count", pods(efa="64"), "ask for 32", f"{EFA}: 64", f"{EFA}: 32"),
    Fault(
        "efa.count",
        pods("FI_PROVIDER=efa", efa=None),
        f"ask for {EFA}: 32 in requests and limits",
        "gpu: 8}",
        f"gpu: 8, {EFA}: 32}}",
    ),
    Fault(
        "hugepages.node",
        POD.replace(f"{EFA}: 32", f"{EFA}: 32, hugepages-2Mi: 20Gi"),
        "ask for 5120Mi",
        "20Gi",
        "5120Mi",
    ),
    Fault("trainjob.resources", TRAIN_JOB.replace(f", {EFA}: 32", ""), f"write {EFA}", "gpu: 8", f"gpu: 8, {EFA}: 32"),
    Fault(
        "skypilot.efa",
        SKYPILOT.replace(", network_tier: best", ""),
        "write network_tier: best",
        '8"',
        '8", network_tier: best',
    ),
    Fault("skypilot.efa", SKYPILOT.replace("best", "standard"), "write network_tier: best", "standard", "best"),
    Fault("image.tag", pods(image="trainer:1"), "name the image by its digest", "trainer:1", DIGEST),
    variable("plugin.missing", f"NCCL_TUNER_PLUGIN={TUNER}", "remove it: NCCL finds"),
    Fault(
        "plugin.missing",
        pods(f"NCCL_TUNER_PLUGIN={TUNER}", image=f"x@sha256:{'5e' * 32}"),
        "remove it: NCCL finds",
        f'env: [{{name: NCCL_TUNER_PLUGIN, value: "{TUNER}"}}]',
        "",
    ),
    Fault(
        "transfer.fabric",
        pods("A=b", command=SGLANG),
        "set MOONCAKE_PROTOCOL=efa",
        'A, value: "b"',
        'MOONCAKE_PROTOCOL, value: "efa"',
    ),
    Fault(
        "transfer.fabric",
        pods(command=f"['{CONNECTOR}']"),
        'set "mooncake_protocol": efa',
        'extra_config":{',
        'extra_config":{"mooncake_protocol":"efa"',
    ),
    variable("environment.harmful", "FI_PROVIDER=tcp", "remove it"),
    variable("environment.misspelt", "NCCL_DEBUGG=INFO", "write NCCL_DEBUG if that is meant"),
    variable("environment.library-path", "LD_LIBRARY_PATH=/opt/lib", "remove it"),
    variable("tcp.chosen", "NCCL_NET=Socket", "remove it, unless this job measures TCP"),
    Fault(
        "tcp.chosen",
        SBATCH.replace("=INFO", "=INFO NCCL_NET=Socket"),
        "remove it, unless",
        " NCCL_NET=Socket",
        "",
        "job.sbatch",
    ),
    Fault("pod.rdma", ERDMA_POD, "add securityContext.capabilities.add: [IPC_LOCK]", "        resources:", LOCK),
    Fault("devices.host-path", pods(spec=DEVICES), "leave it out", DEVICES, "hostNetwork: true"),
]


def findings_of(folder: Path, name: str, text: str) -> tuple[JobFinding, ...]:
    path = folder / name
    path.write_text(text)
    return check_files([path]).findings


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a report of the image whose digest is 5e5e…: what was measured in an efa-pytorch."""
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    inspection = Inspection.model_validate_json(CASE.read_bytes())
    report = Report("x", f"sha256:{'5e' * 32}", "", "efa-nccl-tests", (), "", 1.0, (), inspection)
    reports.write(report, paths.image_folder("efa-nccl-tests"))


@pytest.mark.usefixtures("reported")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.advice[:20]}")
def test_what_an_advice_makes_is_better(tmp_path: Path, fault: Fault) -> None:
    assert fault.old in fault.file
    before = findings_of(tmp_path, fault.name, fault.file)
    (finding,) = [row for row in before if row.rule == fault.rule]
    assert finding.fix.startswith(fault.advice)
    assert finding.source
    after = findings_of(tmp_path, fault.name, fault.file.replace(fault.old, fault.new))
    assert fault.rule not in {row.rule for row in after}
    assert {(row.rule, row.severity) for row in after} <= {(row.rule, row.severity) for row in before}


def test_nothing_is_wrong_with_the_good_files(tmp_path: Path) -> None:
    for name, text in {"a.yaml": POD, "b.sbatch": SBATCH, "c.yaml": TRAIN_JOB, "d.yaml": SKYPILOT}.items():
        assert findings_of(tmp_path, name, text) == (), name


def test_every_rule_has_an_advice_that_is_tried() -> None:
    assert {fault.rule for fault in FAULTS} == {rule.id for rule in RULES}
