"""What launchers and libraries do not read as it is meant: options, variables, values, files of settings."""

from pathlib import Path

import pytest

from rdma_images.jobs.check import check_files
from tests.support.foreign_jobs import findings, pods, rated_messages, sbatch


@pytest.mark.parametrize(
    ("setting", "severity", "problem"),
    [
        ("NCCL_IB_DISABLE=true", "error", "NCCL_IB_DISABLE=true is no number: it counts as 0, or as the default"),
        ("NCCL_IB_DISABLE=1", "", ""),
        ("NCCL_IB_GID_INDEX=-1", "", ""),
        ("NCCL_BUFFSIZE=0x400000", "", ""),
        ("NCCL_IB_TIMEOUT=60", "error", "NCCL_IB_TIMEOUT=60: values go from 0 to 31"),
        ("NCCL_IB_TIMEOUT=22", "", ""),
        (
            "NCCL_SOCKET_IFNAME=eth*",
            "error",
            "NCCL_SOCKET_IFNAME=eth*: it takes the beginnings of names, and no wildcard: none fits",
        ),
        (
            "NCCL_DEBUG=DEBUG",
            "warning",
            "NCCL_DEBUG=DEBUG is none of VERSION, WARN, INFO, ABORT, TRACE, NONE: NCCL prints nothing",
        ),
        ("NCCL_DEBUG=info", "", ""),
        (
            "NCCL_DEBUG_SUBSYS=COLL",
            "warning",
            "NCCL_DEBUG_SUBSYS=COLL leaves INIT and NET out: no log says which network NCCL used",
        ),
        ("NCCL_DEBUG_SUBSYS=init,coll", "", ""),
        ("NCCL_DEBUG_SUBSYS=^COLL", "", ""),
        (
            "UCX_NET_DEVICES=mlx5_0",
            "warning",
            "UCX_NET_DEVICES=mlx5_0 names no port: UCX's names are as mlx5_0:1",
        ),
        ("UCX_NET_DEVICES=mlx5_0:1", "", ""),
        ("UCX_NET_DEVICES=eth0", "", ""),
    ],
)
def test_values_are_read_as_numbers_and_names(tmp_path: Path, setting: str, severity: str, problem: str) -> None:
    reported = rated_messages(tmp_path, "environment.value", job_yaml=pods(setting))
    assert reported == ([(severity, problem)] if problem else [])


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "MASTER_ADDR=$(scontrol show hostnames)\nsrun torchrun --rdzv_endpoint=$MASTER_ADRR:29500 train.py",
            "$MASTER_ADRR is set nowhere here, and MASTER_ADDR is: --rdzv_endpoint may be empty",
        ),
        ("MASTER_ADDR=a\nsrun torchrun --rdzv_endpoint=$MASTER_ADDR:29500 train.py", ""),
        ("srun torchrun --rdzv_endpoint=$MASTER_ADDR:29500 train.py", ""),  # the caller's
    ],
)
def test_a_variable_that_is_set_nowhere(tmp_path: Path, lines: str, problem: str) -> None:
    assert [text for _, text in rated_messages(tmp_path, "launch.unset", job_sbatch=sbatch(lines))] == (
        [problem] if problem else []
    )


@pytest.mark.parametrize(
    ("lines", "severity", "problem"),
    [
        (
            "srun python -m sglang.launch_server --nnodes 2 --tp 16",
            "error",
            "sglang for 2 nodes without --node-rank and --dist-init-addr: each node is the first",
        ),
        (
            "srun accelerate launch --num_machines 2 --machine_rank $R train.py",
            "warning",
            "accelerate for 2 nodes without --main_process_ip: each node looks for the first at its own address",
        ),
        ("srun accelerate launch --num_machines 2 --config_file c.yaml train.py", "", ""),
        ("srun ray start --address=a:6379", "", ""),
        ("srun ray start --head", "error", "srun starts a head of Ray on each node: there are as many clusters"),
        ("srun -N1 -n1 -w a ray start --head", "", ""),
        ("srun ray start --num-gpus 8", "error", "ray start has neither --head nor --address: it refuses to start"),
        (
            "srun ray start --address=a:6379 --node-ip-address=10.0.0.2:6379",
            "error",
            "--node-ip-address=10.0.0.2:6379 has a port, and is no address",
        ),
    ],
)
def test_a_server_of_several_nodes(tmp_path: Path, lines: str, severity: str, problem: str) -> None:
    reported = rated_messages(tmp_path, "rendezvous.nodes", job_sbatch=sbatch(lines))
    assert reported == ([(severity, problem)] if problem else [])


