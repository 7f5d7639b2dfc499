"""Sizes that have to divide each other, hosts in files, and keys that launchers refuse."""

from pathlib import Path

import pytest

from tests.support.foreign_jobs import findings

HOSTS = "work1 slots=2\nwork2 slots=2\n"


def messages(folder: Path, rule: str, **texts: str) -> list[str]:
    """Return what a rule reports of files of these names."""
    return [row.message for row in findings(folder, rule, **texts)]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("deepspeed --hostfile hostfile --include=work1:0,1@work2 train.py", ""),
        (
            "deepspeed --hostfile hostfile --include=work1:2,3 train.py",
            "--include names slot 2 of work1, which has 2 in hostfile: they count from 0, and DeepSpeed refuses it",
        ),
        (
            "deepspeed --hostfile hostfile --exclude=work3 train.py",
            "--exclude names work3, which is not in hostfile: DeepSpeed refuses it",
        ),
        ("deepspeed --hostfile hostfile --num_nodes 3 train.py", "3 nodes, and hostfile has 2"),
        ("mpirun -np 4 --hostfile hostfile ./all_reduce_perf", ""),
        ("mpirun -np 16 --hostfile hostfile ./all_reduce_perf", "16 ranks, and the hosts in hostfile have 4 slots"),
        ("mpirun -np 16 --oversubscribe --hostfile hostfile ./all_reduce_perf", ""),
        ("mpirun -np 16 --hostfile another ./all_reduce_perf", ""),
    ],
)
def test_hosts_in_a_file_beside_the_script(tmp_path: Path, command: str, problem: str) -> None:
    (tmp_path / "hostfile").write_text(HOSTS)
    text = f"#!/bin/bash\n{command}\n"
    assert messages(tmp_path, "ranks.hostfile", job_sh=text) == ([problem] if problem else [])


def test_a_misspelt_line_of_a_hostfile(tmp_path: Path) -> None:
    """As in DeepSpeed issue 3669."""
    (tmp_path / "hostfile").write_text("work1 slots=8\nwork2 lots=8\n")
    assert messages(tmp_path, "rendezvous.hosts") == ["work2 has no slots, as others have: DeepSpeed refuses it"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--tensor-model-parallel-size 2 --num-layers 24 --num-attention-heads 16 --expert-model-parallel-size 4", ""),
        (
            "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --expert-model-parallel-size 8",
            "8 ranks do not divide by the experts' groups of 1 * 8 * 2 (tensor, experts, pipeline)",
        ),
        (
            "--pipeline-model-parallel-size 4 --num-layers 46",
            "num_layers 46 does not divide by pipeline_model_parallel_size 4",
        ),
        ("--pipeline-model-parallel-size 4 --num-layers 46 --deepspeed", ""),
        (
            "--tensor-model-parallel-size 8 --num-attention-heads 12",
            "num_attention_heads 12 does not divide by tensor_model_parallel_size 8",
        ),
    ],
)
def test_parallel_groups_of_a_program_that_starts_its_ranks(tmp_path: Path, arguments: str, problem: str) -> None:
    text = f"#!/bin/bash\nray job submit -- python3 t.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 {arguments}\n"
    assert messages(tmp_path, "ranks.parallel", job_sh=text) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("data.train_batch_size=8 actor_rollout_ref.rollout.n=5", ""),
        ("data.train_batch_size=6", "a batch of 6 * 1 samples does not divide by 4 GPUs"),
        ("data.train_batch_size=6 actor_rollout_ref.actor.use_dynamic_bsz=True", ""),
        (
            "data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=16",
            "mini batch 16 is more than the batch of 8",
        ),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size=8", "4 GPUs do not divide by rollouts over 8"),
    ],
)
def test_batches_of_verl(tmp_path: Path, arguments: str, problem: str) -> None:
    text = f"python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=2 {arguments}\n"
    assert messages(tmp_path, "ranks.rollouts", job_sh=text) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4}', ""),
        ('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}', ""),
        (
            '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}',
            "train_batch_size 64 is not micro batch 4 * 1 steps * 8 ranks, in ds.json",
        ),
        (
            '{"train_batch_size": 60, "train_micro_batch_size_per_gpu": 4}',
            "train_batch_size 60 is no multiple of micro batch 4 * 1 steps * 8 ranks, in ds.json",
        ),
        (
            '{"train_micro_batch_size_per_gpu": 2}',
            "--per_device_train_batch_size 4, and ds.json has 2: the Trainer refuses to start",
        ),
    ],
)
def test_batches_in_the_file_of_deepspeed(tmp_path: Path, settings: str, problem: str) -> None:
    (tmp_path / "ds.json").write_text(settings)
    text = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --per_device_train_batch_size 4\n"
    assert messages(tmp_path, "ranks.batches", job_sh=text) == ([problem] if problem else [])


