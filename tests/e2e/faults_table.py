"""Make every faulty image and write what its validator says into docs/reference/validators.md.

    python tests/e2e/faults_table.py
    python tests/e2e/faults_table.py plugin.platform sagemaker.train

With validators named, only their images are made, and the other rows stay.
"""

import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from rdma_images.core import atomic
from rdma_images.core.check import Check
from tests.e2e import validated
from tests.e2e.faults import FAULTS
from tests.e2e.test_validators import DOCS, run_check

BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
LONGEST = 170  # characters of a cell


def main(chosen: Collection[str]) -> None:
    """Write one row a fault, in the order of the faults. Without `chosen`, of every validator."""
    head, _, after = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after_table = after.partition(END)
    rows_by_key = {tuple(line.split(" | ")[:2]): line for line in table.splitlines()}
    rows = ["| validator | fault | what it says |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as parts, validated.reports_in(Path(parts) / "reports"):
        for fault in FAULTS:
            start = (f"| `{fault.validator}`", fault.title)
            if chosen and fault.validator not in chosen:
                rows.append(rows_by_key[start])
                continue
            rows.append(f"{start[0]} | {start[1]} | {message(run_check(fault, Path(parts)))} |")
            print(rows[-1], flush=True)
    atomic.write(DOCS, head + BEGIN + "\n".join(rows) + "\n" + END + after_table)


def message(check: Check) -> str:
    """Return expected and found, short enough for a table."""
    return f"expected {cell(check.expected)}; found {cell(check.actual)}"


def cell(text: str) -> str:
    """Return text that a table's cell can hold."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


if __name__ == "__main__":
    main(sys.argv[1:])
