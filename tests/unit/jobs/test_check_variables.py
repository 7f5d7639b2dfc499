"""The variables of jobs, judged by their nodes and pods; as public repositories have them, good ones among them."""

from pathlib import Path

import pytest

from tests.support.foreign_jobs import DIGEST, checked, findings, pods, rated_messages, sbatch, severities


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        ("^docker,lo,veth,eth", "", ["error"]),  # a pod has eth0 alone
        ("^lo,docker,ens", "", []),
        ("^docker,lo,veth,eth", "hostNetwork: true", []),  # EC2's hosts have ens and enp
        ("^lo,docker,en", "hostNetwork: true", ["error"]),
        ("eth0", "", []),
        ("en", "hostNetwork: true", []),  # NCCL compares the beginning of the name
        ("bond0", "hostNetwork: true", ["warning"]),
    ],
)
def test_an_interface_is_judged_by_the_network_of_the_pods(
    tmp_path: Path, value: str, spec: str, expected: list[str]
) -> None:
    text = pods(f"NCCL_SOCKET_IFNAME={value}", spec=spec)
    assert severities(tmp_path, "environment.harmful", job_yaml=text) == expected


def test_an_interface_of_hosts_under_slurm(tmp_path: Path) -> None:
    text = sbatch("export FI_PROVIDER=efa", "export NCCL_SOCKET_IFNAME=^docker,lo,veth,eth", "srun train")
    assert severities(tmp_path, "environment.harmful", job_sbatch=text) == []


@pytest.mark.parametrize(
    ("env", "instance", "expected"),
    [
        ("NCCL_P2P_DISABLE=1", "p5.48xlarge", ["error"]),
        ("NCCL_P2P_DISABLE=1", "g5.12xlarge", []),  # PCIe alone
        ("NCCL_P2P_DISABLE=1", "", ["warning"]),
        ("FI_EFA_USE_DEVICE_RDMA=0", "p5.48xlarge", ["error"]),
        ("FI_EFA_USE_DEVICE_RDMA=0", "g5.12xlarge", []),
        ("RDMAV_FORK_SAFE=1", "p5.48xlarge", ["warning"]),
        ("FI_PROVIDER=${FI_PROVIDER}", "p5.48xlarge", []),
        ("FI_PROVIDER=$(FI_PROVIDER)", "p5.48xlarge", []),
        ("FI_PROVIDER={{workflow.parameters.provider}}", "p5.48xlarge", []),
        ("FI_PROVIDER=tcp", "p5.48xlarge", ["error"]),
        ("OFI_NCCL_PROTOCOL=rdma", "p5.48xlarge", []),  # which old releases refuse: the version is not known
    ],
)
def test_a_variable_is_judged_by_the_nodes(tmp_path: Path, env: str, instance: str, expected: list[str]) -> None:
    efa, gpus = ("1", "4") if instance.startswith("g5") else ("32", "8")
    text = pods(env, instance, efa, gpus)
    assert severities(tmp_path, "environment.harmful", job_yaml=text) == expected


def test_a_variable_from_elsewhere_is_not_judged(tmp_path: Path) -> None:
    text = pods("NCCL_NET=x").replace('value: "x"', "valueFrom: {configMapKeyRef: {name: a, key: b}}")
    assert checked(tmp_path, job_yaml=text).findings == ()


@pytest.mark.parametrize("setting", ["NCCL_TIMEOUT=1800", "NCCL_HOME=/usr", "FI_EFA_FORK_SAFE=1"])
def test_variables_that_do_no_harm(tmp_path: Path, setting: str) -> None:
    assert checked(tmp_path, job_yaml=pods(setting)).findings == ()


