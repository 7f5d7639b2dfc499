"""A laboratory for builds: an engine that can be emptied, and a copy of this project."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processor import ProcessorTime, measure_processor

from rdma_images.core import disk_space, paths
from rdma_images.engine import Engine, private
from rdma_images.engine.layout import layout
from rdma_images.layers import layer_store


@dataclass(frozen=True)
class TimedRun:
    """One command, timed from outside."""

    seconds: float
    export: float  # seconds of the whole in which BuildKit compressed layers
    unpack: float  # and in which it unpacked the image
    processor: ProcessorTime
    load: float  # 1-minute load average of the machine at the end


@dataclass(frozen=True)
class BuildLab:
    """An engine with nothing in it but what the measurements put there."""

    folder: Path
    engine: Engine

    @property
    def project(self) -> Path:
        """Return the copy of this project, in which all that a build writes stays."""
        return self.folder / "project"

    def run_timed(self, name: str, command: Sequence[str | Path]) -> TimedRun:
        """Time `command` in the project, logged to <name>.log. Exits where it fails."""
        log = self.folder / f"{name}.log"
        start = time.monotonic()
        with log.open("w", encoding="utf-8") as out, measure_processor() as spent:
            process = subprocess.run(
                command, cwd=self.project, env=self._environ(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        seconds = time.monotonic() - start
        if process.returncode:
            sys.exit(f"{name} failed, see {log}")
        told = self.project / "build" / "buildkit.log"
        text = told.read_text(encoding="utf-8") if told.exists() else ""
        return TimedRun(
            round(seconds, 2), _last(EXPORT, text), _last(UNPACK, text), spent, round(os.getloadavg()[0], 1)
        )

    def docker(self, *arguments: str) -> str:
        """Return what `docker` says; ends the benchmark where it fails."""
        done = subprocess.run(["docker", *arguments], env=self.engine.environ(), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def image_names(self) -> list[str]:
        """Return the names of the images in the engine."""
        return self.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()

    def empty(self, layers: bool = True) -> None:
        """Remove all images and caches of the engine, and the `layers` that were made."""
        if layers:
            shutil.rmtree(layer_store.root(), ignore_errors=True)
        if images := self.docker("image", "ls", "--quiet").split():
            self.docker("image", "rm", "--force", *dict.fromkeys(images))
        self.docker("buildx", "prune", "--all", "--force")

    def layer_sizes(self, ref: str) -> dict[str, int]:
        """Return the layers of an image: digest -> bytes, compressed as they are pushed."""
        manifest = self._blob(self.docker("image", "inspect", "--format", "{{.Id}}", ref))
        if "manifests" in manifest:
            manifest = self._blob(manifest["manifests"][0]["digest"])
        return {layer["digest"]: layer["size"] for layer in manifest["layers"]}

    def unpacked_bytes(self, ref: str, path: str = "/") -> int:
        """Return the bytes of an image's files under `path`."""
        output = self.docker("run", "--rm", "--network", "host", ref, "du", "-sxB1", "--apparent-size", path)
        return int(output.split()[0])

    def used_bytes(self) -> int:
        """Return the bytes of the engine's disk."""
        return disk_space.used_bytes(layout().data_folder)

    def _blob(self, digest: str) -> dict[str, Any]:
        blobs = layout().data_folder / "containerd" / "io.containerd.content.v1.content" / "blobs"
        content: dict[str, Any] = json.loads((blobs / digest.replace(":", "/")).read_text(encoding="utf-8"))
        return content

    def _environ(self) -> dict[str, str]:
        return self.engine.environ() | {"PYTHONPATH": str(self.project), "PYTHONDONTWRITEBYTECODE": ""}


EXPORT = re.compile(r"exporting layers ([\d.]+)s done")
UNPACK = re.compile(r"unpacking to \S+ ([\d.]+)s done")


def _last(pattern: re.Pattern[str], log: str) -> float:
    matches = pattern.findall(log)
    return float(matches[-1]) if matches else 0.0


@contextmanager
def open_lab(folder: Path) -> Iterator[BuildLab]:
    """Provide a laboratory under `folder`, with bases that were made there before."""
    state = folder / "state"
    os.environ["RDMA_IMAGES_STATE"] = str(state)
    shutil.rmtree(folder / "project", ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=paths.PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (source := paths.PROJECT / name).is_file():
            copy = folder / "project" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    lab = BuildLab(folder, private.up(lambda line: print(line, file=sys.stderr)))
    try:
        lab.empty()
        yield lab
        lab.empty()
    finally:
        private.down()
