"""The job's command below the preflight, in real processes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.preflight import command
from tests.support import fake_nccl
from tests.support.loopback import free_port
from tests.support.preflight_parts import adapters, preflight

NEEDS_CC = pytest.mark.skipif(not shutil.which("cc"), reason="the libraries are compiled")

NO_HARDWARE = "warning hardware: neither a GPU nor an RDMA device is here: only the interfaces were checked"


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "TMPDIR": "/tmp", **variables}
    return subprocess.run([str(preflight()), *words], capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--", "true"), 0),
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("--no-all-reduce", "sh", "-c", "kill -9 $$"), 137),
        (("--", "no-such-program"), 127),
        (("--", "/etc/passwd"), 126),
        ((), 0),
        (("--require", "ethernet"), 2),
        (("--require", "efa", "--root", "/none", "true"), 96),
        (("RDMA_PREFLIGHT_PORT=x", "true"), 2),
        (("RDMA_PREFLIGHT_PORT=65536", "true"), 2),
        (("SLURM_PROCID=1", "SLURM_NODEID=x", "true"), 2),
    ],
)
def test_the_exit_code_is_the_commands(words: tuple[str, ...], code: int) -> None:
    variables = dict(word.split("=") for word in words if word.partition("=")[0].isupper())
    done = run(*words[len(variables) :], **variables)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(re.search(rf" result network: .*; exit code {code}\n\Z", done.stdout)) == (code != 2)


def test_variables_that_break_python_break_no_check(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)\n")
    done = run("--root=/none", "sh", "-c", "echo $PYTHONPATH", PYTHONPATH=str(tmp_path), PYTHONHOME="/none")
    first, *others = done.stdout.splitlines()
    assert (done.returncode, first) == (0, f"rdma-preflight {socket.gethostname()} {NO_HARDWARE}")
    assert str(tmp_path) in others


def test_an_image_without_python_runs_the_command_all_the_same(tmp_path: Path) -> None:
    for name in ("sh", "dirname", "readlink", "uname", "env"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    script = tmp_path / "rdma-preflight"
    script.write_text(
        re.sub(r"for python in .*; do", 'for python in "$(command -v python3)"; do', preflight().read_text())
    )
    for words in (["--require", "efa", "--", "env"], ["--require=efa", "--print-log", "--gpus", "8", "env"]):
        done = subprocess.run(
            ["sh", str(script), *words], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
        )
        assert "no python3 of version 3.8 or later is here: the node was not checked\n" in done.stdout
        assert f"PATH={tmp_path}\n" in done.stdout


def test_signals_are_passed_on() -> None:
    script = "trap 'echo got USR1' USR1; trap 'echo got TERM; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    words = [str(preflight()), "--", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        assert any(line == "ready\n" for line in lines)
        process.send_signal(signal.SIGUSR1)
        assert next(lines) == "got USR1\n"
        process.send_signal(signal.SIGTERM)
        assert next(lines) == "got TERM\n"
        assert next(lines).endswith("exit code 5\n")
    assert process.returncode == 5


EARLY_SIGNAL = """
import os, signal, subprocess, sys
from rdma_images.preflight import command

start = subprocess.Popen