def test_variables_of_a_batch_script_are_judged_as_those_of_a_pod(tmp_path: Path) -> None:
    text = sbatch(
        "export FI_PROVIDER=efa  # NCCL_ALGO=ring",
        "export NCCL_P2P_LEVEL=LOC",
        "NCCL_P2P_DISABLE=1 srun train.sh",
        "srun --export=ALL,FI_EFA_USE_DEVICE_RDMA=0 mpirun -x NCCL_NET=Socket train",
    )
    named = {finding.message.split("=")[0] for finding in checked(tmp_path, job_sbatch=text).findings}
    assert named == {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", "FI_EFA_USE_DEVICE_RDMA", "NCCL_NET"}


@pytest.mark.parametrize(
    ("lines", "fabric"),
    [
        ("if [ $FAST = no ]; then\n  export NCCL_NET=Socket\nfi", ""),
        ("if [ $FAST = no ]; then export NCCL_NET=Socket; fi", ""),
        ("run_tcp() {\n  export NCCL_NET=Socket\n}", ""),
        ("[ $FAST = no ] && export NCCL_NET=Socket", ""),
        ("export NCCL_NET=Socket\nunset NCCL_NET", ""),
        ("NCCL_NET=Socket", ""),  # of the shell alone
        ("NET=Socket\nexport NCCL_NET=$NET", ""),
        ("export NCCL_NET=$(choose)", ""),
        ("env NCCL_NET=Socket train", "Socket"),
        ("srun bash -c '\nexport NCCL_NET=Socket\ntrain'", "Socket"),
        ("srun \\\n  --export=ALL,NCCL_NET=Socket \\\n  train", "Socket"),
        ('echo "export NCCL_NET=Socket"', ""),
        ("# export NCCL_NET=Socket; don't", ""),
    ],
)
def test_what_a_script_sets(tmp_path: Path, lines: str, fabric: str) -> None:
    text = sbatch("export FI_PROVIDER=efa", *lines.split("\n"))
    (part,) = checked(tmp_path, job_sbatch=text).groups
    word = part.environment.get("NCCL_NET")
    assert (word.text if word and "$" not in word.text else "") == fabric
    assert word is None or "NCCL_NET" in text.splitlines()[word.line - 1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            f"export NCCL_NET=Socket\nsrun --container-image={DIGEST} x",
            "leaves the fabric; where the image sets NCCL_NET",
        ),
        (f"export NCCL_NET=Socket\nsrun --container-env=NCCL_NET --container-image={DIGEST} x", "leaves the fabric"),
        ("export NCCL_NET=Socket\nsrun x", ""),  # of a host that nothing is known of
        ("export FI_PROVIDER=efa NCCL_NET=Socket\nsrun x", "leaves the fabric (efa)"),
    ],
)
def test_sockets_that_a_batch_script_chooses(tmp_path: Path, lines: str, message: str) -> None:
    found = rated_messages(tmp_path, "tcp.chosen", job_sbatch=sbatch(*lines.split("\n")))
    assert [(severity, message in text) for severity, text in found] == ([("warning", True)] if message else [])


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ('srun --container-image="nvcr.io#nvidia/pytorch:25.01-py3" train', "nvcr.io#nvidia/pytorch:25.01-py3"),
        ("ARGS=(\n--container-image ubuntu\n)", "ubuntu"),
        ("srun --container-image ${IMAGE} train", None),
        ("IMAGE=$(pwd)/a.sqsh\nsrun --container-image ${IMAGE} train", None),
        ("srun --container-image /fsx/a.sqsh train", None),
        (f"srun --container-image {DIGEST} train", None),
    ],
)
def test_an_image_of_a_batch_script(tmp_path: Path, line: str, image: str | None) -> None:
    tagged = findings(tmp_path, "image.tag", job_sbatch=sbatch(*line.split("\n")))
    assert [finding.message.split(" ")[0] for finding in tagged] == ([image] if image else [])


MPIRUN = '[sh, -c, "mpirun -np 16 -x NCCL_NET=Socket \\\\\\n -x NCCL_ALGO train"]'


@pytest.mark.parametrize(
    "command", [MPIRUN, "[mpirun, -x, NCCL_NET=Socket, train]", '[bash, -c, "export NCCL_NET=Socket\\ntrain"]']
)
def test_what_a_pods_command_sets(tmp_path: Path, command: str) -> None:
    assert severities(tmp_path, "tcp.chosen", job_yaml=pods(command=command)) == ["warning"]
