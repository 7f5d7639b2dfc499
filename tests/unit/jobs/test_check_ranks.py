"""How many ranks a job starts, and what reaches them."""

from pathlib import Path

import pytest

from tests.support.foreign_jobs import findings, pods, rated_messages, sbatch


def messages(folder: Path, rule: str, text: str) -> list[str]:
    return [message for _, message in rated_messages(folder, rule, job_sh=f"#!/bin/bash\n{text}\n")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node=4 train.py",
            "4 ranks on a node, and CUDA_VISIBLE_DEVICES=0,1 leaves 2 of its GPUs",
        ),
        (
            "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 8 train.py",
            "8 ranks on a node, and CUDA_VISIBLE_DEVICES=0,1 leaves 2 of its GPUs",
        ),
        ("CUDA_VISIBLE_DEVICES=0 vllm serve m &\nCUDA_VISIBLE_DEVICES=1,2 torchrun --nproc_per_node=2 train.py", ""),
        ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_machines 4 --num_processes 8 train.py", ""),
        ("CUDA_VISIBLE_DEVICES=$GPUS torchrun --nproc_per_node=4 train.py", ""),
    ],
)
def test_ranks_have_visible_gpus(tmp_path: Path, text: str, problem: str) -> None:
    assert messages(tmp_path, "ranks.visible", text) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("options", "command", "problem"),
    [
        (
            "--nodes=2 --ntasks-per-node=8",
            "srun torchrun --nnodes=2 --nproc_per_node=8 train.py",
            "srun starts 8 torchrun on each node, and each starts the ranks of all its GPUs",
        ),
        (
            "--nodes=2 --ntasks=16",
            "srun torchrun --nproc_per_node=8 train.py",
            "srun starts 8 torchrun on each node, and",
        ),
        ("--nodes=2 --ntasks-per-node=8", "srun --ntasks-per-node=1 torchrun --nproc_per_node=8 train.py", ""),
        ("--nodes=2 --ntasks-per-node=8", "srun -N2 -n2 torchrun --nproc_per_node=8 train.py", ""),
        ("--nodes=2 --ntasks-per-node=8", "srun -n $N torchrun --nproc_per_node=8 train.py", ""),
        ("--nodes=2 --ntasks-per-node=8", "srun torchrun --nnodes=16 --nproc_per_node=1 train.py", ""),
        ("--nodes=2 --ntasks-per-node=1", "srun torchrun --nproc_per_node=8 train.py", ""),
        (
            "--nodes=2 --ntasks-per-node=8",
            "srun accelerate launch --num_processes 16 train.py",
            "srun starts 8 accelerate on each node, and",
        ),
        ("--nodes=2 --ntasks-per-node=8", "srun accelerate launch --num_processes 1 train.py", ""),
        ("--nodes=2 --ntasks-per-node=8", "srun accelerate launch --config_file one.yaml train.py", ""),
        (
            "--nodes=1 --gpus=2 --ntasks-per-gpu=1",
            "srun python run_vllm.py --tensor-parallel-size 2",
            "srun starts 2 servers on each node, and each is for 2 GPUs",
        ),
        ("--nodes=1 --gpus=2 --ntasks-per-node=2", "srun vllm serve m --tensor-parallel-size 1", ""),
        ("--nodes=1 --gpus=2", "srun vllm serve m --tensor-parallel-size 2", ""),
        (
            "--nodes=1 --gpus=2 --ntasks-per-node=2",
            "srun vllm serve m --tensor-parallel-size 2 --distributed-executor-backend external_launcher",
            "",
        ),
    ],
)
def test_a_launcher_is_started_once_on_each_node(tmp_path: Path, options: str, command: str, problem: str) -> None:
    reported = rated_messages(tmp_path, "ranks.tasks", job_sbatch=sbatch(command, options=options))
    assert [message.startswith(problem) for _, message in reported] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("options", "command", "problem"),
    [
        ("--nodes=2", "srun python t.py trainer.devices=4", "4 devices, and srun starts 1 task on each node"),
        ("--nodes=2 --ntasks-per-node=4", "srun python t.py trainer.devices=4 trainer.num_nodes=2", ""),
        (
            "--nodes=2 --ntasks-per-node=4",
            "srun python t.py trainer.devices=4 trainer.num_nodes=1",
            "the program is for 1 nodes, and the job has 2",
        ),
        (
            "--nodes=2 --ntasks-per-node=4 --gres=gpu:2",
            "srun --label python -u t.py --lr 1",
            "srun starts 4 ranks on each node, and it has 2 GPUs",
        ),
        ("--nodes=2 --ntasks-per-node=4 --gres=gpu:4", "srun python -u t.py --lr 1", ""),
    ],
)
def test_slurms_tasks_are_the_ranks(tmp_path: Path, options: str, command: str, problem: str) -> None:
    reported = rated_messages(tmp_path, "ranks.lightning", job_sbatch=sbatch(command, options=options))
    assert reported == ([("warning", problem)] if problem else [])


