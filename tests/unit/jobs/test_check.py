"""Jobs that somebody else wrote: what is wrong with them is found, and what is right is left alone."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rdma_images import report as reports
from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.report import Report
from rdma_images.jobs.check import check_files
from rdma_images.jobs.check.foreign_job import JobFinding

TEST_DATA = Path(__file__).parents[2] / "data"
GOLDEN = TEST_DATA / "golden" / "jobs"
CHECKED = sorted(GOLDEN.iterdir())
WORKER = (GOLDEN / "mpijob-efa-mpirun" / "mpijob.yaml").read_text()
TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: torch-efa}
  podTemplateOverrides:
  - targetJobs: [{name: node}]
    spec: {nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}}
  trainer:
    numNodes: 2
    resourcesPerNode:
      limits: {nvidia.com/gpu: 8}
      requests: {nvidia.com/gpu: 8}
"""
NODE_GROUP = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: training, region: us-west-2}
managedNodeGroups:
- name: gpus
  instanceType: p5.48xlarge
  desiredCapacity: 2
  availabilityZones: [us-west-2a]
  privateNetworking: true
  efaEnabled: true
"""
DEVICE_PLUGIN = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: aws-efa-k8s-device-plugin}
spec:
  template:
    spec:
      containers:
      - name: aws-efa-k8s-device-plugin
        image: 602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20
"""
# As AWS's manifest for nccl-tests starts them.
MPIRUN = f"""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: nccl-tests}}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - image: registry.example/nccl-tests@sha256:{"5e" * 32}
            command:
            - mpirun
            - /etc/mpi/hostfile
"""
SKYPILOT = (GOLDEN / "skypilot-efa-torchrun" / "job.yaml").read_text()
SBATCH = (GOLDEN / "slurm-efa-torchrun" / "job.sbatch").read_text()
ARENA = (GOLDEN / "arena-erdma-torchrun" / "submit.sh").read_text()
SAGEMAKER = (GOLDEN / "sagemaker-efa-torchrun" / "request.json").read_text()


def findings_in(tmp_path: Path, text: str, name: str = "job.yaml") -> Sequence[JobFinding]:
    path = tmp_path / name
    path.write_text(text)
    return check_files([path]).findings


@pytest.mark.parametrize("folder", CHECKED, ids=lambda folder: folder.name)
def test_nothing_is_wrong_with_a_generated_job(folder: Path) -> None:
    checked = check_files([folder])
    assert checked.parts
    assert checked.findings == ()


