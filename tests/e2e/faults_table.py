"""Make the documented faulty images, and write what validators say to docs/reference/validators.md.

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
from tests.e2e.fault_checks import run_check
from tests.e2e.fault_steps import BEGIN, DOCS, END, HEADER, documented_rows, table_row
from tests.e2e.faults import DOCUMENTED


def main(chosen: Collection[str]) -> None:
    """Write one row a check, in the order of FAULTS. Without `chosen`, of every validator."""
    head, _, after = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    after_table, documented = after.partition(END)[2], documented_rows()
    rows = []
    with tempfile.TemporaryDirectory() as parts, validated.reports_in(Path(parts) / "reports"):
        for fault in DOCUMENTED.values():
            if chosen and fault.validator not in chosen:
                rows.append(documented[fault.validator])
                continue
            rows.append(table_row(fault, run_check(fault, Path(parts))))
            print(rows[-1], flush=True)
    atomic.write(DOCS, head + BEGIN + HEADER + "\n".join(rows) + "\n" + END + after_table)


if __name__ == "__main__":
    main(sys.argv[1:])
