"""Options of a build, and `docker buildx bake` with them."""

import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import Engine, docker_command
from rdma_images.engine.discovery import too_old
from rdma_images.render import bake

if TYPE_CHECKING:  # a build without a registry need not wait for an HTTP client
    from rdma_images.registry.client import Repository

BUILDX = {
    # buildx after 0.20 asks before a bake file reads outside the project. Our bake files do, on purpose.
    "BUILDX_BAKE_ENTITLEMENTS_FS": "0",
    # Helper targets must leave no image behind: two equal ones fail because both export the same name.
    "BUILDX_NO_DEFAULT_LOAD": "1",
}

# The first buildx whose bake asks before a RUN uses the host's network, and fails without a terminal: docker/buildx
# pull request 2666. 0.29 was tried and has --allow; 0.13 does not know that option.
FIRST_WITH_ALLOW = (0, 17)

IMAGE = "{image}"  # in the address of a cache: replaced by the image's id
# How a step reports its failure: apt's "E: …", uv's and dpkg's "error: …", git's "fatal: …". In plain progress the
# step's number comes first, on a terminal it does not.
_COMPLAINT = re.compile(r"^(?:#\d+ )?[\d.]+ +((?:E|error|dpkg: error|fatal): .+)$")
# ENOSPC, errno(3), as reported by a step or by BuildKit.
_FULL = re.compile(r"^(?:#\d+ )?(?:[\d.]+ +|ERROR: )?(.*no space left on device.*)$", re.IGNORECASE)

# Two failures of which another run has none. With another image, containerd removed files of the image whose name the
# new one has just taken, and above which it was unpacked: the layers are there, and are unpacked again. And buildx
# before 0.17 closes the session of a target whose result is cached before BuildKit has read that target's files for
# another one ("only one connection allowed", session/grpc.go of moby/buildkit): a second run finds it cached.
PASSING = re.compile(r"parent snapshot \S+ does not exist|only one connection allowed")
ATTEMPTS = 4  # a chain of three targets, all cached, failed twice in a row
# The connection to BuildKit ended with the build: gRPC's status of that, as docker build and buildx bake print it.
_LOST = re.compile(r"^ERROR: failed to solve: (?:rpc error: code = )?Unavailable\b")
_ESCAPE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")  # a terminal's colours and moves of the cursor
MAX_TAIL_BYTES = 1 << 16  # bytes that a command drew last: BuildKit repeats a failed step's lines at its end


@dataclass(frozen=True)
class Options:
    """Options of a build, the same for all of its images."""

    rehearse: bool = False
    builder: str | None = None  # a buildx builder; None: the engine's own
    compression: bake.Compression = "zstd"
    cache_from: tuple[str, ...] = ()  # registry caches, in buildx's notation, with IMAGE for the image's id
    cache_to: tuple[str, ...] = ()
    layers: "Repository | None" = None  # which has the wheels' layers, or gets them
    no_cache: bool = False  # run every step again
    layout: Path | None = None  # a folder that gets the image, as an OCI layout, in place of the engine


def options(
    rehearse: bool,
    builder: str,
    compression: str,
    cache_from: Sequence[str] | None,
    cache_to: Sequence[str] | None,
    layers: "Repository | None" = None,
) -> Options:
    """Return the checked options. Raises RefusedError for an unknown compression."""
    parsed_compression = bake.parse_compression(compression)
    return Options(
        rehearse, builder or None, parsed_compression, tuple(cache_from or ()), tuple(cache_to or ()), layers
    )


