"""The task that starts a container of an image: run."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context

from rdma_images.cli.parsing import after_dashes
from rdma_images.cli.verb import MANY, ONTO, verb, with_measured_base
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import progress
from rdma_images.inputs import project

if TYPE_CHECKING:  # importing it takes time that a plan does not need
    from rdma_images.engine.container_run import ContainerOptions

CONTAINER_HELP = {
    "target": "The target whose image to start; without it the only one of matrix.yaml.",
    "set": "axis=value: the image that was built with it; may be given more than once.",
    **ONTO,
    "image": "Any image in the engine, also one that was not built here.",
    "mount": "HOST:CONTAINER[:ro], a file or folder of this machine; may be given more than once.",
    "env": "NAME=VALUE, or NAME for its value here, which then is on no command line; may be given more than once.",
    "gpus": "all, none, how many, or device=0,1; without it all that there are.",
    "device": "A device of this machine, as /dev/fuse; may be given more than once.",
    "shell": "Open bash, or sh where there is none, in place of the image's entry point and command.",
}
REPEATABLE = (*MANY, "mount", "env", "device")


@verb(
    "run --target efa-pytorch -- python -c 'import torch; print(torch.__version__)'",
    "run --target efa-pytorch --mount ./src:/src:ro --env HF_TOKEN -- torchrun /src/train.py",
    "run --target efa-pytorch --shell",
    "run --image nvcr.io/nvidia/pytorch:25.10-py3 -- env",
    name="run",
    help=CONTAINER_HELP,
    iterable=REPEATABLE,
)
def run(
    _: Context,
    target: str = "",
    set: list[str] | None = None,
    onto: str = "",
    image: str = "",
    mount: list[str] | None = None,
    env: list[str] | None = None,
    gpus: str = "",
    device: list[str] | None = None,
    shell: bool = False,
) -> None:
    """Run a command in an image that was built, or open a shell.

    The command comes after --. It gets what `describe` says that the image needs, as far as this machine has it, and
    standard input. Its exit code is the task's, signals reach it, and its container is removed afterwards.
    """
    from rdma_images.engine.container_run import ContainerOptions

    words = after_dashes(sys.argv)
    if shell and words:
        raise RefusedError(f"--shell takes no command, and got {words[0]}\nleave out --shell, or the command")
    options = ContainerOptions(mount or (), env or (), gpus, device or (), shell=shell)
    _start(target, set, onto, image, options, words)


def _start(
    target: str, pairs: list[str] | None, onto: str, ref: str, options: "ContainerOptions", words: Sequence[str]
) -> None:
    """Become the container of an image; returns never, but by an error."""
    from rdma_images import engine, facts
    from rdma_images.build import built_image
    from rdma_images.engine import container_run, images

    if ref and (target or pairs or onto):
        raise RefusedError("--image names the image by itself\nleave out --target, --set and --onto, or --image")
    image = None
    if not ref:
        image = built_image.built_image(
            with_measured_base(project.load(), [target] if target else None, onto), target, pairs
        )
    running = engine.ensure(progress)
    if image:
        ref = images.built_image(image.build, running, image.build_command, progress)
    config = container_run.image_config(running, ref)
    if config is None:
        raise RefusedError(
            f"the engine has no image {ref}\nbuild it with `{COMMAND} build`, or `docker pull` it into this engine"
        )
    if not (words or options.shell or config.get("Cmd") or config.get("Entrypoint")):
        raise RefusedError(f"{ref} has no command of its own\nwrite one after --, or add --shell")
    settings = built_image.settings_by_label(config.get("Labels") or {}, facts.load())
    host = container_run.measure_host(running, settings)
    arguments = container_run.command_on_host(ref, settings, host, options, words, container_run.has_terminal())
    if missing := container_run.describe_omitted(settings, host, options):
        progress(f"runs without {missing}")
    container_run.exec_docker(running, arguments)
