"""What a shell does not read as it is meant, in scripts of any kind."""

from pathlib import Path

import pytest

from rdma_images.jobs.check import check_files
from rdma_images.jobs.check.parsers import commands, launches, shell
from tests.support.foreign_jobs import checked, findings

SCRIPT = """#!/bin/bash
torchrun --nproc_per_node=8 \\
{middle}
"""


@pytest.mark.parametrize(
    ("middle", "line", "problem"),
    [
        ("    --nnodes=1 \\\n    train.py", 0, ""),
        (
            "    --nnodes=1 \\ \n    train.py",
            3,
            "a blank follows the backslash at the end of the line, so the command ends there",
        ),
        ("    --nnodes=1 \\ \n\n", 0, ""),  # nothing is lost
        (
            "    # on one node\n    --nnodes=1 train.py",
            4,
            "a command begins with --nnodes=1: the one before ended in line 2",
        ),
        ("\n    --nnodes=1 train.py", 4, "a command begins with --nnodes=1: the one before ended in line 2"),
        ("    train.py\n    --lr 1e-4", 4, "a command begins with --lr: the one before ended in line 3"),
        ("    train.py\nNCCL_DEBUG = INFO", 4, "NCCL_DEBUG is not set: a blank stands before the ="),
        ("    train.py\nexport NCCL_DEBUG = INFO", 4, "NCCL_DEBUG is not set: a blank stands before the ="),
        ("    train.py\nMASTER_ADDR= 10.0.0.1", 4, "MASTER_ADDR is empty: a blank follows the ="),
        (
            "    \u2013-nnodes=1 train.py",
            3,
            "\u2013-nnodes=1 has a typographic dash, quote or blank, as word processors write it",
        ),
        ("    train.py\necho a \u2013 b = c", 0, ""),
        ('    train.py\nif [[ -n "$A" &&\n  -z "$B" ]] || [ "$A" = b ]; then echo a; fi', 0, ""),
        ('    train.py\ncase "$1" in --help|-h) echo a;; --x)\n echo b;; esac', 0, ""),
        ("    train.py\ncat > options <<EOF\n--lr 1\nEOF", 0, ""),
        ("    train.py\nOPTIONS=(\n  --lr 1 # a\n  --x 2\n)", 0, ""),
        ("    train.py\necho 'a\n--lr 1", 4, "the quote ' is not closed: a shell ends here with an error"),
        ('    train.py --name "a', 3, 'the quote " is not closed: a shell ends here with an error'),
        ("    train.py $'it\\'s' # it's", 0, ""),
        ("    train.py\ncommand -v nvcc", 0, ""),
    ],
)
def test_what_a_shell_reads_as_other_commands(tmp_path: Path, middle: str, line: int, problem: str) -> None:
    reported = findings(tmp_path, "shell.broken", job_sh=SCRIPT.format(middle=middle))
    assert [(row.severity, row.where[0].rpartition(":")[2], row.message) for row in reported] == (
        [("error", str(line), problem)] if problem else []
    )


def test_a_quote_that_is_not_closed_stands_before_the_launch(tmp_path: Path) -> None:
    """Slurm starts the script, and its shell ends; without bash on PATH nothing is said."""
    text = '#!/bin/bash\n#SBATCH --nodes=2\necho "start\nsrun torchrun --nnodes=2 train.py\n'
    (finding,) = checked(tmp_path, job_sbatch=text).findings
    assert (finding.rule, finding.where) == ("shell.broken", (f"{tmp_path}/job.sbatch:3",))


def test_an_apostrophe_in_a_text_for_people_is_none_of_a_shell(tmp_path: Path) -> None:
    assert not findings(tmp_path, "shell.broken", notes_txt="torchrun --nproc-per-node=8 train.py\nIt's done.\n")


