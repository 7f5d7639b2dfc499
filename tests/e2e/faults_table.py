"""Make every faulty image and write what its validator says into docs/validators.md.

python tests/e2e/faults_table.py
"""

import tempfile
from pathlib import Path

import validated
from faults import FAULTS
from test_validators import DOCS, tell

from rdma_images import atomic
from rdma_images.model import Check

BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
LONGEST = 170  # characters of a cell


def main() -> None:
    """One row a fault, in the order of the faults."""
    rows = ["| validator | fault | what it says |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as parts, validated.reports_in(Path(parts) / "reports"):
        for fault in FAULTS:
            check = tell(fault, Path(parts))
            rows.append(f"| `{fault.validator}` | {fault.what} | {message(check)} |")
            print(rows[-1], flush=True)
    head, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    atomic.write(DOCS, head + BEGIN + "\n".join(rows) + "\n" + END + rest.partition(END)[2])


def message(check: Check) -> str:
    """Expected and found, short enough for a table."""
    return f"expected {cell(check.expected)}; found {cell(check.found)}"


def cell(text: str) -> str:
    """Text that a table's cell can hold."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


if __name__ == "__main__":
    main()
