"""List what a runtime image leaves out, by pattern and wheel, in files and bytes.

python benchmarks/omitted_files.py IMAGE   (a devel image in the engine: there the wheels' RECORDs are whole)
"""

import csv
import re
import subprocess
import sys
from collections import defaultdict
from fnmatch import translate

from rich.console import Console
from rich.table import Table

from rdma_images import engine
from rdma_images.core import paths

MEGABYTE = 1e6


def main() -> None:
    """Print the table."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = (paths.DATA / "dockerfiles" / "devel-files.txt").read_text(encoding="utf-8").splitlines()
    patterns = {line: re.compile(translate(line)) for line in lines if line and not line.startswith("#")}
    omitted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for wheel, path, size in list_wheel_files(sys.argv[1]):
        for line, pattern in patterns.items():
            if pattern.match(path):
                omitted[line, wheel].append(size)
                break
    print_table(omitted)


def list_wheel_files(image: str) -> list[tuple[str, str, int]]:
    """Return wheel, path and bytes of every file in the RECORDs of an image's wheels."""
    running = engine.ensure()
    read = 'cd /opt/venv/site-packages && for r in *.dist-info/RECORD; do sed "s|^|${r%%.dist-info*},|" $r; done'
    command = ["docker", "run", "--rm", "--network", "host", image, "sh", "-c", read]
    process = subprocess.run(command, env=running.environ(), capture_output=True, text=True)
    if process.returncode:
        sys.exit(process.stderr.strip())
    rows = csv.reader(process.stdout.splitlines())
    return [(row[0], row[1], int(row[-1])) for row in rows if row[-1].isdigit()]


def print_table(omitted: dict[tuple[str, str], list[int]]) -> None:
    """Print one line a pattern and wheel, the largest first."""
    table = Table(box=None, pad_edge=False)
    for name in ("pattern", "wheel", "files", "MB"):
        table.add_column(name, justify="right" if name in ("files", "MB") else "left")
    for (pattern, wheel), sizes in sorted(omitted.items(), key=lambda item: -sum(item[1])):
        table.add_row(pattern, wheel, str(len(sizes)), f"{sum(sizes) / MEGABYTE:.1f}")
    sizes = [size for sizes_of_wheel in omitted.values() for size in sizes_of_wheel]
    table.add_row("all", "", str(len(sizes)), f"{sum(sizes) / MEGABYTE:.1f}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    main()