@pytest.mark.parametrize(
    ("options", "severity", "problem"),
    [
        ("--num_machines 2 --num_processes 16", "", ""),
        ("--num_machines 2 --num_processes 8", "warning", "8 processes on 2 machines with 8 GPUs each"),
        ("--num_machines 2 --num_processes 1", "error", "1 processes on 2 machines: each needs the same number"),
        ("--num_machines 1 --num_processes 3", "", ""),
    ],
)
def test_accelerates_processes_are_of_all_machines(tmp_path: Path, options: str, severity: str, problem: str) -> None:
    text = sbatch(f"srun accelerate launch {options} train.py", options="--nodes=2 --gpus-per-node=8")
    assert rated_messages(tmp_path, "ranks.total", job_sbatch=text) == ([(severity, problem)] if problem else [])


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("vllm serve m --tensor-parallel-size 16", "16 GPUs for tensor and pipeline parallelism, and the node has 8"),
        ("vllm serve m --tensor-parallel-size 8", ""),
        ("vllm serve m -tp 16 --distributed-executor-backend ray", ""),
        ("ray start --head && vllm serve m --tensor-parallel-size 16", ""),
        ("python -m sglang.launch_server --tp 16 --nnodes 2", ""),
        (
            "python -m sglang.launch_server --tp 8 --nnodes 3",
            "8 ranks do not divide by 3 nodes: SGLang refuses to start",
        ),
        (
            "python -m sglang.launch_server --tp 32 --nnodes 2",
            "32 GPUs for tensor and pipeline parallelism, and 2 nodes have 16 GPUs",
        ),
    ],
)
def test_a_server_has_the_gpus_of_its_groups(tmp_path: Path, command: str, problem: str) -> None:
    text = pods(command=f'[bash, -c, "{command}"]', nodes=1)
    assert [message for _, message in rated_messages(tmp_path, "ranks.servers", job_yaml=text)] == (
        [problem] if problem else []
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "export NCCL_SOCKET_IFNAME=eth1\nmpirun -np 2 -H a,b train",
            "NCCL_SOCKET_IFNAME is set here, and mpirun has no -x for it: the ranks do not get it",
        ),
        ("export NCCL_SOCKET_IFNAME=eth1\nmpirun -np 2 -H a,b -x NCCL_SOCKET_IFNAME train", ""),
        ("export NCCL_SOCKET_IFNAME=eth1\nmpirun -np 2 train", ""),  # on this node
        ("export NCCL_SOCKET_IFNAME=eth1\nmpiexec -ppn 8 -np 2 -hosts a,b train", ""),  # MPICH passes all
        (
            "export NCCL_DEBUG=INFO NCCL_NET=IB\ndocker run --rm -e NCCL_NET image torchrun train.py",
            "NCCL_DEBUG is set here, and docker run has no -e for it: the ranks do not get it",
        ),
        ("export NCCL_DEBUG=INFO\nssh b 'torchrun train.py'", "NCCL_DEBUG is set here, and ssh does not send it:"),
        ("export NCCL_DEBUG=INFO\nssh b 'export NCCL_DEBUG=INFO; torchrun train.py'", ""),
        ("export NCCL_DEBUG=INFO\ntorchrun train.py", ""),
    ],
)
def test_variables_reach_the_ranks(tmp_path: Path, text: str, problem: str) -> None:
    reported = messages(tmp_path, "environment.passed", text)
    assert [message.startswith(problem) for message in reported] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("options", "command", "way"),
    [
        ("--nodes=2", "srun --export=MASTER_PORT=1,PATH torchrun train.py", "srun has --export=MASTER_PORT=1,PATH"),
        ("--nodes=2", "srun --export=ALL,A=1 torchrun train.py", ""),
        ("--nodes=2 --export=NONE", "srun torchrun train.py", "with #SBATCH --export=NONE srun passes nothing on"),
        ("--nodes=2 --export=NONE", "srun --export=ALL torchrun train.py", ""),
        ("--nodes=2", "mpirun -np 2 -H a,b train", ""),
    ],
)
def test_srun_passes_variables_on(tmp_path: Path, options: str, command: str, way: str) -> None:
    text = sbatch("export NCCL_DEBUG=INFO", command, options=options)
    problem = f"NCCL_DEBUG is set here, and {way}: the ranks do not get it"
    assert rated_messages(tmp_path, "environment.passed", job_sbatch=text) == ([("warning", problem)] if way else [])


