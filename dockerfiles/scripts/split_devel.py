#!/usr/bin/env python3
"""split-devel SITE DEVEL PATTERNS: move what only builds and tests need from SITE, a site-packages, to DEVEL.

Each wheel's RECORD tells the truth in both images: in SITE it has what is left, and the whole one lies in DEVEL, whose
layer comes above.
"""

import csv
import re
import sys
from contextlib import suppress
from fnmatch import translate
from pathlib import Path

Row = list[str]  # a line of RECORD: path, hash, size in bytes


def patterns(text: str) -> re.Pattern[str]:
    """All patterns of the file as one expression."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return re.compile("|".join(translate(line) for line in lines))


def split(record: Path, site: Path, devel: Path, devel_files: re.Pattern[str]) -> int:
    """Move one wheel's files. Returns their bytes, by its RECORD."""
    text = record.read_text(encoding="utf-8")
    rows: list[Row] = list(csv.reader(text.splitlines()))
    moved = [row for row in rows if devel_files.match(row[0])]
    if not moved:
        return 0
    for path, *_ in moved:
        _move(site / path, devel / path)
    kept = [row for row in rows if not devel_files.match(row[0])]
    with record.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(kept)
    whole = devel / record.relative_to(site)
    whole.parent.mkdir(parents=True)
    whole.write_text(text, encoding="utf-8")
    return sum(int(size or 0) for *_, size in moved)


def _move(file: Path, to: Path) -> None:
    """Move a file, and let go of the folders that it leaves empty."""
    to.parent.mkdir(parents=True, exist_ok=True)
    file.rename(to)
    with suppress(OSError):  # the first folder that is not empty; to list each would take long in one of 7,000 headers
        for folder in file.parents:
            folder.rmdir()


if __name__ == "__main__":
    site, devel, listed = map(Path, sys.argv[1:])
    devel_files = patterns(listed.read_text(encoding="utf-8"))
    for record in sorted(site.glob("*.dist-info/RECORD")):
        size = split(record, site, devel, devel_files)
        print(f"{record.parent.name}: {size} bytes for the devel image")
