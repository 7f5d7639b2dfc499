"""Run the scanner that the user has, Trivy or Grype, on an image of an engine or of a registry."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError, RefusedError, suggestion
from rdma_images.core.progress import Progress, report_waiting
from rdma_images.engine import Engine

_COMMANDS: Mapping[str, Callable[[str, bool], list[str]]] = {
    "trivy": lambda ref, is_local: [
        *("trivy", "image", "--quiet", "--scanners", "vuln", "--format", "json"),
        *("--image-src", "docker" if is_local else "remote", ref),
    ],
    "grype": lambda ref, is_local: [
        *("grype", "--quiet", "--output", "json", f"{'docker' if is_local else 'registry'}:{ref}")
    ],
}


def run_scanner(program: str, ref: str, engine: Engine | None, folder: Path, progress: Progress) -> Path:
    """Scan `ref` with the user's own program; return the report that it wrote into `folder`.

    Args:
        engine: The engine that has the image; None for a reference in a registry.

    Raises:
        RefusedError: The program is not known, or not installed.
        RdmaImagesError: It failed.
    """
    if program not in _COMMANDS:
        raise RefusedError(f"--with {program}: no scanner that is run here\n{suggestion(program, _COMMANDS)}")
    if shutil.which(program) is None:
        raise RefusedError(
            f"{program} is not on PATH\ninstall it, or read a scanner's report with --report, or advisories with "
            "--advisories"
        )
    command = _COMMANDS[program](ref, engine is not None)
    environ = {**engine.environ(), "DOCKER_HOST": engine.host} if engine else None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{program}.json"
    progress(f"scanning {ref} with {program}")
    with path.open("wb") as report, tempfile.TemporaryFile() as errors, report_waiting(progress, lambda: program):
        result = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=report, stderr=errors, check=False
        )
        errors.seek(0)
        complaint = errors.read(1 << 16).decode(errors="replace").strip()
    if result.returncode:
        complaint_end = "\n".join(complaint.splitlines()[-5:]) or f"it ended with {result.returncode}"
        raise RdmaImagesError(f"`{' '.join(command)}` failed: {complaint_end}\nsee that it scans this image by itself")
    return path
