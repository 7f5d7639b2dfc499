"""How the nodes of a job meet, by the commands that start their ranks."""

from pathlib import Path

import pytest

from tests.support.foreign_jobs import findings, pods, rated_messages, sbatch


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--nnodes=2 --node_rank=$RANK --master_addr=node1", ""),
        ("--nnodes=1", ""),
        ("--nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=node1:29500", ""),
        (
            "--nnodes=2 --node_rank=1",
            "torchrun for 2 nodes without --master-addr, and it reads no MASTER_ADDR or NODE_RANK: "
            "each node looks for the first at 127.0.0.1",
        ),
        (
            "--nnodes=2 --master_addr=node1",
            "torchrun for 2 nodes without --node-rank, and it reads no MASTER_ADDR or NODE_RANK: each node is rank 0",
        ),
        (
            "--nnodes 2 --rdzv-endpoint node1:29500",
            "torchrun for 2 nodes without --node-rank, and it reads no MASTER_ADDR or NODE_RANK: each node is rank 0",
        ),
        (
            "--nnodes=2 --rdzv-backend=c10d --master_addr=node1",
            "--rdzv-backend=c10d without --rdzv-endpoint: each node meets itself at localhost",
        ),
        ("--nnodes=2 --standalone", "--standalone is for one node: each of the 2 nodes trains by itself"),
        ("--nnodes=2 $DISTRIBUTED_ARGS", ""),
    ],
)
def test_torchrun_learns_where_the_first_node_is(tmp_path: Path, options: str, problem: str) -> None:
    text = f"#!/bin/bash\ntorchrun --nproc_per_node=8 {options} train.py\n"
    assert rated_messages(tmp_path, "rendezvous.torchrun", job_sh=text) == ([("error", problem)] if problem else [])


def test_an_operator_tells_torchrun_by_variables(tmp_path: Path) -> None:
    text = pods("PET_NODE_RANK=0", command='["torchrun", "--nnodes=2", "train.py"]')
    assert not rated_messages(tmp_path, "rendezvous.torchrun", job_yaml=text)
    text = text.replace("PET_NODE_RANK", "LOCAL")
    assert len(rated_messages(tmp_path, "rendezvous.torchrun", job_yaml=text)) == 1


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            "srun torchrun --nnodes=2 --node_rank=0 --master_addr=$M train.py",
            "each of the 2 nodes is started with rank 0",
        ),
        ("srun -N1 -n1 -w $M torchrun --nnodes=2 --node_rank=0 --master_addr=$M train.py &", ""),
        ("srun torchrun --nnodes=2 --node_rank=0 --rdzv_backend=c10d --rdzv_endpoint=$M train.py", ""),
        (
            "srun accelerate launch --num_machines $SLURM_NNODES --machine_rank 0 train.py",
            "each of the 2 nodes is started with rank 0",
        ),
        (
            "srun torchrun --nnodes=2 --node_rank=2 --master_addr=$M train.py",
            "rank 2 of 2 nodes: their ranks go from 0 to 1",
        ),
        ("srun torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr=$M train.py", ""),
    ],
)
def test_a_node_has_a_rank_of_its_own(tmp_path: Path, command: str, problem: str) -> None:
    reported = rated_messages(tmp_path, "rendezvous.node-rank", job_sbatch=sbatch(command))
    assert reported == ([("error", problem)] if problem else [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("export MASTER_PORT=99999\ntorchrun train.py", "port 99999: ports go up to 65535"),
        ("torchrun --rdzv_endpoint=localhost:0 train.py", ""),
        ("accelerate launch --main_process_port 99999 train.py", "port 99999: ports go up to 65535"),
        ("torchrun --nnodes=2 --rdzv_endpoint=node1:295000 train.py", "port 295000: ports go up to 65535"),
        ("MASTER_PORT=$((RANDOM % 1000 + 20000))\ntorchrun --master_port=$MASTER_PORT train.py", ""),
        (
            "ssh node1 'torchrun --nnodes=2 --master_port=$((RANDOM % 1000 + 20000)) train.py'",
            "each node draws its own port by $((RANDOM % 1000 + 20000))",
        ),
    ],
)
def test_a_port_is_one_and_exists(tmp_path: Path, text: str, problem: str) -> None:
    reported = rated_messages(tmp_path, "rendezvous.port", job_sh=f"#!/bin/bash\n{text}\n")
    assert reported == ([("error", problem)] if problem else [])


@pytest.mark.parametrize(
    ("lines", "severity", "problem"),
    [
        ("export MASTER_ADDR=http://node1\nsrun train", "error", "http://node1 is a URL, and no host name"),
        (
            "export MASTER_ADDR=node1:29500\nsrun train",
            "error",
            "node1:29500 has a port: the address and the port are two settings",
        ),
        (
            "export MASTER_ADDR=$SLURM_NODELIST\nsrun train",
            "error",
            "$SLURM_NODELIST is a list of nodes, as node[01-02], and no name",
        ),
        (
            "export MASTER_ADDR=$(hostname -I)\nsrun train",
            "warning",
            "hostname -I prints all addresses of the node with a blank behind each",
        ),
        ("export MASTER_ADDR=$(hostname)\nsrun train", "", ""),  # which the first node reads
        (
            "srun bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr=$(hostname) train.py'",
            "error",
            "$(hostname) is each node's own name: no node meets the others",
        ),
        (
            "srun accelerate launch --num_machines 2 --main_process_ip localhost train.py",
            "error",
            "localhost is each node itself: no node meets the others",
        ),
        (
            "srun python -m sglang.launch_server --nnodes 2 --node-rank $R --dist-init-addr 127.0.0.1:5000",
            "error",
            "127.0.0.1:5000 is each node itself: no node meets the others",
        ),
        ("srun python -m sglang.launch_server --nnodes 2 --node-rank $R --dist-init-addr node1:5000", "", ""),
    ],
)
def test_an_address_is_the_first_nodes(tmp_path: Path, lines: str, severity: str, problem: str) -> None:
    reported = rated_messages(tmp_path, "rendezvous.address-form", job_sbatch=sbatch(lines))
    assert reported == ([(severity, problem)] if problem else [])


