"""What ended a job, by the structure of its log: public logs, and each structure by itself."""

import pytest
import yaml

from rdma_images.core import paths
from rdma_images.nccl_logs.verdict import Verdict, load_wordings, verdict_of_lines

SAMPLE = paths.PROJECT / "tests" / "incidents" / "samples" / "2026-11-26-logs.yaml"
REPORTS = {report["source"]: report for report in yaml.safe_load(SAMPLE.read_text())}


def verdict_on(*lines: str) -> Verdict:
    return verdict_of_lines(lines, load_wordings())


@pytest.mark.parametrize("source", REPORTS)
def test_what_ended_a_public_job_is_told(source: str) -> None:
    report = REPORTS[source]
    result = verdict_on(*report["lines"])
    print(result.network, result.sentence)
    assert [word for word in report["told"] if word not in result.sentence] == []
    assert not result.good