@dataclass(frozen=True)
class BakeCommand:
    """Run `docker buildx bake` in an engine. Raises RdmaImagesError where it fails."""

    engine: Engine
    options: Options
    secret_files: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # by target and name of the secret

    def build_images(self, file: Mapping[str, Any], targets: Sequence[bake.ImageTarget]) -> None:
        """Build images, their progress live on a terminal and in plain lines elsewhere."""
        outputs = {bake.image_name(target.image.id): self._output(target) for target in targets}
        ids = [target.image.id for target in targets]
        with self._command(file, outputs) as (command, environment):
            command += ["--progress", "auto" if sys.stderr.isatty() else "plain"]
            command += _cache_from(ids, self.options)
            for image_id in ids:  # an image's cache has the steps of its helper targets, too
                caches = [cache.replace(IMAGE, image_id) for cache in self.options.cache_to]
                command += [f"--set={bake.image_name(image_id)}.cache-to={cache}" for cache in caches]
            run = _draw if sys.stderr.isatty() else _show_lines
            _run(run, self.engine, command, environment, ids)

    def build_system_layers(self, file: Mapping[str, Any], ids: Sequence[str]) -> None:
        """Build the system layers of the images `ids`.

        No image comes of it; the engine's own builder also compresses their layers.
        """
        targets = bake.system_layers_file(file, ids)
        early = "type=cacheonly"
        if self.engine.store == "containerd" and not self.options.builder:
            # What it compresses now, its cache has for the image.
            early = f"type=image,store=false,{bake.COMPRESSIONS[self.options.compression]}"
        self._build_in_plain_lines(targets, dict.fromkeys(targets["group"]["default"]["targets"], early), ids)

    def export_stage(self, file: Mapping[str, Any], image_id: str, stage: str, folder: Path) -> None:
        """Build one stage of an image, and write its files to `folder`."""
        outputs = {bake.image_name(image_id): f"type=local,dest={folder}"}
        self._build_in_plain_lines(bake.stage_file(file, image_id, stage), outputs, [image_id])

    def _build_in_plain_lines(self, file: Mapping[str, Any], outputs: Mapping[str, str], ids: Sequence[str]) -> None:
        """Build what `outputs` names."""
        with self._command(file, outputs) as (command, environment):
            command += ["--progress", "plain", *_cache_from(ids, self.options)]
            _run(_show_lines, self.engine, command, environment, ids)

    def _output(self, target: bake.ImageTarget) -> str:
        """Return where an image goes: into the engine, or the folder of the options."""
        keeps_layers, compression = target.image.onto is not None, self.options.compression
        if self.options.layout:
            return bake.layout_output(self.options.layout, compression, keeps_layers=keeps_layers)
        store, builder = self.engine.store, self.options.builder
        return bake.bake_output(target.ref, store, builder, compression, keeps_layers=keeps_layers)

    @contextmanager
    def _command(
        self, file: Mapping[str, Any], outputs: Mapping[str, str]
    ) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Provide the bake command and its environment; its files last for the block."""
        with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
            files = {"bake.json": file, "run.json": bake.run_file(file, self.secret_files, outputs)}
            if self.engine.build_network == "host" and not self.options.builder:
                files = {"network.yaml": bake.network_file(file), **files}
            for name, content in files.items():
                (Path(folder) / name).write_text(bake.bake_text(content), encoding="utf-8")
            command = ["buildx", "bake", "--provenance=false"]
            command += ["--builder", self.options.builder] if self.options.builder else []
            command += network_entitlement(self.engine, self.options.builder)
            command += ["--no-cache"] if self.options.no_cache else []
            command += [part for name in files for part in ("--file", str(Path(folder) / name))]
            # buildx 0.13 leaves files in its temporary folder: they go away with ours.
            yield command, BUILDX | {"TMPDIR": folder}


def _run(
    show: Callable[[Engine, Sequence[str], Mapping[str, str]], tuple[int, list[str]]],
    engine: Engine,
    command: Sequence[str],
    environment: Mapping[str, str],
    ids: Sequence[str],
) -> None:
    """Run a command, again after passing failures. Raises RdmaImagesError where it fails."""
    for _ in range(ATTEMPTS):
        code, lines = show(engine, command, environment)
        if not code or not any(map(PASSING.search, lines)):
            break
    if code:
        raise build_error(ids, lines)


def _show_lines(engine: Engine, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Run a command in plain progress; return its exit code and its lines."""
    process = docker_command.start(
        engine, *command, stdout=None, stderr=subprocess.PIPE, cwd=paths.PROJECT, variables=environment
    )
    lines = []
    with process as running:
        for raw in running.stderr or ():
            line = raw.decode(errors="replace")
            sys.stderr.write(line)
            lines.append(line.rstrip("\n"))
    return running.returncode, lines


def _draw(engine: Engine, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Run a command that draws on this terminal; return exit code and last lines.

    It draws on a terminal between, whose bytes are passed on: a failed step's own lines are the last.
    """
    controller, terminal = pty.openpty()
    with os.fdopen(controller, "rb", buffering=0) as output:
        termios.tcsetwinsize(controller, termios.tcgetwinsize(sys.stderr))
        process = docker_command.start(
            engine, *command, stdout=terminal, stderr=terminal, cwd=paths.PROJECT, variables=environment
        )
        os.close(terminal)
        tail = b""
        with process as running, suppress(OSError):  # EIO: the command has closed its end
            while chunk := output.read(MAX_TAIL_BYTES):
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
                termios.tcsetwinsize(controller, termios.tcgetwinsize(sys.stderr))
                tail = (tail + chunk)[-MAX_TAIL_BYTES:]
    return running.returncode, _ESCAPE.sub("", tail.decode(errors="replace")).splitlines()


def _cache_from(ids: Sequence[str], bake_options: Options) -> list[str]:
    """Return the options for reading the caches of all these images."""
    caches = dict.fromkeys(cache.replace(IMAGE, image_id) for cache in bake_options.cache_from for image_id in ids)
    return [f"--set=*.cache-from={cache}" for cache in caches]


def build_error(ids: Sequence[str], lines: Sequence[str]) -> RdmaImagesError:
    """Return the error of a build, with the first complaint of the failed step."""
    failure = f"BuildKit could not build {', '.join(ids)}"
    if full := _first_match(_FULL, lines):
        fix = f"free disk space; {paths.COMMAND} engine.status shows what can be removed, and how"
        return RdmaImagesError(f"{failure}: {full}\n{fix}")
    if any(map(_LOST.match, lines)):
        fix = f"run the command again: what is built is in the cache; {paths.COMMAND} engine.status shows the engine"
        return RdmaImagesError(f"{failure}: the engine stopped, or the connection to it broke\n{fix}")
    complaint = _first_match(_COMPLAINT, lines)
    cause = f": {complaint}" if complaint else ""
    return RdmaImagesError(f"{failure}{cause}\nits last lines above name the step that failed")


def _first_match(pattern: re.Pattern[str], lines: Sequence[str]) -> str:
    """Return the first group in the first line that matches; "" for none."""
    return next((match[1] for match in map(pattern.match, lines) if match), "")


def network_entitlement(engine: Engine, builder: str | None) -> list[str]:
    """Return the option, if buildx asks for one, that lets a RUN use the host's network."""
    needs_host_network = engine.build_network == "host" and not builder
    return (
        ["--allow=network.host"]
        if needs_host_network and not too_old("buildx", engine.buildx, FIRST_WITH_ALLOW)
        else []
    )