@pytest.mark.parametrize("text", [NODE_GROUP, DEVICE_PLUGIN])
def test_nothing_is_wrong_with_what_is_right(tmp_path: Path, text: str) -> None:
    assert findings_in(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("text", "old", "new", "rule"),
    [
        (WORKER, "vpc.amazonaws.com/efa: 32", "vpc.amazonaws.com/efa: 4", "efa.count"),
        (WORKER, "vpc.amazonaws.com/efa: 32", "vpc.amazonaws.com/efa: 64", "efa.count"),
        (WORKER, "                  vpc.amazonaws.com/efa: 32\n", "", "efa.count"),
        (WORKER, "nvidia.com/gpu: 8", "nvidia.com/gpu: 16", "gpus.node"),
        (WORKER, "hugepages-2Mi: 5120Mi", "hugepages-2Mi: 20Gi", "hugepages.node"),
        (WORKER, "memory: 32000Mi", "memory: 4Ti", "memory.node"),
        (WORKER, "            node.kubernetes.io/instance-type: p5.48xlarge\n", "", "node.selector"),
        (WORKER, "instance-type: p5.48xlarge", "instance-type: p5.48xlrage", "instance.unknown"),
        (
            WORKER,
            "emptyDir: {medium: Memory}",
            "hostPath: {path: /dev/shm}",
            "shm.host-path",
        ),
        (
            WORKER,
            "emptyDir: {medium: Memory}",
            "hostPath: {path: /dev/infiniband}",
            "devices.host-path",
        ),
        (WORKER, "restartPolicy: Never", "restartPolicy: OnFailure", "measurement.retries"),
        (WORKER, "backoffLimit: 0", "backoffLimit: 20", "measurement.retries"),
        (WORKER, f"@sha256:{'5e' * 32}", ":latest", "image.tag"),
        (WORKER, "name: NCCL_DEBUG,", "name: NCCL_DEBUGG,", "environment.misspelt"),
        (WORKER, "name: NCCL_DEBUG,", "name: NCCL_PROTO,", "environment.slow"),
        (WORKER, "name: NCCL_DEBUG,", "name: NCCL_BUFFSIZE,", "environment.obsolete"),
        (WORKER, "name: NCCL_DEBUG,", "name: LD_LIBRARY_PATH,", "environment.library-path"),
        (TRAIN_JOB, "", "", "trainjob.resources"),
        (NODE_GROUP, "  efaEnabled: true\n", "", "eksctl.efa"),
        (NODE_GROUP, "[us-west-2a]", "[us-west-2a, us-west-2b]", "eksctl.efa"),
        (NODE_GROUP, "  privateNetworking: true\n", "", "eksctl.efa"),
        (NODE_GROUP, "p5.48xlarge", "p6-b300.48xlarge", "eksctl.efa"),
        (DEVICE_PLUGIN, "v0.5.20", "v0.5.7", "device-plugin.version"),
        (SKYPILOT, "export NCCL_NET=Socket FI_PROVIDER=tcp", "unset NCCL_NET", "tcp.leg"),
    ],
)
def test_a_planted_fault_is_reported(tmp_path: Path, text: str, old: str, new: str, rule: str) -> None:
    assert old in text
    findings = findings_in(tmp_path, text.replace(old, new))
    assert rule in {finding.rule for finding in findings}
    assert all(finding.fix and finding.source and finding.where[0].startswith(str(tmp_path)) for finding in findings)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a report of the image that WORKER runs: what was measured in an efa-pytorch."""
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    inspection = Inspection.model_validate_json((TEST_DATA / "cases" / "efa-pytorch.json").read_bytes())
    report = Report("x", f"sha256:{'5e' * 32}", "", "efa-nccl-tests", (), "", 1.0, (), inspection)
    reports.write(report, paths.image_folder("efa-nccl-tests"))


TUNER, NET = "NCCL_TUNER_PLUGIN", "NCCL_NET_PLUGIN"
OLD = "/opt/aws-ofi-nccl/install/lib/libnccl-ofi-tuner.so"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        # The path that AWS's manifest for nccl-tests had, after the plugin had moved: pull requests 878 and 936.
        (TUNER, OLD, "it has /opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so"),
        (TUNER, "/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so", ""),
        (TUNER, "libnccl-ofi-tuner.so", ""),
        (NET, "aws-ofi", "aws-ofi or libnccl-net-aws-ofi.so is not in the image"),
        (NET, "ofi", ""),
        (NET, "aws-ofi,ofi", ""),
        (NET, "none", ""),
        (NET, "/lib/x86_64-linux-gnu/libibverbs.so.1", ""),  # /lib is a link to /usr/lib in every distribution of today
        (NET, "/dev/shm/libnccl-net.so", ""),  # of a volume, which no report has measured
        (NET, "/opt/mine/network.so", ""),  # a name that reports do not list
        (NET, "$HOME/libnccl-net.so", ""),
    ],
)
@pytest.mark.usefixtures("measured")
def test_a_plugin_is_looked_up_in_the_images_report(tmp_path: Path, variable: str, value: str, expected: str) -> None:
    debug, planted = (f"{{name: {name}, value: " for name in ("NCCL_DEBUG", variable))
    debug, planted = f'{debug}"INFO"}}', f'{planted}"{value}"}}'
    assert debug in WORKER
    sentences = [
        finding.message
        for finding in findings_in(tmp_path, WORKER.replace(debug, planted))
        if finding.rule == "plugin.missing"
    ]
    assert bool(sentences) == bool(expected)
    assert all(expected in finding for finding in sentences)


def test_what_old_releases_refuse_is_no_fault_of_a_job(tmp_path: Path) -> None:
    """The image's versions are not known here."""
    debug = '{name: NCCL_DEBUG, value: "INFO"}'
    assert debug in WORKER
    text = WORKER.replace(debug, debug.replace("NCCL_DEBUG", "OFI_NCCL_PROTOCOL").replace("INFO", "rdma"))
    assert "environment.harmful" not in {finding.rule for finding in findings_in(tmp_path, text)}


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("old", ["-x NCCL_DEBUG \\\n", "- /etc/mpi/hostfile\n"])
def test_what_mpirun_sets_is_read_as_well(tmp_path: Path, old: str) -> None:
    new = f"-x {TUNER}={OLD} \\\n" if "-x" in old else f"- -x\n            - {TUNER}={OLD}\n"
    text = (WORKER if "-x" in old else MPIRUN).replace(old, new)
    assert OLD in text
    (finding,) = [candidate for candidate in findings_in(tmp_path, text) if candidate.rule == "plugin.missing"]
    assert TUNER in text.splitlines()[int(finding.where[0].rpartition(":")[2]) - 1] or "-x" in old