SERVICES = """services:
  a: {{image: x, gpus: all, ipc: host, network_mode: host, environment: {env}, command: {first}}}
  b: {{image: x, gpus: all, ipc: host, network_mode: host, environment: {env}, command: {second}}}
"""


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("--node-rank 0", "--node-rank 1", ""),
        ("--node-rank 0", "--node-rank 0", "rank 0 is that of compose service a in line 2, too"),
    ],
)
def test_the_services_of_a_job_have_ranks_of_their_own(tmp_path: Path, first: str, second: str, problem: str) -> None:
    command = "python -m sglang.launch_server --tp 16 --nnodes 2 --dist-init-addr a:5000 "
    text = SERVICES.format(env="{}", first=command + first, second=command + second)
    assert [message for _, message in rated_messages(tmp_path, "rendezvous.services", compose_yaml=text)] == (
        [problem] if problem else []
    )


def test_an_address_of_a_node_is_its_own(tmp_path: Path) -> None:
    text = SERVICES.format(env="{VLLM_HOST_IP: 10.0.0.1}", first="vllm serve m", second="vllm serve m")
    (finding,) = rated_messages(tmp_path, "rendezvous.host-ip", compose_yaml=text)
    assert finding == ("error", "VLLM_HOST_IP=10.0.0.1 is that of compose service a in line 2, too")
    assert not rated_messages(tmp_path, "rendezvous.host-ip", compose_yaml=text.replace("10.0.0.1", "${IP}"))


@pytest.mark.parametrize(
    ("options", "is_small"),
    [("--gpus 8", True), ("--gpus 1", False), ("--gpus 8 --ipc=host", False), ("--gpus 8 --shm-size 8g", False)],
)
def test_shared_memory_of_a_container(tmp_path: Path, options: str, is_small: bool) -> None:
    text = f"docker run {options} image train"
    assert bool(messages(tmp_path, "shm.small", text)) == is_small


def test_pods_for_rdma(tmp_path: Path) -> None:
    text = pods("NCCL_IB_HCA=mlx5", instance="", efa=None)
    (finding,) = rated_messages(tmp_path, "pod.rdma", job_yaml=text)
    assert finding == ("warning", "NCCL_IB_ variables are set, and the pod asks for no RDMA device: NCCL takes TCP")
    with_device = text.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 8, rdma/hca: 1")
    (finding,) = rated_messages(tmp_path, "pod.rdma", job_yaml=with_device)
    assert finding[1].startswith("the pod has RDMA devices and no IPC_LOCK")
    allowed = with_device.replace(
        "- name: rank", "- name: rank\n        securityContext: {capabilities: {add: [IPC_LOCK]}}"
    )
    assert not rated_messages(tmp_path, "pod.rdma", job_yaml=allowed)


def test_pods_in_the_hosts_network_resolve_names(tmp_path: Path) -> None:
    text = pods(spec="hostNetwork: true").replace("StatefulSet", "JobSet")
    assert len(rated_messages(tmp_path, "pod.names", job_yaml=text)) == 1
    good = pods(spec="hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet").replace("StatefulSet", "JobSet")
    assert not rated_messages(tmp_path, "pod.names", job_yaml=good)


def test_tasks_are_of_all_nodes(tmp_path: Path) -> None:
    text = sbatch("srun python train.py", options="--nodes=1 --ntasks=1 --ntasks-per-node=2")
    ((_, message),) = rated_messages(tmp_path, "ranks.slurm", job_sbatch=text)
    assert message == "1 tasks, and 1 node with 2 each: programs that read both wait for others"
    assert not rated_messages(tmp_path, "ranks.slurm", job_sbatch=text.replace("ntasks=1", "ntasks=2"))


