"""Options of a build, and `docker buildx bake` with them."""

import json
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdma_images.core import files, paths
from rdma_images.core.compression import COMPRESSIONS, Compression
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.progress import Progress, report_waiting, silent
from rdma_images.engine import Engine, docker_command
from rdma_images.engine.discovery import version_problem
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
# step's number comes first.
_COMPLAINT = re.compile(r"^(?:#\d+ )?[\d.]+ +((?:E|error|dpkg: error|fatal): .+)$")
# ENOSPC, errno(3), as reported by a step or by BuildKit.
_FULL = re.compile(r"^(?:#\d+ )?(?:[\d.]+ +|ERROR: )?(.*no space left on device.*)$", re.IGNORECASE)

# Failures of which another run has none. With another image, containerd removed files of the image whose name the
# new one has just taken, and above which it was unpacked: the layers are there, and are unpacked again. And buildx
# before 0.17 closes the session of a target whose result is cached before BuildKit has read that target's files for
# another one ("only one connection allowed", session/grpc.go of moby/buildkit): a second run finds it cached.
PASSING = re.compile(r"parent snapshot \S+ does not exist|only one connection allowed|failed to solve: not found$")
ATTEMPTS = 4  # a chain of three targets, all cached, failed twice in a row
MAX_LINE = 100  # characters of BuildKit's last line in a line of progress


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build, the same for all of its images."""

    rehearse: bool = False
    builder: str | None = None  # a buildx builder; None: the engine's own
    compression: Compression = "zstd"
    cache_from: tuple[str, ...] = ()  # registry caches, in buildx's notation, with IMAGE for the image's id
    cache_to: tuple[str, ...] = ()
    layers: "Repository | None" = None  # which has the wheels' layers, or gets them


@dataclass(frozen=True)
class BakeCommand:
    """Run `docker buildx bake` in an engine. Raises RdmaImagesError where it fails."""

    engine: Engine
    options: BuildOptions
    secret_files: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # by target and name of the secret
    progress: Progress = silent

    def build_images(self, file: Mapping[str, Any], targets: Sequence[bake.ImageTarget]) -> None:
        """Build images; a line now and then tells what BuildKit does."""
        store, builder, compression = self.engine.store, self.options.builder, self.options.compression
        outputs = {
            bake.bake_target_name(target.image.id): bake.bake_output(
                target.ref, store, builder, compression, keeps_layers=target.image.onto is not None
            )
            for target in targets
        }
        ids = [target.image.id for target in targets]
        caches = [  # an image's cache has the steps of its helper targets, too
            f"--set={bake.bake_target_name(image_id)}.cache-to={cache.replace(IMAGE, image_id)}"
            for image_id in ids
            for cache in self.options.cache_to
        ]
        self._build(file, outputs, ids, caches)

    def build_system_layers(self, file: Mapping[str, Any], ids: Sequence[str]) -> None:
        """Build the system layers of the images `ids`.

        No image comes of it; the engine's own builder also compresses their layers.
        """
        targets = bake.stage_file(file, ids, bake.SYSTEM)
        early = "type=cacheonly"
        if self.engine.store == "containerd" and not self.options.builder:
            # What it compresses now, its cache has for the image.
            early = f"type=image,store=false,{COMPRESSIONS[self.options.compression]}"
        self._build(targets, dict.fromkeys(targets["group"]["default"]["targets"], early), ids)

    def export_stage(self, file: Mapping[str, Any], image_id: str, stage: str, folder: Path) -> None:
        """Build one stage of an image, and write its files to `folder`."""
        outputs = {bake.bake_target_name(image_id): f"type=local,dest={folder}"}
        self._build(bake.stage_file(file, [image_id], stage), outputs, [image_id])

    def _build(
        self, file: Mapping[str, Any], outputs: Mapping[str, str], ids: Sequence[str], options: Sequence[str] = ()
    ) -> None:
        """Build what `outputs` names, again after passing failures. Raises RdmaImagesError where it fails."""
        with self._command(file, outputs) as (command, environment):
            caches = dict.fromkeys(c.replace(IMAGE, image_id) for c in self.options.cache_from for image_id in ids)
            command += ["--progress", "plain", *(f"--set=*.cache-from={cache}" for cache in caches), *options]
            for _ in range(ATTEMPTS):
                code, lines = self._watch(command, environment)
                if not code or not any(map(PASSING.search, lines)):
                    break
        if code:
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            raise build_error(ids, lines)

    def _watch(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, list[str]]:
        """Run a command in plain progress, and tell what it does now and then; return its exit code and its lines."""
        process = docker_command.start(self.engine, *command, cwd=paths.PROJECT, variables=environment)
        lines: list[str] = []
        with (
            process as running,
            report_waiting(self.progress, lambda: textwrap.shorten(" ".join(["BuildKit:", *lines[-1:]]), MAX_LINE)),
            log_file().open("a", encoding="utf-8") as log,
        ):
            for raw in running.stderr or ():
                lines.append(raw.decode(errors="replace").rstrip("\n"))
                log.write(f"{lines[-1]}\n")
        return running.returncode, lines

    @contextmanager
    def _command(
        self, file: Mapping[str, Any], outputs: Mapping[str, str]
    ) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Provide the bake command and its environment; its files last for the block."""
        with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
            files = {"bake.json": bake.with_run(file, self.secret_files, outputs)}
            if self.engine.build_network == "host" and not self.options.builder:
                files = {"network.yaml": bake.network_file(file), **files}
            for name, content in files.items():
                (Path(folder) / name).write_text(json.dumps(content), encoding="utf-8")
            command = ["buildx", "bake", "--provenance=false"]
            command += ["--builder", self.options.builder] if self.options.builder else []
            command += network_entitlement(self.engine, self.options.builder)
            command += [part for name in files for part in ("--file", str(Path(folder) / name))]
            with self._registry_login() as environment:
                # buildx 0.13 leaves files in its temporary folder: they go away with ours.
                yield command, {**environment, **BUILDX, "TMPDIR": folder}

    def _registry_login(self) -> AbstractContextManager[Mapping[str, str]]:
        """Return an environment in which BuildKit may read the wheels' layers in their registry."""
        if self.options.layers is None:
            return nullcontext({})
        from rdma_images.registry.credentials import docker_environment

        connection = self.options.layers.connection
        return docker_environment(connection.host, connection.login(), self.engine.environ())