def test_gpus_of_all_nodes_and_tasks(tmp_path: Path) -> None:
    """As in glotzerlab/signac-flow issue 566."""
    text = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus=8\nsrun python train.py\n"
    assert messages(tmp_path, "ranks.lightning", job_sbatch=text) == [
        "srun starts 8 ranks on each node, and it has 2 GPUs"
    ]


@pytest.mark.parametrize(
    ("options", "count"),
    [("--gpus-per-task=1", 1), ("--gpus-per-task=1 --gpu-bind=none", 0), ("--gres=gpu:4 --gpu-bind=single:1", 1)],
)
def test_tasks_that_see_one_gpu(tmp_path: Path, options: str, count: int) -> None:
    """As in NVIDIA/nccl issues 1066 and 1948."""
    text = f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=4 {options}\nsrun python train.py\n"
    assert len(findings(tmp_path, "ranks.binding", job_sbatch=text)) == count


def test_ranks_of_tensorrt(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2\nsrun -N 1 --ntasks-per-node=4 {} trtllm-serve m --tp_size 8\n"
    for launcher in ("trtllm-llmapi-launch", 'bash -c "trtllm-llmapi-launch'):
        end = '"' if '"' in launcher else ""
        found = messages(tmp_path, "ranks.engine", job_sbatch=text.format(launcher).rstrip() + end + "\n")
        assert found == ["srun starts 4 ranks, and tensor * pipeline parallelism is 8"]


def test_keys_and_variables_of_skypilot(tmp_path: Path) -> None:
    """As in Metta-AI/metta pull request 1923 and skypilot-org/skypilot issue 6920."""
    text = """
num_nodes: 2
resources: {accelerator: "H100:8"}
envs: {SKYPILOT_NODE_IPS: a}
setup: |
  echo $SKYPILOT_NODE_IPS  # $SKYPILOT_NUM_NODES
  vllm serve m --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE
run: echo $SKYPILOT_NODE_RANK
"""
    assert messages(tmp_path, "launch.option", job_yaml=text) == [
        "SkyPilot knows no key accelerator here: it refuses the file",
        "SKYPILOT_NUM_GPUS_PER_NODE is empty in `setup`: SkyPilot sets it in `run` alone",
    ]


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ("{reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}", ""),
        (
            "{limits: {devices: [{driver: nvidia, capabilities: [gpu]}]}}",
            "docker compose knows no key devices here: it refuses the file",
        ),
        (
            "{reservations: {devices: [{count: 1, device_ids: ['0'], capabilities: [gpu]}]}}",
            "count and device_ids exclude each other: docker compose refuses them",
        ),
    ],
)
def test_devices_of_compose(tmp_path: Path, resources: str, problem: str) -> None:
    text = f"services: {{a: {{image: x, deploy: {{resources: {resources}}}}}}}\n"
    assert messages(tmp_path, "launch.option", job_yaml=text) == ([problem] if problem else [])


def test_keys_of_accelerate(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nnum_machines: 2\nmachine_ranks: 0\n"
    assert "accelerate knows no key machine_ranks here: it refuses the file" in messages(
        tmp_path, "launch.option", job_yaml=text
    )


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ("--container-image=./a.sqsh --container-mounts=/a:/b,./c:/c", 0),
        ("--container-image=nvcr.io#nvidia/pytorch:24.01-py3 --container-mounts=$HOME:/root", 0),
        ("--container-image a.sqsh", 1),
        ("--container-mounts '/a b:/b'", 1),
        ("--container-image=10.0.0.1:5000#/a:1", 1),
    ],
)
def test_values_of_pyxis(tmp_path: Path, options: str, count: int) -> None:
    """As in NVIDIA/pyxis issues 112, 127 and 133."""
    text = f"#!/bin/bash\n#SBATCH --nodes=2\nsrun {options} python train.py\n"
    assert len(findings(tmp_path, "launch.option", job_sbatch=text)) == count