def test_a_pods_own_name_is_not_the_first_nodes(tmp_path: Path) -> None:
    command = '[bash, -c, "torchrun --nnodes=2 --node_rank=$R --master_addr=$(hostname) train.py"]'
    (finding,) = rated_messages(tmp_path, "rendezvous.address-form", job_yaml=pods(command=command))
    assert finding == ("error", "$(hostname) is each node's own name: no node meets the others")


def test_torchrun_of_one_node_on_several(tmp_path: Path) -> None:
    text = "resources: {accelerators: T4:1}\nnum_nodes: 2\nrun: torchrun --standalone --nproc_per_node=1 train.py\n"
    ((severity, message),) = rated_messages(tmp_path, "rendezvous.torchrun", job_yaml=text)
    assert (severity, message) == ("warning", "2 nodes each start torchrun with --standalone: each trains by itself")
    assert not rated_messages(tmp_path, "rendezvous.torchrun", job_yaml=text.replace("num_nodes: 2", "num_nodes: 1"))
    (finding,) = rated_messages(tmp_path / ".", "rendezvous.torchrun", job_yaml=text.replace(" --standalone", ""))
    assert finding[1].startswith("2 nodes each start torchrun without --nnodes")


def test_a_rank_beyond_the_only_node(tmp_path: Path) -> None:
    text = "#!/bin/bash\ntorchrun --nnodes=1 --node_rank=3 --master_addr=192.168.1.1 train.py\n"
    assert rated_messages(tmp_path, "rendezvous.node-rank", job_sh=text) == [
        ("error", "rank 3 of 1 node: their ranks go from 0 to 0")
    ]


def test_commands_of_one_job_name_one_first_node(tmp_path: Path) -> None:
    line = "python -m torch.distributed.launch --nnodes=2 --node_rank={} --master_addr={} train.py\n"
    text = "#!/bin/bash\n" + line.format(0, "192.168.1.3") + line.format(1, "192.168.1.2")
    assert rated_messages(tmp_path, "rendezvous.first-node", job_sh=text) == [
        ("warning", "node 1 meets at 192.168.1.2, and node 0 of line 2 at 192.168.1.3")
    ]
    assert not rated_messages(tmp_path, "rendezvous.first-node", job_sh=text.replace("1.2", "1.3"))


@pytest.mark.parametrize(
    ("options", "command", "port"),
    [
        ("--gres=gpu:2", "torchrun --nproc_per_node=2 train.py", "29500"),
        ("--gres=gpu:2", "torchrun --nproc_per_node=2 --master_port=12345 train.py", "12345"),
        ("--gres=gpu:4 --array=0-9", "torchrun --nproc_per_node=4 train.py", "29500"),
        ("--gres=gpu:4", "torchrun --nproc_per_node=4 train.py", ""),
        ("--gres=gpu:2", "torchrun --standalone --nproc_per_node=2 train.py", ""),
        ("--gres=gpu:2", "torchrun --nnodes=1 --rdzv_backend=c10d --rdzv_endpoint=localhost:29400 train.py", "29400"),
        ("--gres=gpu:2", "torchrun --nnodes=1 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 train.py", ""),
        ("--gres=gpu:2", "torchrun --nnodes=1 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29400 train.py", ""),
        ("--gres=gpu:2 --exclusive", "torchrun --nproc_per_node=2 train.py", ""),
        ("--gres=gpu:2", "accelerate launch --num_processes 2 train.py", "29500"),
        ("--gres=gpu:2", "accelerate launch --num_processes 2 --main_process_port 8080 train.py", "8080"),
        ("--gres=gpu:2", "accelerate launch --config_file two.yaml train.py", ""),
        ("--gres=gpu:1", "accelerate launch train.py", ""),
        ("--gres=gpu:2", "torchrun --nproc_per_node=2 --master_port=$((10000 + SLURM_JOB_ID)) train.py", ""),
        ("--gres=gpu:2", "torchrun --nproc_per_node=2 --master_port=0 train.py", ""),
        ("--gres=gpu:2 --nodes=2", "srun torchrun --nproc_per_node=2 train.py", ""),
    ],
)
def test_ports_of_jobs_that_share_a_node(tmp_path: Path, options: str, command: str, port: str) -> None:
    reported = findings(tmp_path, "rendezvous.shared-port", job_sbatch=sbatch(command, options=options))
    assert [row.message.startswith(f"port {port} is in use where ") for row in reported] == ([True] if port else [])


@pytest.mark.parametrize(("start", "count"), [("torchrun", 1), ("srun torchrun", 0), ("bash each_node.sh", 0)])
def test_a_torchrun_beside_a_question_for_the_first_node(tmp_path: Path, start: str, count: int) -> None:
    """As in meta-llama/llama-cookbook issue 491."""
    text = sbatch(
        'head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)',
        f"{start} --nproc_per_node 8 --nnodes 4 --rdzv_backend c10d --rdzv_endpoint $head_node_ip:29500 train.py",
        options="--nodes=4 --ntasks=4",
    )
    reported = [row.message for row in findings(tmp_path, "launcher.nodes", job_sbatch=text)]
    assert [message.startswith("torchrun runs on the first node alone") for message in reported] == [True] * count
