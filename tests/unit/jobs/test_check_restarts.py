"""A foreign job whose torchrun starts failed ranks again: with which store."""

from pathlib import Path

import pytest

from rdma_images.jobs import check

STORE = "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (("srun torchrun --nnodes=4 --max-restarts=3 train.py",), ["warning"]),
        (("srun torchrun --nnodes=4 --max_restarts 3 train.py",), ["warning"]),
        (("srun torchrun --nnodes=4 --max-restarts=0 train.py",), []),
        (("srun torchrun --nnodes=4 --max-restarts=$RESTARTS train.py",), []),
        ((STORE, "srun torchrun --nnodes=4 --max-restarts=3 train.py"), []),
        (("srun torchrun --nnodes=4 \\", "  train.py \\", "  --max_restarts=30"), []),
        (("srun torchrun \\", "  --max-restarts=3 \\", "  train.py --max_restarts=30"), ["warning"]),
        (("python prepare.py", "srun torchrun --max-restarts=3 train.py"), ["warning"]),
        (("srun ft_launcher --nnodes=4 \\", "  --max-restarts=3 train.py"), []),
    ],
)
def test_restarts_of_torchrun_have_a_store_of_their_own(
    tmp_path: Path, commands: tuple[str, ...], expected: list[str]
) -> None:
    file = tmp_path / "job.sbatch"
    file.write_text("\n".join(["#!/bin/bash", "#SBATCH --nodes=4", *commands, ""]))
    findings = check.check_files([file]).findings
    assert [finding.severity for finding in findings if finding.rule == "restarts.store"] == expected
