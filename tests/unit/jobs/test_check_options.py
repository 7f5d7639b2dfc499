"""Which words of a command line are a launcher's own options, and which the program that it starts."""

import pytest

from rdma_images.jobs.check.parsers import option_parser
from rdma_images.jobs.check.parsers.commands import ShellWord


@pytest.mark.parametrize(
    ("program", "command", "options", "program_start"),
    [
        ("torchrun", "--nnodes=2 --node_rank $R -m train --lr 1", {"nnodes": "2", "node_rank": "$R", "m": ""}, "train"),
        ("torchrun", "--nproc-per-node 8 $ARGS train.py", {"nproc_per_node": "8"}, "$ARGS"),
        ("torchrun", "--new-flag train.py", {"new_flag": ""}, "train.py"),
        (
            "deepspeed",
            "-H hosts --num_gpus 8 --no_ssh run",
            {"hostfile": "hosts", "num_gpus": "8", "no_ssh": ""},
            "run",
        ),
        ("accelerate", "--multi_gpu --config_file c.yaml run", {"multi_gpu": "", "config_file": "c.yaml"}, "run"),
        (
            "mpirun",
            "-n 2 -H a,b -x NCCL_DEBUG --mca btl ^tcp all_reduce_perf",
            {"np": "2", "H": "a,b"},
            "all_reduce_perf",
        ),
        ("mpirun", "--oversubscribe -- ./train", {"oversubscribe": ""}, "./train"),
        ("srun", "-N2 -ln 8 --exclusive train", {"nodes": "2", "ntasks": "8", "exclusive": ""}, "train"),
        (
            "sbatch",
            "-N 2 --tasks-per-node=2 -J a --requeue",
            {"nodes": "2", "ntasks_per_node": "2", "job_name": "a"},
            "",
        ),
        ("docker run", "--rm -it --net host --gpus all -e=A=1 image sh", {"network": "host", "gpus": "all"}, "image"),
    ],
)
def test_options_before_a_program(program: str, command: str, options: dict[str, str], program_start: str) -> None:
    words = [ShellWord(word, 1) for word in command.split()]
    parsed = option_parser.parse(program, words)
    assert {name: word.text for name, word in parsed.options.items()}.items() >= options.items()
    assert [word.text for word in words[parsed.position :]][:1] == ([program_start] if program_start else [])


def test_an_option_that_is_given_twice_has_each_value() -> None:
    words = [ShellWord(word, 1) for word in ["-e", "A=1", "--env=B=2", "image"]]
    assert [word.text for _, word in option_parser.parse("docker run", words).occurrences] == ["A=1", "B=2"]
