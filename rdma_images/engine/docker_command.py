"""The docker command: every start of it is here. The program is looked for on the engine's own PATH.

A start takes 0.05 s and more, so that what a build asks about images is asked of the engine's socket where it has one.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine import daemon_api
from rdma_images.engine.container_engine import Engine

Stream = int | IO[bytes] | IO[str] | None
NO_VARIABLES: Mapping[str, str] = {}
SECONDS = 60.0  # for an answer of the engine; it removes large images in a few


def words(*arguments: str) -> list[str]:
    """Return the command line, for who starts it with the environment `engine.environ()` in a way of its own."""
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
    """Return what `docker` with these arguments printed on both streams, and its exit code, whatever that is.

    `engine` is None for the docker client as the user has set it up, `variables` are added to the environment. After
    `timeout` seconds raises subprocess.TimeoutExpired.
    """
    return subprocess.run(
        words(*arguments),
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
    """Return what `docker` with these arguments printed. Raises RdmaImagesError with its complaint where it failed."""
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


def request(engine: Engine, method: str, path_and_query: str) -> Any:
    """Return what the engine's socket answers. Raises OSError where it has none here, or refuses."""
    kind, _, path = engine.host.partition("://")
    if kind != "unix":
        raise OSError(f"{engine.host} is no socket")
    return daemon_api.send(Path(path), method, path_and_query, SECONDS)


def remove_images(engine: Engine, *names: str) -> None:
    """Remove names of images, and the images without any other; what is in use or not there stays as it is."""
    for name in names:
        try:
            request(engine, "DELETE", f"/images/{quote(name, '/:@')}")
        except OSError:
            run(engine, "image", "rm", name)


def labelled(engine: Engine, *labels: str) -> list[str]:
    """Return the ids of the images with all labels, each "NAME" or "NAME=value".

    Raises RdmaImagesError where they cannot be known.
    """
    try:
        images = request(engine, "GET", f"/images/json?filters={quote(json.dumps({'label': labels}))}")
        return [str(image["Id"]) for image in images]
    except (OSError, LookupError, TypeError):
        return _list_labelled(engine, labels)


def _list_labelled(engine: Engine, labels: Sequence[str]) -> list[str]:
    filters = [f"--filter=label={label}" for label in labels]
    list_images = partial(output, engine, "image", "ls", "--no-trunc", "--quiet", *filters)
    for _ in range(3):
        try:
            return list_images().split()
        except RdmaImagesError as error:
            if "not found" not in str(error):  # Docker 28 fails so where somebody removes an image meanwhile
                raise
    return list_images().split()


def start(
    engine: Engine,
    *arguments: str,
    stdout: Stream,
    stderr: Stream,
    cwd: Path | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> subprocess.Popen[bytes]:
    """Return `docker` with these arguments, running; its output is bytes. `variables` are added to the environment."""
    return subprocess.Popen(
        words(*arguments),
        env={**engine.environ(), **variables},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
    )