def test_the_trainer_of_a_program_beside_the_script(tmp_path: Path) -> None:
    text = sbatch("srun python -u train.py --lr 1", options="--nodes=2 --ntasks-per-node=1 --gres=gpu:8")
    (tmp_path / "train.py").write_text("t = pl.Trainer(logger=log(), devices=8, num_nodes=4, strategy='ddp')\n")
    assert [message for _, message in rated_messages(tmp_path, "ranks.lightning", job_sbatch=text)] == [
        "8 devices, and srun starts 1 task on each node",
        "the program is for 4 nodes, and the job has 2",
    ]
    (tmp_path / "train.py").write_text("t = pl.Trainer(devices=n, num_nodes=2)\n")
    assert not rated_messages(tmp_path, "ranks.lightning", job_sbatch=text)


def test_pods_of_a_server_without_ray(tmp_path: Path) -> None:
    command = "[vllm, serve, m, --tensor-parallel-size, '16']"
    assert len(rated_messages(tmp_path, "ranks.servers", job_yaml=pods(command=command))) == 1
    with_ray = "[bash, -c, 'bash multi-node-serving.sh leader; vllm serve m --tensor-parallel-size 16']"
    assert not rated_messages(tmp_path, "ranks.servers", job_yaml=pods(command=with_ray))


@pytest.mark.parametrize(
    ("options", "command", "count"),
    [
        ("--nodes=1 --ntasks=8 --gpus-per-task=1", "srun mace_run_train --distributed", 1),
        ("--nodes=1 --ntasks=8 --gpus-per-node=8", "srun mace_run_train --distributed", 0),
        ("--nodes=1 --gpus=8 --ntasks-per-gpu=1", "srun python train.py", 1),
        ("--nodes=1 --gpus=8 --ntasks-per-gpu=1 --gpu-bind=none", "srun python train.py", 0),
        ("--nodes=1 --ntasks=8 --gpus-per-task=1", "srun gmx_mpi mdrun", 0),  # MPI's programs choose by what they see
        ("--nodes=1 --ntasks=8 --gpus-per-task=1", "srun --output=train.log hostname", 0),
        ("--nodes=1 --ntasks=2 --gpu-bind=per_task:1", "srun ./build/all_reduce_perf -g 1", 1),
    ],
)
def test_other_programs_that_are_one_rank(tmp_path: Path, options: str, command: str, count: int) -> None:
    assert len(rated_messages(tmp_path, "ranks.binding", job_sbatch=sbatch(command, options=options))) == count


def test_tasks_with_own_gpus_outside_of_a_batch_script(tmp_path: Path) -> None:
    """As in NVIDIA/nccl-tests issue 300."""
    command = "srun -n 2 --tres-bind=gres/gpu:per_task:1 all_reduce_perf -g 1"
    assert len(messages(tmp_path, "ranks.binding", command)) == 1
    assert not messages(tmp_path, "ranks.binding", command.replace("per_task:1", "none"))


