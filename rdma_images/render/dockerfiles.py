"""Render the Dockerfile of an image."""

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

import jinja2

from rdma_images import components
from rdma_images.components import erdma_apt, gpus
from rdma_images.core import paths, templates
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image, SourceBuild
from rdma_images.facts.fabric_software import EFA_INSTALLER as INSTALLER
from rdma_images.inputs.wheels import GLIBC, Lock, Tool
from rdma_images.plan import target_files
from rdma_images.render import wheel_layers

# The names that uv gives the platforms; glibc's version is the one that the locks are made for.
UV_PLATFORM = {
    "linux/amd64": f"x86_64-manylinux_{GLIBC.replace('.', '_')}",
    "linux/arm64": f"aarch64-manylinux_{GLIBC.replace('.', '_')}",
}

# A heredoc whole, and the empty line after it: hadolint reads it only before one.
HEREDOC = re.compile(r"(<<'?(\w+)'?[^\n]*\n.*?^\2\n)\n?", re.DOTALL | re.MULTILINE)
PROGRAMS = "/opt/venv/bin"  # first on every PATH
FABRIC_STAGES = (INSTALLER, erdma_apt.NAME)


def render(image: Image, lock: Lock, toolkit: Lock, tools: Mapping[str, Tool]) -> str:
    """Return the Dockerfile of an image; the same image and locks give the same text.

    Args:
        toolkit: The wheels that compile for it.

    Raises:
        RefusedError: The target's template or a stage of it is missing.
        RdmaImagesError: A template cannot be read or names what does not exist.
    """
    if problem := target_files.template_problem(image):
        raise RefusedError(problem)
    with templates.template_errors(f"target {image.target}"):
        target = template_environment().get_template(f"targets/{image.template}.j2")
        body = target.render(stages=_Stages(image, lock, toolkit, tools))
    return _header(image) + HEREDOC.sub(r"\1\n", body.strip("\n") + "\n").rstrip("\n") + "\n"


class _Stages:
    """The function `stages` of a target's template, with the values of all stages."""

    def __init__(self, image: Image, lock: Lock, toolkit: Lock, tools: Mapping[str, Tool]) -> None:
        # What a target's template need not name: a stage, and those that it may follow.
        self.parts: dict[str, tuple[str, ...]] = {
            component.name: component.stage_after
            for component in components.ALL
            if component.stage_after and component.name in image.components
        }
        self.parts |= dict.fromkeys(image.stages, FABRIC_STAGES)
        if lock.sources and not image.onto:
            self.parts["source-packages"] = ("wheels",)
        programs = [folder for part in image.components.values() for folder in part.details.program_folders]
        self.context: dict[str, Any] = {
            "version": image.version,
            "details": lambda name: image.components[name].details,
            "has": image.components.__contains__,
            "axis": image.axes.__getitem__,
            "programs": list(dict.fromkeys([PROGRAMS, *programs])),  # before the system's on the PATH
            "variables": image.environment,
            "debian_packages": image.debian_packages,
            "wheel_layers": wheel_layers.wheel_layers(lock),
            "sources": lock.sources,
            "source_layers": wheel_layers.source_layers(lock),
            "source_builds": defaultdict(SourceBuild, image.source_builds),
            "source_architectures": [gpus.compute_capability(name) for name in image.source_architectures],
            "toolkit": toolkit,
            "tools": tools,
            "uv_platform": UV_PLATFORM[image.platform],
            "text": _text,
            "additions": image.additions,
            "onto": image.onto,
        }

    def __call__(self, *names: str) -> str:
        """Return the stages, each FROM the one before, without empty ones; the last is `image`.

        After those of the template come the preflight of jobs, in every image, and what is the user's.
        """
        if self.context["onto"] is None and "wheels" not in names:
            raise RefusedError(
                "the target's template has no stage wheels, which installs the Python packages\n"
                'add "wheels" to it, after "python" and the fabric'
            )
        for name, anchors in self.parts.items():
            names = _inserted(name, anchors, names)
        names = (*names, "preflight")
        if self.context["additions"]:
            names = (*names, "additions")
        texts = [template_environment().get_template("stages/builder.j2").render(self.context).strip("\n")]
        previous = "base"
        for name in names:
            stage = "image" if name == names[-1] else f"with-{name}"
            template = template_environment().get_template(f"stages/{name}.j2")
            if text := template.render(self.context, previous=previous, stage=stage).strip("\n"):
                texts.append(text)
                previous = stage
        return "\n\n".join(texts)


def _inserted(name: str, anchors: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stages with one more, after the first of `anchors` that is there, else last; as they are with it."""
    if name in names:
        return names
    place = next((names.index(stage) + 1 for stage in anchors if stage in names), len(names))
    return (*names[:place], name, *names[place:])


def _header(image: Image) -> str:
    versions = ""
    for component in image.components.values():
        decided_by = "" if component.decided_by in ("matrix", "--set") else f", by {component.decided_by}"
        versions += f"#   {component.name} {component.version}{decided_by}\n"
    return (
        f"# {image.id}\n"
        f"# Rendered from dockerfiles/targets/{image.template}.j2; a change belongs there, or into matrix.yaml.\n"
        f"{versions}\n"
    )


@cache
def template_environment() -> jinja2.Environment:
    """Return the templates of Dockerfiles, the user's over the project's."""
    return templates.environment(paths.data_folders("dockerfiles"))


@cache
def _text(name: str) -> str:
    return paths.find_data(f"dockerfiles/{name}").read_text(encoding="utf-8").rstrip("\n")