def start_and_signal(*arguments, **options):
    child = start(*arguments, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return child

subprocess.Popen = start_and_signal
sys.exit(command.run_command(["sleep", "60"], dict(os.environ), lambda: False))
"""


def test_a_signal_in_the_moment_after_the_commands_start_is_passed_on() -> None:
    """The preflight ends as its command does, 128 + 15, and not by the signal itself."""
    assert subprocess.run([sys.executable, "-c", EARLY_SIGNAL], timeout=30).returncode == 128 + signal.SIGTERM


def test_the_command_does_not_outlive_a_killed_preflight() -> None:
    words = [str(preflight()), "--", "sh", "-c", "echo $$; exec sleep 60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        child = next(int(line) for line in iter(process.stdout.readline, "") if line.strip().isdigit())
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        state = Path(f"/proc/{child}/stat").read_text().split()[2] if Path(f"/proc/{child}").exists() else "Z"
        assert state == "Z"


@NEEDS_CC
@pytest.mark.parametrize(
    ("network", "required", "code", "said"),
    [
        ("Socket", "any", 97, "error network: the command was ended, since any is required: the channels use TCP"),
        ("Socket", "efa", 97, "error network: the command was ended, since efa is required: the channels use TCP"),
        ("Socket", "", 0, "result network: fallback; the channels use TCP"),
        ("Libfabric", "efa", 0, "result network: efa; the channels use EFA"),
        (
            "Libfabric",
            "erdma",
            97,
            "error network: the command was ended, since erdma is required: the channels use EFA",
        ),
        ("", "efa", 0, "result network: one node; no channel uses a network"),
    ],
)
def test_channels_that_do_not_use_the_required_fabric_end_the_command(
    tmp_path: Path, network: str, required: str, code: int, said: str
) -> None:
    seconds = "60" if code else "0"
    requirement = ["--require", required, f"--root={adapters()}"] if required else []
    words = [*requirement, "--log", str(tmp_path), "--print-log", "--"]
    variables = {"LD_LIBRARY_PATH": str(fake_nccl.folder()), **({"FAKE_NETWORK": network} if network else {})}
    done = run(*words, sys.executable, str(fake_nccl.folder() / "command.py"), seconds, **variables)
    assert done.returncode == code, done.stdout
    assert said in done.stdout
    assert "ranks" not in done.stdout.rpartition("rdma-preflight ")[2]  # those of other nodes are in other logs
    assert "NCCL INFO NCCL version 2.28.9" in done.stdout
    assert "the command runs" in done.stdout
    assert ("the command is done" in done.stdout) == (code == 0)
    assert len(list(tmp_path.glob("*.log"))) == 1


@NEEDS_CC
@pytest.mark.parametrize(
    ("second", "options", "said"),
    [
        ("no GPU", [], "number of GPUs differs: 1 on"),
        ("no NCCL", [], "note all-reduce: not run: see the lines of n1"),
        ("its own option", ["--no-all-reduce"], "note all-reduce: not run: see the lines of n1"),
    ],
)
def test_a_node_that_cannot_run_the_all_reduce_takes_it_from_all(
    tmp_path: Path, second: str, options: list[str], said: str
) -> None:
    port, folders = str(free_port()), str(fake_nccl.folder())
    environment = {"PATH": os.environ["PATH"], "RDMA_PREFLIGHT_PORT": port}
    (tmp_path / "dev").mkdir()
    roots = (adapters(), tmp_path if second == "no GPU" else adapters())
    libraries = (folders, "" if second == "no NCCL" else folders)
    words = ("--nodes=2", "--first=127.0.0.1", *options)
    nodes = [
        subprocess.Popen(
            [str(preflight()), *words[: 2 + number], f"--node={number}", f"--root={roots[number]}", "echo", "started"],
            env={**environment, "RDMA_IMAGES_NODE": f"n{number}", "LD_LIBRARY_PATH": libraries[number]},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    outputs = [node.communicate(timeout=60)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert all("started\n" in output for output in outputs)
    assert said in outputs[0]
    assert ("n1 warning all-reduce: not run: no libnccl.so.2 is found" in outputs[1]) == (second == "no NCCL")


LATE_RANKS: list[tuple[list[str], list[int]]] = [
    ([], [0, 0, 0]),
    (["true"], [0, 0, 0]),
    (["sh", "-c", "exit $SLURM_LOCALID"], [0, 1, 2]),
    (["no-such-program"], [127, 127, 127]),
    (["--require", "efa", "--root", "/none", "true"], [96, 96, 96]),
]


def start_rank(local_rank: int, ranks: int, job: str, *words: str) -> subprocess.Popen[str]:
    """Start a rank of a Slurm job of one node."""
    variables = {"SLURM_PROCID": str(local_rank), "SLURM_LOCALID": str(local_rank), "SLURM_STEP_NUM_NODES": "1"}
    variables |= {"SLURM_JOB_ID": job, "SLURM_STEP_TASKS_PER_NODE": str(ranks), "SLURM_STEP_NODELIST": "localhost"}
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.Popen([str(preflight()), *words], env=environment, stdout=subprocess.PIPE, text=True)


def read_result(rank: subprocess.Popen[str]) -> str:
    """Return the last line of the rank that checks."""
    assert rank.stdout
    return next(line for line in rank.stdout if " result network: " in line)


@pytest.mark.parametrize(("words", "codes"), LATE_RANKS)
def test_every_rank_of_a_node_is_answered(tmp_path: Path, words: list[str], codes: list[int]) -> None:
    """Also one that comes when the first one's command has ended, or where there is none."""
    first, second = (start_rank(number, 3, str(tmp_path), *words) for number in range(2))
    with first, second:
        read_result(first)
        with start_rank(2, 3, str(tmp_path), *words) as late:
            output = late.communicate(timeout=60)[0]
        second.communicate(timeout=60)
    assert [rank.returncode for rank in (first, second, late)] == codes, output
    assert ("local rank 0 of this node did not let local rank 2 start" in output) == (codes[0] == 96)


def test_a_signal_ends_the_wait_for_a_rank_that_does_not_come(tmp_path: Path) -> None:
    with start_rank(0, 2, str(tmp_path), "sh", "-c", "exit 5") as first:
        read_result(first)
        while first.poll() is None:  # it may not yet wait
            first.terminate()
            time.sleep(1)
    assert first.returncode == 5


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_a_read_only_root_and_another_user() -> None:
    """Nothing can be written anywhere: the command runs, and its network is not judged."""
    folder = preflight().parent
    script = f"""mkdir -p /run/pf-test
mount --bind {folder} /run/pf-test
mount -o remount,bind,ro / 2>/dev/null || mount --bind -o ro / /
for folder in /tmp /dev/shm; do mount -t tmpfs -o ro none $folder; done
exec setpriv --reuid=65534 --clear-groups /run/pf-test/rdma-preflight sh -c "exit 4"
"""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    Path("/run/pf-test").rmdir()
    assert done.returncode == 4, done.stderr
    assert "warning log: no folder for NCCL's log can be written" in done.stdout


@pytest.mark.parametrize(
    ("variables", "subsystems"),
    [({}, None), ({"NCCL_DEBUG_SUBSYS": "GRAPH"}, "INIT,NET,GRAPH"), ({"NCCL_DEBUG_SUBSYS": "^INIT"}, None)],
)
def test_the_variables_of_nccls_log(variables: dict[str, str], subsystems: str | None) -> None:
    set_variables = command.log_variables("/logs", {"NCCL_DEBUG": "WARN", **variables})
    assert set_variables["NCCL_DEBUG"] == "INFO"
    assert set_variables["NCCL_DEBUG_FILE"] == "/logs/%h.%p.log"
    assert set_variables.get("NCCL_DEBUG_SUBSYS") == subsystems
    assert command.log_variables("", variables) == variables


def test_the_end_of_a_long_log_is_judged(tmp_path: Path) -> None:
    """It is written in less time than between two looks."""
    log = f"{tmp_path}/{socket.gethostname().partition('.')[0]}.7.log"
    channel = "x:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
    script = f"head -c 20000000 /dev/zero > {log}; (yes trace | head -c 9000000; echo '{channel}') >> {log}"
    done = run("--log", str(tmp_path), "sh", "-c", script)
    assert "result network: fallback; the channels use TCP" in done.stdout


def test_only_new_lines_of_this_node_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "n1.cluster.local")
    channel = "x:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
    (tmp_path / "n1.7.log").write_text(channel)
    logs = command.NodeLogs(str(tmp_path), load_log_patterns(), prints_log=False)
    (tmp_path / "n10.8.log").write_text(channel)
    logs.read()
    assert logs.verdict.channels == {}
    with (tmp_path / "n1.7.log").open("a") as file:
        file.write(channel + channel[:20])
    (tmp_path / "n1.9.log").write_text(channel)
    logs.read()
    assert logs.verdict.channels == {"NET/Socket": 2}