def test_directives_after_the_first_command_are_not_read(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2\nmodule load cuda\n#SBATCH --gpus-per-node=8\nsrun train\n"
    (finding,) = findings(tmp_path, "slurm.directives", job_sbatch=text)
    assert finding.message == (
        "#SBATCH --gpus-per-node stands after the first command: sbatch does not read it, nor those below"
    )
    assert finding.where == (f"{tmp_path / 'job.sbatch'}:4",)
    good = text.replace("module load cuda\n#SBATCH", "\n# a comment\n#SBATCH")
    assert not findings(tmp_path, "slurm.directives", job_sbatch=good)
    (finding,) = findings(tmp_path, "slurm.directives", job_sbatch=good.replace("#!/bin/bash\n", ""))
    assert finding.message == "the first line is not #!/bin/bash: sbatch refuses the script"
    (finding,) = findings(tmp_path, "slurm.directives", job_sbatch=good.replace("#SBATCH --gpus", "#sbatch --gpus"))
    assert finding.message == "#sbatch --gpus-per-node=8 is a comment: sbatch reads #SBATCH alone, in capitals"
    assert not findings(tmp_path, "slurm.directives", job_sbatch=good.replace("#SBATCH --gpus", "##SBATCH --gpus"))


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("torchrun --nnodes=2 train.py", "torchrun"),
        ("python -m torch.distributed.launch --nnodes=2 train.py", "torchrun"),
        ("NCCL_DEBUG=INFO accelerate launch --num_machines 2 train.py", "accelerate"),
        ("deepspeed --num_nodes 2 train.py", "deepspeed"),
        ("mpirun -np 16 ./all_reduce_perf", "mpirun"),
        ("horovodrun -np 16 python train.py", "horovodrun"),
        ("python3 -m sglang.launch_server --nnodes 2", "sglang"),
        ("ray start --head", "ray"),
        ('LAUNCHER="torchrun \\\n --nnodes=2 \\\n"\n$LAUNCHER train.py', "torchrun"),
        ('ssh node1 "cd /work && torchrun --nnodes=2 train.py"', "torchrun"),
        ("docker run image bash -c 'torchrun --nnodes=2 train.py'", "torchrun"),
        ("uv run torchrun --nnodes=2 train.py", "torchrun"),
        ("echo torchrun --nnodes=2", ""),
        ("pip install deepspeed", ""),
        ("# torchrun train.py", ""),
    ],
)
def test_a_script_with_a_launcher_is_a_job(tmp_path: Path, command: str, title: str) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/bash\n{command}\n")
    other = tmp_path / "other.sbatch"
    other.write_text("#!/bin/bash\n#SBATCH --nodes=1\nsrun train\n")
    titles = [part.title for part in check_files([path, other]).parts]
    assert titles == ([f"script with {title}"] if title else []) + ["sbatch script"]


def test_variables_and_arrays_are_put_in_place() -> None:
    text = commands.parse_commands(
        'A=(--x 1)\nA+=(--y "b c")\nN=2; G=4\nB="--n $N --w $((N * G))"\nrun "${A[@]}" $B \'$N\' "$N" ${C[@]} ${D:-1}\n'
    )
    assert [word.text for word in text.commands[-1].words] == [
        *("run", "--x", "1", "--y", "b c", "--n", "2", "--w", "8", "$N", "2", "${C[@]}", "${D:-1}")
    ]
    assert text.assigned == {"A", "B", "N", "G"}


def test_a_variable_of_a_condition_is_not_known() -> None:
    text = commands.parse_commands('A=1\nif [ -n "$X" ]; then A=2; fi\nif [ "$RANK" = 0 ]; then B=3; fi\nrun $A $B\n')
    assert [word.text for word in text.commands[-1].words] == ["run", "$A", "3"]


def test_a_script_of_another_language_is_no_shell(tmp_path: Path) -> None:
    text = "#!/usr/bin/env python\n#SBATCH --nodes=2\nx = 1\n"
    assert [part.title for part in checked(tmp_path, job_sbatch=text).parts] == ["sbatch script"]
    assert not findings(tmp_path, "shell.broken", job_sbatch=text)


def test_an_option_is_reported_in_the_line_of_its_array(tmp_path: Path) -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\nARGS=(\n  --nproc_per_node 4\n)\n"
    for command in ("srun torchrun ${ARGS[@]} train.py", "srun ft_launcher ${ARGS[@]} train.py"):
        (finding,) = findings(tmp_path, "ranks.gpus", job_sbatch=f"{text}{command}\n")
        assert finding.where == (f"{tmp_path}/job.sbatch:5",)


