"""Make every faulty image, and write what validators say to docs/reference/validators.md.

    python tests/e2e/faults_table.py
    python tests/e2e/faults_table.py plugin.platform sagemaker.train

With validators named, only their images are made, and the other rows stay.
"""

import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from rdma_images.core import atomic
from tests.e2e import validated
from tests.e2e.fault_steps import BEGIN, DOCS, END, documented_rows, table_row
from tests.e2e.faults import FAULTS
from tests.e2e.test_validators import run_check


def main(chosen: Collection[str]) -> None:
    """Write one row a fault, in the order of the faults. Without `chosen`, of every validator."""
    head, _, after = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    after_table, rows_by_key = after.partition(END)[2], documented_rows()
    rows = ["| validator | fault | what it says |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as parts, validated.reports_in(Path(parts) / "reports"):
        for fault in FAULTS:
            if chosen and fault.validator not in chosen:
                rows.append(rows_by_key[fault.validator, fault.title])
                continue
            rows.append(table_row(fault, run_check(fault, Path(parts))))
            print(rows[-1], flush=True)
    atomic.write(DOCS, head + BEGIN + "\n".join(rows) + "\n" + END + after_table)


if __name__ == "__main__":
    main(sys.argv[1:])
