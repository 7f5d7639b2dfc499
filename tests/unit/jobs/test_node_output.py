"""What one node of a job prints, as each launcher names nodes."""

from pathlib import Path

import pytest

from rdma_images.jobs.run.node_output import NodeOutput

LINES = {
    "Slurm": ("job-1.log", "0: first\n1: second\n"),
    "mpirun": ("output.log", "[1,0]<stdout>:first\n[1,1]<stderr>:second\n"),
    "SkyPilot": ("output.log", "(head, rank=0, pid=9) first\n(worker1, rank=1, pid=9, ip=10.0.0.2) second\n"),
    "PyTorchJob": (".streamed/1", "[pod/a-master-0/pytorch] first\n[pod/a-worker-0/pytorch] second\n"),
    "TrainJob": (".streamed/1", "[pod/a-node-0-0-x1b2c/node] first\n[pod/a-node-0-1-x1b2c/node] second\n"),
    "MPIJob": (
        ".streamed/1",
        "[pod/a-launcher-x1b2c/launcher] [1,0]<stdout>:first\n[pod/a-launcher-x1b2c/launcher] [1,1]<stdout>:second\n",
    ),
}


@pytest.mark.parametrize("launcher", LINES)
def test_a_node_is_shown_and_no_other(launcher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, text = LINES[launcher]
    log = tmp_path / "logs" / name
    log.parent.mkdir(parents=True)
    outputs = [NodeOutput(tmp_path / "logs", node) for node in (0, 1)]
    log.write_text(text[:-3])
    outputs[0].show()
    log.write_text(text)
    outputs[0].show()
    assert capsys.readouterr().out == "first\n"
    outputs[1].show()
    assert capsys.readouterr().out == "second\n"


def test_machines_by_ssh_have_a_log_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {"output.log": "", "job-0.log": "first\n", "job-1.log": "second\n"}.items():
        (tmp_path / name).write_text(text)
    NodeOutput(tmp_path, 1).show()
    assert capsys.readouterr().out == "second\n"


def test_logs_of_nccl_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "job-1"
    folder.mkdir()
    (folder / "host.1.log").write_text("NCCL INFO\n")
    NodeOutput(tmp_path, 0).show()
    assert capsys.readouterr().out == ""