def test_exported_launcher_in_the_shell_of_each_node(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\nFIRST=$(hostname)\n"
        'export LAUNCHER="torchrun --nproc_per_node 4 --nnodes 2 --master_addr $FIRST"\n'
        "srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID train.py'\n"
    )
    assert findings(tmp_path, "ranks.gpus", job_sbatch=text)
    assert not findings(tmp_path, "rendezvous.address-form", job_sbatch=text)  # the first node's shell reads $FIRST


def test_variable_keeps_its_blanks() -> None:
    settings = shell.read_settings(
        "export NCCL_DEBUG_FILE=/logs/$(uname -m).log\nsrun bash -c 'export NCCL_DEBUG=INFO; a'\n"
    )
    values = {name: word.text for name, word in settings.variables.items()}
    assert values == {"NCCL_DEBUG_FILE": "/logs/$(uname -m).log", "NCCL_DEBUG": "INFO"}


def test_variable_behind_a_test_is_not_certain() -> None:
    settings = shell.read_settings(
        '[ -n "$DEBUG" ] && export NCCL_DEBUG=INFO\ncd /job && export NCCL_IB_HCA=mlx5\nexport A=1\n'
    )
    assert set(settings.variables) == {"NCCL_IB_HCA", "A"}


def test_what_other_shells_read_is_limited_as_a_text_is() -> None:
    launch = "torchrun --nnodes 2 train.py"
    words = "; ".join([launch] * 100)
    repeated = -(-commands.MAX_TEXT_LENGTH // len(words)) + 20
    text = f'A="{words}"\n' + 'eval "$A"\n' * repeated
    assert len(text) < commands.MAX_TEXT_LENGTH
    count = len(shell.read_settings(text).start.launches)
    assert 0 < count <= commands.MAX_TEXT_LENGTH // len(launch)
    assert len(shell.read_settings(f'A="{words}"\neval "$A"\n').start.launches) == 100


@pytest.mark.parametrize("options", ["", "-u", "-u -W ignore", "-X dev -Werror"])
def test_python_that_starts_torchrun_is_read_behind_its_options(options: str) -> None:
    text = commands.parse_commands(f"python3 {options} -m torch.distributed.run --nnodes 2 train.py\n")
    assert [launch.program for launch in launches.launches(text)] == ["torchrun"]


BAD_TASKS = "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$A:1 train.py"
DIRECTIVES = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"#!/bin/bash\nsbatch <<EOF\n{DIRECTIVES}{BAD_TASKS}\nEOF\n", 6),
        (f"#!/bin/bash\ncat > job.sbatch <<'EOF'\n{DIRECTIVES}{BAD_TASKS}\nEOF\nsbatch job.sbatch\n", 6),
        (
            f"#!/bin/bash\ncat <<EOF >job.sbatch; sbatch job.sbatch\n{DIRECTIVES}{BAD_TASKS}\nEOF\n",
            0,
        ),  # not written yet
        (f"{DIRECTIVES}bash <<'EOF'\n{BAD_TASKS}\nEOF\n", 5),
        (f"{DIRECTIVES}cat <<'EOF'\n{BAD_TASKS}\nEOF\n", 0),
        (f"{DIRECTIVES}bash run.sh <<'EOF'\n{BAD_TASKS}\nEOF\n", 0),
        (f"{DIRECTIVES}cat > run.sh <<'EOF'\n{BAD_TASKS.removeprefix('srun ')}\nEOF\nsrun bash run.sh\n", 5),
        (f"{DIRECTIVES}cat > run.sh <<'EOF'\n{BAD_TASKS}\nEOF\nchmod +x run.sh\n", 0),
        (f"{DIRECTIVES}srun bash -c \"$(cat <<'EOF'\n{BAD_TASKS.removeprefix('srun ')}\nEOF\n)\"\n", 5),
        (f'#!/bin/bash\nsbatch -N 2 --ntasks-per-node=8 --wrap="{BAD_TASKS}"\n', 2),
        (f'#!/bin/bash\nsbatch -N 2 --wrap="{BAD_TASKS}"\n', 0),
    ],
)
def test_commands_in_heredocs_and_options(tmp_path: Path, text: str, line: int) -> None:
    reported = findings(tmp_path, "ranks.tasks", job_sh=text)
    assert [row.where[0].rpartition(":")[2] for row in reported] == ([str(line)] if line else [])


