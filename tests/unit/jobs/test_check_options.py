"""The options of launchers, schedulers and docker, by the table of facts/launch-options.yaml."""

from pathlib import Path

import pytest

from tests.support.foreign_jobs import findings

SBATCH = "#!/bin/bash\n#SBATCH {}\nsrun python train.py\n"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("torchrun --nproc-per-node 8 --nnodes=2 --node_rank $R --master_addr a -m train --lr 1", ""),
        ("torchrun --nnode 2 --node-rank $R --master-addr a --rdzv_id 1 train.py", ""),  # abbreviated
        ("torchrun --nproc_per_node 8 $ARGS --lr 1 train.py", ""),
        ("torchrun --nproc_per_nodes 8 train.py", "torchrun has no option --nproc_per_nodes: it refuses to start"),
        ("torchrun --nnodes two train.py", "--nnodes two: torchrun does not take this value"),
        ("torchrun --nnodes --nproc_per_node 8 train.py", "--nnodes has no value: torchrun refuses to start"),
        ("torchrun -m --no-python train", "--module and --no-python exclude each other: torchrun refuses to start"),
        ("deepspeed --num-gpus 8 train.py", "deepspeed has no option --num-gpus: it refuses to start"),
        (
            "deepspeed --hostfile h --include a:0 --num_gpus 2 train.py",
            "--include and --num_gpus exclude each other: deepspeed refuses to start",
        ),
        (
            "deepspeed --hostfile h --launcher openmpi --num_gpus 1 train.py",
            "--launcher openmpi and --num_gpus exclude each other: deepspeed refuses to start",
        ),
        ("deepspeed --hostfile h --launcher=OpenMPI train.py", ""),  # DeepSpeed issue 4460
        (
            "accelerate launch --multi_gpu --use_deepspeed train.py",
            "--multi_gpu and --use_deepspeed exclude each other: accelerate refuses to start",
        ),
        ("accelerate launch --num-processes 8 --config_file c.yaml train.py --x", ""),
        ("ray start --head --node_ip_address 10.0.0.1", "ray has no option --node_ip_address: it refuses to start"),
        ("ray start --address a:6379 --num-gpus=8 --block", ""),
        ("mpirun -np 2 -H a,b -x NCCL_DEBUG --mca btl ^openib ./all_reduce_perf -g 1", ""),
        (
            "mpirun -np 2 -ppn 1 -x NCCL_DEBUG ./all_reduce_perf",
            "-x and -ppn are options of different MPIs: no mpirun has both",
        ),
        ("mpirun -np 2 -new-option 3 -x NCCL_DEBUG ./all_reduce_perf", ""),
        ("bash run.sh --backend deepspeed --model m", ""),
        ("docker build -t deepspeed -f Dockerfile .", ""),
    ],
)
def test_options_of_a_launcher(tmp_path: Path, command: str, problem: str) -> None:
    found = findings(tmp_path, "launch.option", job_sh=f"#!/bin/bash\n{command}\ntorchrun --nnodes=1 train.py\n")
    assert [row.message for row in found] == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("directive", "severity", "problem"),
    [
        ("-N 2 -n 4 --gres=gpu:2", "", ""),
        ("--tasks-per-node=2 --gpus-per-node=a100:4 --time=1-00:00 --mem=16GB", "", ""),
        ("--nodes=$NODES", "warning", "#SBATCH --nodes has $NODES: sbatch puts no variable in place"),
        ("--mem=1.5G", "error", "--mem 1.5G: sbatch does not take this value"),
        ("--mem=0 --mem-per-cpu=2G", "error", "--mem and --mem-per-cpu exclude each other: sbatch refuses to start"),
        (
            "--ntask=4s",
            "error",
            "--ntask 4s: sbatch does not take this value",
        ),
        (
            "--ntasks-on-node=4",
            "warning",
            "sbatch has no option --ntasks-on-node: it refuses to start, unless a plugin of the cluster has it",
        ),
        ("--nodes=YOUR_NODES", "", ""),
    ],
)
def test_directives(tmp_path: Path, directive: str, severity: str, problem: str) -> None:
    found = findings(tmp_path, "launch.option", job_sbatch=SBATCH.format(directive))
    assert [(row.severity, row.message) for row in found] == ([(severity, problem)] if problem else [])


@pytest.mark.parametrize(
    ("gpus", "count"),
    [("all", 0), ("'\"device=0,2\"'", 0), ("device=0", 0), ("all,capabilities=utility", 0), ("device=0,2", 1)],
)
def test_docker_refuses_a_list_of_gpus_without_quotes_in_quotes(tmp_path: Path, gpus: str, count: int) -> None:
    """As in docker/docs issue 11010."""
    text = f"#!/bin/bash\ndocker run --rm -it --net host --gpus {gpus} example.com/a:1 nvidia-smi\n"
    assert len(findings(tmp_path, "launch.option", job_sh=text)) == count


@pytest.mark.parametrize(
    ("before", "script", "problem"),
    [
        ("export FIRST=a", "srun bash -c 'torchrun --rdzv_endpoint=$FIRST:29500 t.py'", ""),
        ("FIRST=a", "FIRST=b srun bash -c 'echo $FIRST'", ""),
        ("FIRST=a", "srun bash -c 'FIRST=b; echo $FIRST'", ""),
        ("FIRST=a", 'srun bash -c "echo $FIRST"', ""),
        ("set -a; FIRST=a", "srun bash -c 'echo $FIRST'", ""),
        ("PATH=a:$PATH", "srun bash -c 'echo $PATH'", ""),
        (
            "FIRST=a",
            "srun bash -c 'echo $FIRST'",
            "FIRST is set here and not exported: the shell that reads '…' finds it empty",
        ),
        (
            "export FIRST=a",
            "srun bash -c 'torchrun --rdzv_id=\\$SLURM_JOB_ID t.py'",
            "\\$SLURM_JOB_ID in single quotes stays as it is: the value is not put in place",
        ),
        ("export FIRST=a", "srun bash -c 'ssh b \"echo \\$X\"'", ""),
    ],
)
def test_variables_that_another_shell_lacks(tmp_path: Path, before: str, script: str, problem: str) -> None:
    """As in PrimeIntellect-ai/prime-rl pull request 3225 and Lumi-supercomputer/LUMI-AI-Guide pull request 115."""
    found = findings(tmp_path, "launch.unset", job_sbatch=f"#!/bin/bash\n#SBATCH --nodes=2\n{before}\n{script}\n")
    assert [row.message for row in found] == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("accelerators", "count"), [("[{T4: 1}, {L4: 1}]", 1), ("[T4:1, L4:1]", 0), ("{T4: 1, L4: 1}", 0), ("T4:1", 0)]
)
def test_a_list_of_skypilots_accelerators_has_names(tmp_path: Path, accelerators: str, count: int) -> None:
    """As in skypilot-org/skypilot issue 7098."""
    text = f"resources:\n  accelerators: {accelerators}\nrun: nvidia-smi\n"
    found = [row.message for row in findings(tmp_path, "launch.option", task_yaml=text)]
    assert [message.startswith("an accelerator in a list is a mapping") for message in found] == [True] * count
