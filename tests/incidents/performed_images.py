"""Build the environments of a sample of performed images, and write what `invoke validate` prints of each.

`python -m tests.incidents.performed_images SAMPLE FOLDER [WORD…]` takes the reports of the file SAMPLE whose address
has one of the words, without a word all that need no image, and writes to FOLDER/NAME.txt. uv and its interpreters have
to be in PATH.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

from tests.incidents.performed import report_name

Report = Mapping[str, Any]
# A file system that is full and an index that hangs end a run; a report takes a minute or two.
TIME_LIMIT = 1200


def environment(folder: Path) -> dict[str, str]:
    """Return the variables in which a report's commands run: its environment is active."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "ENV": str(folder), "VIRTUAL_ENV": str(folder), "PATH": path}


def build(report: Report, folder: Path) -> None:
    """Make the environment of a report in a folder.

    Raises:
        subprocess.CalledProcessError: A command ended with another code than 0.
    """
    subprocess.run(["uv", "venv", "--quiet", "--clear", "--python", str(report["python"]), folder], check=True)
    work = folder / "work"
    work.mkdir()
    script = f"set -e\n{report['commands']}"
    subprocess.run(["bash", "-c", script], check=True, cwd=work, env=environment(folder), timeout=TIME_LIMIT)


def validate(report: Report, folder: Path) -> tuple[str, float]:
    """Return what `invoke validate --folder` prints of an environment with the report's variables, and its seconds."""
    values = {name: Template(value).substitute(ENV=folder) for name, value in report.get("env", {}).items()}
    started = time.monotonic()
    run = subprocess.run(
        ["invoke", "validate", "--folder", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **values},
        timeout=TIME_LIMIT,
    )
    return f"{run.stdout}exit code {run.returncode}\n", time.monotonic() - started


def main() -> None:
    """Measure the reports that the command line names, and remove each environment after it."""
    sample, target, *words = sys.argv[1:]
    for report in yaml.safe_load(Path(sample).read_text()):
        source = str(report.get("source", ""))
        if not source or "image" in report or (words and not any(word in source for word in words)):
            continue
        name = report_name(report)
        folder = Path(target).resolve() / name
        build(report, folder)
        printed, seconds = validate(report, folder)
        Path(target, f"{name}.txt").write_text(f"{source}\n{printed}")
        print(f"{seconds:.0f} s  {source}", flush=True)
        subprocess.run(["rm", "-rf", folder], check=True)


if __name__ == "__main__":
    main()