def log_file() -> Path:
    """Return the file with all that BuildKit printed into pipes in the last build."""
    file = paths.BUILD / "buildkit.log"
    with files.raising_file_error(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


def build_error(ids: Sequence[str], lines: Sequence[str]) -> RdmaImagesError:
    """Return the error of a build, with the first complaint of the failed step."""
    failure = f"BuildKit could not build {', '.join(ids)}"
    if full := _first_match(_FULL, lines):
        fix = f"free disk space; {paths.COMMAND} engine.status shows what can be removed, and how"
        return RdmaImagesError(f"{failure}: {full}\n{fix}")
    complaint = _first_match(_COMPLAINT, lines)
    cause = f": {complaint}" if complaint else ""
    return RdmaImagesError(f"{failure}{cause}\nits last lines above name the step that failed")


def _first_match(pattern: re.Pattern[str], lines: Sequence[str]) -> str:
    """Return the first group in the first line that matches; "" for none."""
    return next((match[1] for match in map(pattern.match, lines) if match), "")


def network_entitlement(engine: Engine, builder: str | None) -> list[str]:
    """Return the option, if buildx asks for one, that lets a RUN use the host's network."""
    needs_host_network = engine.build_network == "host" and not builder
    asks = needs_host_network and not version_problem("buildx", engine.buildx, FIRST_WITH_ALLOW)
    return ["--allow=network.host"] if asks else []