def test_a_plugin_of_an_image_without_a_report_is_not_checked(tmp_path: Path) -> None:
    text = WORKER.replace("name: NCCL_DEBUG,", "name: NCCL_NET_PLUGIN,")
    assert "plugin.missing" not in {finding.rule for finding in findings_in(tmp_path, text)}


@pytest.mark.parametrize(
    ("text", "name", "old", "new", "rule"),
    [
        (SBATCH, "job.sbatch", "export NCCL_DEBUG=INFO", "export NCCL_DEBUG=INFO NCCL_NET=Socket", "tcp.override"),
        (ARENA, "submit.sh", "--device=aliyun/erdma=1", "--rdma", "arena.rdma"),
        (SAGEMAKER, "request.json", '"VpcConfig"', '"NoVpcConfig"', "sagemaker.vpc"),
        (SAGEMAKER, "request.json", '"NCCL_DEBUG":', '"NCCL_PROTO":', "environment.slow"),
    ],
)
def test_a_fault_in_a_script_or_a_request(tmp_path: Path, text: str, name: str, old: str, new: str, rule: str) -> None:
    assert old in text
    assert rule in {finding.rule for finding in findings_in(tmp_path, text.replace(old, new), name)}


def test_an_open_value_is_no_lost_export(tmp_path: Path) -> None:
    text = SBATCH.replace("export NCCL_DEBUG=INFO", "export NCCL_DEBUG=INFO NCCL_NET=${NET}")
    assert "NCCL_NET=${NET}" in text
    assert "tcp.override" not in {finding.rule for finding in findings_in(tmp_path, text, "job.sbatch")}


def test_the_line_is_that_of_the_fault(tmp_path: Path) -> None:
    text = WORKER.replace("vpc.amazonaws.com/efa: 32", "vpc.amazonaws.com/efa: 4")
    (finding,) = [candidate for candidate in findings_in(tmp_path, text) if candidate.rule == "efa.count"]
    line = int(finding.where[0].rpartition(":")[2])
    assert "vpc.amazonaws.com/efa: 4" in text.splitlines()[line - 1]
    assert "28 of 32 lie idle" in finding.message


def test_the_manifest_of_a_document_on_eks() -> None:
    """Its text asks for four EFA, its file for the 32 that p5.48xlarge has: the counts are right, the variables not."""
    findings = check_files([TEST_DATA / "jobs" / "eks-nccl-tests.yaml"]).findings
    assert {(finding.rule, int(location.rpartition(":")[2])) for finding in findings for location in finding.where} == {
        ("image.tag", 18),
        ("image.tag", 38),
        ("environment.library-path", 21),
        ("environment.obsolete", 25),
        ("environment.obsolete", 27),
        ("environment.harmful", 29),
        ("measurement.retries", 9),
        ("measurement.retries", 16),
        ("shm.host-path", 55),
    }


