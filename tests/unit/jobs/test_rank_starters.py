"""A command that starts ranks itself: each rank of the job would start ranks of its own."""

import shlex

import pytest

from rdma_images.core.errors import RefusedError
from tests.support import job_parts as jobs

# What a user types after --, and what a rank is to run.
TRAINING = [
    ("torchrun --nproc_per_node=8 train.py --epochs 3", "train.py --epochs 3"),
    (
        "/opt/venv/bin/torchrun --standalone --nproc-per-node 8 -m package.train --epochs 3",
        "-m package.train --epochs 3",
    ),
    ("python -m torch.distributed.run --nnodes 2 --rdzv-backend c10d train.py", "train.py"),
    ("-m torch.distributed.launch --nproc_per_node 8 train.py", "train.py"),
    ("deepspeed train.py --deepspeed ds.json", "train.py --deepspeed ds.json"),
    ("deepspeed --num_gpus 8 --hostfile /job/hostfile --no_ssh train.py", "train.py"),
    ("deepspeed --module package.train --steps 9", "-m package.train --steps 9"),
    ("python3 -m deepspeed.launcher.runner --num_nodes=2 train.py", "train.py"),
    ("ds --include worker-0:0,1 train.py", "train.py"),
    ("accelerate launch train.py", "train.py"),
    (
        "accelerate launch --num_processes 16 --num_machines 2 --machine_rank 0 --main_process_ip a train.py x",
        "train.py x",
    ),
    ("accelerate-launch -m package.train", "-m package.train"),
    ("python -m accelerate.commands.launch --multi_gpu train.py", "train.py"),
    ("mpirun -np 16 --hostfile hosts python train.py --epochs 3", "train.py --epochs 3"),
    ("srun --ntasks 16 python3 -u train.py", "-u train.py"),
    ("composer -n 8 train.py", "train.py"),
    ("fabric run --num-nodes 2 --devices 8 train.py", "train.py"),
    ("horovodrun -np 16 -H a:8,b:8 python train.py", "train.py"),
    ("env NCCL_DEBUG=INFO torchrun train.py", "train.py"),
    ("NCCL_DEBUG=INFO accelerate launch train.py", "train.py"),
    ("numactl --cpunodebind 0 torchrun train.py", "train.py"),
    ("bash -c 'cd /code && deepspeed train.py --x 1'", "train.py --x 1"),
]
# A RayJob runs the command once, on the head: it may start what it wants.
TORCHRUN = [names for names in jobs.combinations() if names[2] == "torchrun" and names[0] != "rayjob"]
MPIRUN = [names for names in jobs.combinations() if names[2] == "mpirun"]


def refusal(launcher: str, fabric: str, starter: str, typed: str) -> list[str]:
    with pytest.raises(RefusedError) as caught:
        jobs.job(launcher, fabric, starter, command=tuple(shlex.split(typed)))
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("typed", "program"), TRAINING)
def test_what_a_rank_runs_is_named(typed: str, program: str) -> None:
    problem, fix, *_ = refusal("trainjob", "efa", "torchrun", typed)
    assert "the launcher starts the ranks itself" in problem
    assert fix == f"after -- give only what a rank runs: -- {program}"


@pytest.mark.parametrize("typed", ["deepspeed train.py", "accelerate launch train.py", "mpirun -np 8 train.py"])
@pytest.mark.parametrize(("launcher", "fabric", "starter"), [*TORCHRUN, *MPIRUN])
def test_no_launcher_starts_ranks_in_every_rank(launcher: str, fabric: str, starter: str, typed: str) -> None:
    assert "the launcher starts the ranks itself" in refusal(launcher, fabric, starter, typed)[0]


def test_what_changes_for_the_script_is_said() -> None:
    assert "LOCAL_RANK" in refusal("trainjob", "efa", "torchrun", "deepspeed train.py")[-1]
    assert "Horovod does not read" in refusal("trainjob", "efa", "torchrun", "horovodrun -np 8 x")[-1]


def test_options_that_a_job_does_not_carry_are_named() -> None:
    options = "--num_processes 16 --mixed_precision bf16 --use_fsdp --config_file fsdp.yaml"
    _, fix, lost = refusal("pytorchjob", "efa", "torchrun", f"accelerate launch {options} train.py")
    assert fix.endswith(": -- train.py")
    assert lost == f"the job sets nodes and ranks; what else {options} sets, set in the script"


def test_a_program_that_cannot_be_distinguished_from_options_is_not_guessed() -> None:
    assert refusal("mpijob", "efa", "mpirun", "mpirun --tag-output all_reduce_perf -b 8")[1] == (
        "after -- give only what a rank runs"
    )


@pytest.mark.parametrize(
    "typed",
    [
        "train.py --launcher deepspeed",
        "python train.py accelerate launch",
        "-m deepspeed_examples.train",
        "accelerate env",
        "my-trainer torchrun",
        "bash -c 'echo deepspeed'",
        "nsys profile -o out python train.py --launcher torchrun",
    ],
)
def test_a_word_that_only_names_such_a_program_is_let_through(typed: str) -> None:
    assert jobs.job("trainjob", "efa", "torchrun", command=tuple(shlex.split(typed))).command