@pytest.mark.parametrize(("export", "count"), [("", 1), ("export ", 0)])
@pytest.mark.parametrize("start", ["srun bash -c \"$(cat <<'EOF'\n{}\nEOF\n)\"", "srun bash <<'EOF'\n{}\nEOF"])
def test_a_variable_that_a_heredoc_lacks(tmp_path: Path, start: str, export: str, count: int) -> None:
    """As in PrimeIntellect-ai/prime-rl pull request 3225."""
    body = 'if [ "$SLURM_PROCID" -eq "$FIRST" ]; then\n  python head.py\nfi'
    text = f"{DIRECTIVES}{export}FIRST=4\n{start.format(body)}\n"
    assert len(findings(tmp_path, "launch.unset", job_sbatch=text)) == count


def test_nodes_of_which_some_do_something_else(tmp_path: Path) -> None:
    train = "torchrun --nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$A:1 train.py"
    script = "#!/bin/bash\n#SBATCH --nodes=5\nsrun bash -c '{}'\n"
    assert findings(tmp_path, "ranks.nodes", job_sbatch=script.format(train))
    text = script.format(f'if [ "$SLURM_NODEID" = 4 ]; then python head.py; exit; fi; {train}')
    assert not findings(tmp_path, "ranks.nodes", job_sbatch=text)


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("srun bash run.sh --lr 1", 1),
        ("srun ./run.sh", 1),
        ("srun --ntasks-per-node=1 ./run.sh", 0),
        ("cp run.sh other.sh", 0),
        ("srun bash missing.sh", 0),
        ("srun bash $HOME/run.sh", 0),
    ],
)
def test_a_script_beside_that_srun_starts(tmp_path: Path, command: str, count: int) -> None:
    script = f"#!/bin/bash\n\n{BAD_TASKS.removeprefix('srun ')}\n"
    reported = findings(tmp_path, "ranks.tasks", job_sbatch=f"{DIRECTIVES}{command}\n", run_sh=script)
    assert [row.where for row in reported] == [(f"{tmp_path / 'job.sbatch'}:4",)] * count


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
    reported = findings(tmp_path, "launch.unset", job_sbatch=f"#!/bin/bash\n#SBATCH --nodes=2\n{before}\n{script}\n")
    assert [row.message for row in reported] == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "#!/bin/bash\n#SBATCH --nodes=$NODES\nsrun t",
            ["#SBATCH --nodes has $NODES: sbatch puts no variable in place"],
        ),
        ("cat <<E > a.sbatch\n#!/bin/bash\n#SBATCH --nodes=$NODES\nE", []),
    ],
)
def test_a_directive_has_no_variable(tmp_path: Path, text: str, problems: list[str]) -> None:
    assert [row.message for row in findings(tmp_path, "launch.unset", job_sbatch=f"{text}\n")] == problems


def test_variables_that_skypilot_sets_in_run_alone(tmp_path: Path) -> None:
    """As in Metta-AI/metta pull request 1923 and skypilot-org/skypilot issue 6920."""
    text = """
num_nodes: 2
resources: {accelerators: "H100:8"}
envs: {SKYPILOT_NODE_IPS: a}
setup: |
  echo $SKYPILOT_NODE_IPS  # $SKYPILOT_NUM_NODES
  vllm serve m --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE
  cat > serve.sh <<'EOF'
  vllm serve m --node-rank $SKYPILOT_NODE_RANK
  EOF
  echo 'vllm serve m --node-rank $SKYPILOT_NODE_RANK' > serve.sh
run: echo $SKYPILOT_NODE_RANK
"""
    (finding,) = findings(tmp_path, "launch.unset", job_yaml=text)
    assert finding.message == "SKYPILOT_NUM_GPUS_PER_NODE is empty in `setup`: SkyPilot sets it in `run` alone"
    assert finding.severity == "error"
