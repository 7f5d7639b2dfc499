"""An engine, and every start of its docker command.

A start takes 0.05 s and more, so that what a build asks about images is asked of the engine's socket where it has one.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import quote

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import BuildRecord
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress
from rdma_images.engine import daemon_api


@dataclass(frozen=True)
class Engine:
    """A Docker engine that answers, and how to talk to it.

    `env` is all that a `docker` child process needs beside the environment of this one. `build_network` is what a RUN
    needs to reach the network: "host" where the engine has no bridge.
    """

    name: str  # "private", or the name of the docker context
    kind: Literal["existing", "private"]
    host: str  # "unix:///…/docker.sock"
    version: str  # of the daemon
    buildx: str
    store: Literal["containerd", "classic"]
    build_network: Literal["default", "host"]
    env: Mapping[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        """Return the whole environment of a `docker` child process."""
        return {**os.environ, **self.env}


Stream = int | IO[bytes] | IO[str] | None
NO_VARIABLES: Mapping[str, str] = {}
MAX_QUESTIONS = 8  # to an engine, at once
ENGINE_ANSWER_SECONDS = 60.0  # for an answer of the engine; it removes large images in a few


def command_line(*arguments: str) -> list[str]:
    """Return the docker command line, for callers that start it with `engine.environ()`."""
    return ["docker", *arguments]


def run(
    engine: Engine | None,
    *arguments: str,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    cwd: Path | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `docker` and return its output and exit code, whatever that is.

    `engine` is None for the docker client as the user has set it up, `variables` are added to the environment. After
    `timeout` seconds raises subprocess.TimeoutExpired.
    """
    return subprocess.run(
        command_line(*arguments),
        env={**(engine.environ() if engine else os.environ), **variables},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        text=True,
        timeout=timeout,
        check=False,
    )


def output(engine: Engine, *arguments: str) -> str:
    """Return what `docker` prints. Raises RdmaImagesError where it fails."""
    result = run(engine, *arguments)
    if result.returncode:
        raise failure(engine, result, *arguments)
    return result.stdout


def failure(engine: Engine, result: subprocess.CompletedProcess[str], *arguments: str) -> RdmaImagesError:
    """Return the error of a docker command that failed."""
    complaint = result.stderr.strip() or f"it ended with {result.returncode}"
    return RdmaImagesError(
        f"`docker {' '.join(arguments[:2])}` failed on the engine {engine.name}: {complaint}\n"
        "end what still uses it, or see with `docker info` that the engine answers"
    )


def request(engine: Engine, method: str, path_and_query: str, seconds: float = ENGINE_ANSWER_SECONDS) -> Any:
    """Return the answer of the engine's socket. Raises OSError where it has none here."""
    kind, _, path = engine.host.partition("://")
    if kind != "unix":
        raise OSError(f"{engine.host} is no socket")
    return daemon_api.request(Path(path), path_and_query, seconds, method)


def remove_images(engine: Engine, *names: str) -> None:
    """Remove names of images, and images without names; those in use stay."""
    if names:
        run(engine, "image", "rm", *names)


def image_id(engine: Engine, ref: str) -> str:
    """Return the id of the image `ref` by the engine's socket; "" where it does not say."""
    try:
        return str(request(engine, "GET", f"/images/{quote(ref, '/:@')}/json")["Id"])
    except (OSError, LookupError, TypeError):
        return ""


def image_digests(names: Sequence[str], engine: Engine) -> dict[str, str]:
    """Return the digests of an engine's images by name; with the containerd store, of their manifests.

    Args:
        names: Names with tags, or digests.
        engine: The engine; a name that it does not have has no entry.
    """
    if not names:
        return {}
    # One after the other, an engine took 0.01 s for each.
    with ThreadPoolExecutor(min(len(names), MAX_QUESTIONS)) as pool:
        digests = dict(zip(names, pool.map(partial(image_id, engine), names), strict=True))
    if all(digests.values()):
        return digests
    # Not every engine has a socket to ask. Where an image is missing the command fails, but still prints the others.
    result = run(engine, "image", "inspect", "--format", "{{.Id}}{{range .RepoTags}} {{.}}{{end}}", *names)
    lines = filter(None, map(str.split, result.stdout.splitlines()))
    return {name: digest for digest, *tags in lines for name in (digest, *tags) if name in names}


def build_reference(build: BuildRecord, engine: Engine, build_command: str, progress: Progress) -> str:
    """Return the reference of the recorded image: its name while that is still this build's, else its digest.

    Where two folders have targets of the same name, the name leads to the image that was built last.

    Args:
        engine: The engine that has the image, or had it.
        build_command: The command that builds the image again.
        progress: Gets a line where the name is not the image's any more.

    Raises:
        RefusedError: The engine does not have the image any more.
    """
    digests = image_digests([build.ref, build.digest], engine)
    named = digests.get(build.ref)
    if named == build.digest:
        return build.ref
    lost = f"the name {build.ref} was given to another image" if named else f"the name {build.ref} is gone"
    if build.digest in digests:
        progress(f"{lost}; this folder's build is {build.digest}")
        return build.digest
    raise RefusedError(
        f"the engine does not have the image that this folder built, {build.digest}, any more: {lost}\n"
        f"run `{build_command}`"
    )


def images_with_labels(engine: Engine, *labels: str) -> list[str]:
    """Return the ids of images with all labels ("NAME=value"). Raises RdmaImagesError."""
    filters = [f"--filter=label={label}" for label in labels]
    arguments = ("image", "ls", "--no-trunc", "--quiet", *filters)
    result = run(engine, *arguments)
    # Docker 26.1 fails where an image is removed while it lists them: "content digest sha256:…: not found".
    return (output(engine, *arguments) if result.returncode else result.stdout).split()


def start(
    engine: Engine,
    *arguments: str,
    stdout: Stream = None,
    stderr: Stream = subprocess.PIPE,
    cwd: Path | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> subprocess.Popen[bytes]:
    """Start `docker` with some arguments and return its process, whose output is bytes.

    Args:
        variables: Added to the environment.
    """
    return subprocess.Popen(
        command_line(*arguments),
        env={**engine.environ(), **variables},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
    )


def missing_image(engine: Engine | None, ref: str) -> RefusedError:
    """Return the error for an image that the engine lacks, with the commands that build or pull it."""
    where = f"the engine {engine.name} ({engine.host})" if engine else "the engine"
    private = f'eval "$({COMMAND} engine.up --docker)" && ' if engine and engine.kind == "private" else ""
    return RefusedError(
        f"{where} has no image {ref}\nbuild it with `{COMMAND} build`, or get it with `{private}docker pull {ref}`"
    )


def local_name(ref: str) -> str:
    """Return the name in the engine of the image "NAME@sha256:…"."""
    return f"rdma-images/onto:{ref.rpartition(':')[2][:12]}"


def ensure_image(engine: Engine, ref: str, progress: Progress) -> str:
    """Return the local name of the image `ref`, pulled if missing. Raises RdmaImagesError."""
    digest, local = ref.partition("@")[2], local_name(ref)
    present_name = next((name for name in (digest, ref) if run(engine, "image", "inspect", name).returncode == 0), "")
    if not present_name:
        progress(f"pulling {ref}")
        output(engine, "pull", "--quiet", ref)
    output(engine, "tag", present_name or ref, local)
    return local
