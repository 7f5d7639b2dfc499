"""A finding that a comment in the file allows is shown, and does not count."""

from pathlib import Path

import pytest

from rdma_images.jobs.check import findings_table
from tests.support.foreign_jobs import DIGEST, EFA, checked, pods, sbatch

TCP = sbatch(
    "{above}", "export NCCL_NET=Socket{beside}", f"srun --container-image={DIGEST} --container-env=NCCL_NET train"
)


@pytest.mark.parametrize(
    ("above", "beside", "acknowledged"),
    [
        ("", "", False),
        ("", "  # rdma-images: allow tcp.chosen", True),
        ("# rdma-images: allow tcp.chosen", "", True),
        ("#   rdma-images: allow image.tag, tcp.chosen\n# The TCP leg of a comparison.", "", True),
        ("# rdma-images: allow image.tag", "", False),
        ("# rdma-images: allow tcp.chosen\nexport NCCL_DEBUG=INFO", "", False),
    ],
)
def test_a_deliberate_setting_of_a_batch_script(tmp_path: Path, above: str, beside: str, acknowledged: bool) -> None:
    (finding,) = checked(tmp_path, job_sbatch=TCP.format(above=above, beside=beside)).findings
    assert (finding.rule, finding.acknowledged) == ("tcp.chosen", acknowledged)


def test_a_directive_is_the_line_that_a_comment_above_it_is_about(tmp_path: Path) -> None:
    text = sbatch("srun train", options="--nodes=2 --container-image=trainer:1")
    allowed = text.replace("#SBATCH --container", "# rdma-images: allow image.tag\n#SBATCH --container")
    (finding,) = checked(tmp_path, job_sbatch=allowed).findings
    assert finding.acknowledged


def test_an_error_in_a_manifest_does_not_count_where_it_is_allowed(tmp_path: Path) -> None:
    text = pods(efa=None).replace("NCCL_DEBUG", "FI_EFA_FORK_SAFE")
    counted = checked(tmp_path, job_yaml=text)
    assert counted.has_errors
    allowed = text.replace("limits: {", "limits: &same {").replace(
        "          limits:", "          # rdma-images: allow efa.count\n          limits:"
    )
    allowed = allowed.replace(
        "requests: {nvidia.com/gpu: 8}", "requests: {nvidia.com/gpu: 8}  # rdma-images: allow efa.count"
    )
    result = checked(tmp_path, job_yaml=allowed)
    assert not result.has_errors
    shown = findings_table.findings_text(result).plain
    assert f"allowed  {tmp_path}/job.yaml:" in shown
    assert f"no {EFA}" in shown
    assert "0 errors, 1 warning, 1 allowed by a comment in 1 part of jobs in 1 file" in shown


def test_one_place_of_two_is_allowed(tmp_path: Path) -> None:
    text = pods("FI_PROVIDER=tcp")
    line = next(line for line in text.splitlines() if "FI_PROVIDER" in line)
    allowed = text.replace(line, f"{line}  # rdma-images: allow environment.harmful")
    first, second = checked(tmp_path, a_yaml=text, b_yaml=allowed).findings
    assert [(finding.acknowledged, len(finding.where)) for finding in (first, second)] == [(False, 1), (True, 1)]