@pytest.mark.parametrize(
    ("options", "lines", "count"),
    [
        ("--ntasks-per-node=4 --gres=gpu:4", "conda activate litpose\npython train.py", 1),
        ("--ntasks-per-node=4 --gres=gpu:4", "conda activate litpose\nsrun python train.py", 0),
        ("--ntasks-per-node=1 --gres=gpu:4", "conda activate litpose\npython train.py", 0),
        ("--ntasks-per-node=4 --gres=gpu:4", "python spawn.py", 0),  # which may start its ranks itself
        ("--nodes=2 --ntasks-per-node=4", "conda activate litpose\npython train.py", 0),  # launcher.nodes has it
    ],
)
def test_tasks_that_nothing_starts(tmp_path: Path, options: str, lines: str, count: int) -> None:
    """As in paninski-lab/lightning-pose issue 138."""
    assert len(rated_messages(tmp_path, "ranks.started", job_sbatch=sbatch(lines, options=options))) == count


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        ("-1", "4 devices, and srun starts 1 task on each node"),
        ('"auto"', "4 devices, and srun starts 1 task"),
        ("1", ""),
    ],
)
def test_all_devices_of_a_trainer(tmp_path: Path, devices: str, problem: str) -> None:
    (tmp_path / "train.py").write_text(f"trainer = Trainer(accelerator='gpu', devices={devices})\n")
    text = sbatch("srun python train.py", options="--nodes=1 --ntasks-per-node=1 --gres=gpu:4")
    reported = rated_messages(tmp_path, "ranks.lightning", job_sbatch=text)
    assert [message.startswith(problem) for _, message in reported] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("options", "command", "problem"),
    [
        (
            "--nodes=2 --ntasks-per-node=8 --gpus-per-node=8",
            "srun all_reduce_perf -b 8 -g 8",
            "8 ranks on each node take 64 GPUs, and it has 8",
        ),
        ("--nodes=2 --ntasks-per-node=1 --gpus-per-node=8", "srun all_reduce_perf -b 8 -g 8", ""),
        ("--nodes=2 --ntasks-per-node=8 --gpus-per-node=8", "srun all_reduce_perf -b 8 -g 1", ""),
        (
            "--nodes=2 --gpus-per-node=8",
            "mpirun -np 16 -N 8 ./all_reduce_perf -g 8",
            "8 ranks on each node take 64 GPUs, and it has 8",
        ),
        ("--nodes=2 --gpus-per-node=8", "mpirun -np 2 --map-by ppr:1:node ./all_reduce_perf -g 8", ""),
        ("--nodes=2 --gpus-per-node=8", "mpirun -np 16 ./all_reduce_perf -g 8", ""),
    ],
)
def test_gpus_of_measurements(tmp_path: Path, options: str, command: str, problem: str) -> None:
    reported = [
        message for _, message in rated_messages(tmp_path, "ranks.perf", job_sbatch=sbatch(command, options=options))
    ]
    assert reported == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("srun -n 4 singularity exec -e jedi.sif hello_world_mpi", 1),
        ("srun -n 4 apptainer exec --nv --cleanenv t.sif python train.py", 1),
        ("srun -n 4 apptainer exec --nv t.sif python -e train.py", 0),
        ("srun -n 4 apptainer exec --nv t.sif python train.py", 0),
        ("apptainer exec -e t.sif python train.py", 0),
        ("# srun apptainer exec -e t.sif python train.py\nsrun hostname", 0),
    ],
)
def test_containers_without_sruns_variables(tmp_path: Path, command: str, count: int) -> None:
    """As in vsoch/vsoch.github.io issue 21."""
    assert len(rated_messages(tmp_path, "environment.clean", job_sbatch=sbatch(command))) == count


def test_gpus_of_all_nodes_and_tasks(tmp_path: Path) -> None:
    """As in glotzerlab/signac-flow issue 566."""
    text = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus=8\nsrun python train.py\n"
    assert rated_messages(tmp_path, "ranks.lightning", job_sbatch=text) == [
        ("warning", "srun starts 8 ranks on each node, and it has 2 GPUs")
    ]


@pytest.mark.parametrize(
    ("options", "count"),
    [("--gpus-per-task=1", 1), ("--gpus-per-task=1 --gpu-bind=none", 0), ("--gres=gpu:4 --gpu-bind=single:1", 1)],
)
def test_tasks_that_see_one_gpu(tmp_path: Path, options: str, count: int) -> None:
    """As in NVIDIA/nccl issues 1066 and 1948."""
    text = f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=4 {options}\nsrun python train.py\n"
    assert len(rated_messages(tmp_path, "ranks.binding", job_sbatch=text)) == count


@pytest.mark.parametrize(
    ("directive", "command", "name"),
    [
        ("--nodes=abc", "srun train", "--nodes"),
        ("--ntasks-per-node=eight", "srun train", "--ntasks-per-node"),
        ("--nodes=2", "srun --nodes=two train", "--nodes"),
        ("--nodes=2", "srun --nodes=two torchrun --nnodes=2 train.py", "--nodes"),
        ("--nodes=1", "torchrun --nproc-per-node=eight train.py", "--nproc-per-node"),
        ("--nodes=1", "torchrun --nproc-per-node=auto train.py", None),
        *((f"--nodes={word}", "srun train", None) for word in ("NODES", "<n>", "$N", "{{ nodes }}", "2-4", "1k", "N")),
    ],
)
def test_a_word_for_a_number(tmp_path: Path, directive: str, command: str, name: str | None) -> None:
    text = f"#!/bin/bash\n#SBATCH {directive}\n{command}\n"
    reported = findings(tmp_path, "ranks.number", job_sbatch=text)
    assert [row.message.partition(" is ")[0] for row in reported] == ([name] if name else [])