def test_a_rank_that_the_script_exports_before_srun(tmp_path: Path) -> None:
    text = sbatch("export RANK=$SLURM_PROCID", "srun python train.py")
    ((severity, message),) = rated_messages(tmp_path, "rendezvous.rank", job_sbatch=text)
    assert severity == "warning"
    assert message.startswith("the script itself puts its own $SLURM_PROCID in place")
    inner = sbatch("srun bash -c 'export RANK=$SLURM_PROCID; python train.py'")
    assert not rated_messages(tmp_path, "rendezvous.rank", job_sbatch=inner)


def test_torchrun_that_nothing_starts_on_other_nodes(tmp_path: Path) -> None:
    text = sbatch("torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$M train.py")
    ((_, message),) = rated_messages(tmp_path, "launcher.nodes", job_sbatch=text)
    assert message == "torchrun runs on the first node alone: nothing in the script starts it on the others"
    assert not rated_messages(tmp_path, "launcher.nodes", job_sbatch=text.replace("torchrun", "srun torchrun"))
    assert not rated_messages(tmp_path, "launcher.nodes", job_sbatch=text.replace("nodes=2\n", "nodes=1\n"))


def test_lines_that_end_as_on_windows(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_bytes(b"#!/bin/bash\r\ntorchrun train.py\r\n")
    (finding,) = check_files([path]).findings
    assert finding.rule == "shell.broken"
    assert finding.message.startswith("the lines end as on Windows")


ACCELERATE = """distributed_type: MULTI_GPU
machine_rank: {rank}
main_process_ip: {address}
main_process_port: {port}
num_machines: 2
num_processes: {processes}
"""


def test_configurations_of_accelerate(tmp_path: Path) -> None:
    good = {"rank": 0, "address": "10.0.0.1", "port": 29500, "processes": 16}
    first, second = ACCELERATE.format(**good), ACCELERATE.format(**{**good, "rank": 1})
    folder = tmp_path / "good"
    folder.mkdir()
    (folder / "a.yaml").write_text(first)
    (folder / "b.yaml").write_text(second)
    assert check_files([folder]).findings == ()
    (folder / "b.yaml").write_text(first)
    (finding,) = check_files([folder]).findings
    assert finding.message == f"rank 0 is that of accelerate configuration in {folder / 'a.yaml'}, too"
    for change, problem in (
        ({"port": 99999}, "port 99999: ports go up to 65535"),
        ({"processes": 1}, "1 processes on 2 machines: each needs the same number"),
        ({"address": "localhost"}, "localhost is each node itself: no node meets the others"),
        ({"rank": 2}, "rank 2 of 2 nodes: their ranks go from 0 to 1"),
    ):
        path = tmp_path / "config.yaml"
        path.write_text(ACCELERATE.format(**{**good, **change}))
        assert [finding.message for finding in check_files([path]).findings] == [problem]


def test_gloo_is_told_its_interface(tmp_path: Path) -> None:
    lines = (
        "export NCCL_SOCKET_IFNAME=ib0",
        "srun python -m sglang.launch_server --tp 16 --nnodes 2 --node-rank $R --dist-init-addr $M:5000",
    )
    ((severity, message),) = rated_messages(tmp_path, "rendezvous.gloo", job_sbatch=sbatch(*lines))
    assert severity == "warning"
    assert message == "NCCL_SOCKET_IFNAME=ib0, and Gloo is not told: it announces the address of the host's name"
    assert not rated_messages(tmp_path, "rendezvous.gloo", job_sbatch=sbatch("export GLOO_SOCKET_IFNAME=ib0", *lines))


@pytest.mark.parametrize(
    ("service", "fix"),
    [
        ("", "write network_mode: host"),
        ("network_mode: host,", ""),
        ("networks: [overlay],", ""),
    ],
)
def test_a_service_that_is_one_of_several_nodes(tmp_path: Path, service: str, fix: str) -> None:
    command = "torchrun --nnodes=2 --node_rank=$$R --master_addr=node1 train.py"
    text = f"services:\n  a: {{image: x, gpus: all, ipc: host, {service} command: '{command}'}}\n"
    reported = findings(tmp_path, "docker.network", compose_yaml=text)
    assert [finding.fix for finding in reported] == ([fix] if fix else [])