def test_the_command_line_of_a_document_on_ack() -> None:
    findings = check_files([TEST_DATA / "jobs" / "ack-arena.sh"]).findings
    named = {
        word
        for finding in findings
        for word in ("NCCL_ALGO", "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL")
        if word in finding.message
    }
    assert named == {"NCCL_ALGO", "NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"}
    assert {finding.rule for finding in findings} == {"environment.obsolete", "image.tag", "node.selector"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("just: text\n", "no job in it"),
        ("", "no job in it"),
        ("kind: Pod\nspec: {containers: [1, null]}\n", "no job in it"),
        ("kind: 7\nspec: {containers: {}}\n", "no job in it"),
    ],
)
def test_what_is_no_job_gets_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(RdmaImagesError, match=sentence):
        findings_in(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "not valid YAML"),
        ("{", "not valid JSON"),
        ("kind: MPIJob\nkind: MPIJob\n", "is written twice"),
        ("a: &a [*a]\n", "nested deeper"),
    ],
)
def test_what_cannot_be_read_is_a_line_of_the_result(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    (row,) = check_files([path]).unreadable
    assert row.file == str(path)
    assert sentence in row.why


def test_the_task_ends_with_one_where_it_finds_an_error(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(TRAIN_JOB)
    words = [sys.executable, "-m", "invoke", "job.check", str(path), "--json"]
    done = subprocess.run(words, cwd=paths.PROJECT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["findings"][0]["rule"] == "trainjob.resources"


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ("", ["the container gets no RDMA device, and NCCL takes TCP"]),
        ("--device=/dev/infiniband", ["locked memory stays limited: no queue pair can be created"]),
        ("--device /dev/infiniband/uverbs0 --ulimit memlock=-1:-1", []),
        ("--device=/dev/infiniband --cap-add IPC_LOCK", []),
        ("--device=$DEVICES --ulimit $LIMITS", []),
        ("--privileged", []),
    ],
)
def test_what_a_container_may(tmp_path: Path, options: str, problems: list[str]) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ndocker run --gpus all -e FI_PROVIDER=efa {options} image@sha256:{'5e' * 32} train\n")
    devices = [finding.message for finding in check_files([script]).findings if finding.rule == "docker.devices"]
    assert devices == problems


@pytest.mark.parametrize("gpus", ["4", "'\"device=0,1,2,3\"'", "'\"device=0,1,2,3\",capabilities=compute'", "count=4"])
def test_more_ranks_than_a_containers_gpus(tmp_path: Path, gpus: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ndocker run --gpus {gpus} image torchrun --nproc_per_node=8 train.py\n")
    assert [finding.fix for finding in check_files([script]).findings if finding.rule == "ranks.gpus"] == [
        "start 4, or ask for 8 GPUs"
    ]


@pytest.mark.parametrize(
    ("options", "command", "count"),
    [
        ("", "torchrun --nnodes=2 --master_addr=localhost train.py", 1),
        ("", "torchrun --nnodes=2 --master_addr=127.0.0.1 train.py", 1),
        ("--ipc=host", "torchrun --nnodes=2 --rdzv-endpoint=localhost:29500 train.py", 1),
        ("", "torchrun --nnodes=1 --master_addr=localhost train.py", 0),
        ("", "torchrun --nnodes=2 --master_addr=node-1 train.py", 0),
    ],
)
def test_an_address_that_is_each_containers_own(tmp_path: Path, options: str, command: str, count: int) -> None:
    line = f"docker run --gpus all {options} image {command}\n"
    rules = [finding.rule for finding in findings_in(tmp_path, f"#!/bin/sh\n{line}", "run.sh")]
    assert rules.count("rendezvous.address") == count
    sharing_host = line.replace(" image", " --network host image") * 2
    rules = [finding.rule for finding in findings_in(tmp_path, f"#!/bin/sh\n{sharing_host}", "run.sh")]
    assert "rendezvous.address" not in rules


def test_sockets_that_are_chosen_on_nodes_with_a_fabric(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    options = "--gpus all --privileged -e FI_PROVIDER=efa"
    script.write_text(f"#!/bin/sh\ndocker run {options} -e NCCL_NET=Socket image train\n")
    chosen = [finding for finding in check_files([script]).findings if finding.rule == "tcp.chosen"]
    assert [(finding.severity, finding.message) for finding in chosen] == [
        ("warning", "NCCL_NET=Socket: NCCL uses TCP sockets alone, and leaves the fabric (efa)")
    ]
