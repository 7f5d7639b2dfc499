"""From an image to its Dockerfile."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

import jinja2

from rdma_images import layers, paths
from rdma_images.errors import RdmaImagesError, RefusedError
from rdma_images.facts import Facts
from rdma_images.facts.origin import Span
from rdma_images.model import Component, Image
from rdma_images.wheels import GLIBC, Lock, Tool

# The names that uv gives the platforms; glibc's version is the one that the locks are made for.
UV_PLATFORM = {
    "linux/amd64": f"x86_64-manylinux_{GLIBC.replace('.', '_')}",
    "linux/arm64": f"aarch64-manylinux_{GLIBC.replace('.', '_')}",
}

PROGRAMS = "/opt/venv/bin"  # first on every PATH


def render(image: Image, lock: Lock, toolkit: Lock, tools: Mapping[str, Tool], facts: Facts) -> str:
    """The Dockerfile of an image; the same image and locks give the same text.

    `lock` has the image's wheels, `toolkit` those that compile for it, `tools` the builder's own. Raises RefusedError
    when the target's template or a stage of it is missing, RdmaImagesError when one of them cannot be read or names
    what does not exist.
    """
    try:
        target = _environment().get_template(f"targets/{image.template}.j2")
        body = target.render(stages=_Stages(image, lock, toolkit, tools, facts))
    except jinja2.TemplateNotFound as error:
        raise RefusedError(
            f"{paths.DOCKERFILES / str(error.name)}: no such template, for target {image.target}"
        ) from None
    except jinja2.TemplateSyntaxError as error:
        raise RdmaImagesError(f"{error.filename}:{error.lineno}: {error.message}") from None
    except jinja2.UndefinedError as error:
        raise RdmaImagesError(f"the templates of target {image.target} ask for what is not there: {error}") from None
    return _header(image) + body.lstrip("\n")


class _Stages:
    """What a target's template calls with the names of its stages; knows what every stage template may use."""

    def __init__(self, image: Image, lock: Lock, toolkit: Lock, tools: Mapping[str, Tool], facts: Facts) -> None:
        base = facts.bases.bases[image.axes["base"]]
        self.context: dict[str, Any] = {
            "version": _version_of(image),
            "detail": _detail_of(image),
            "has": image.components.__contains__,
            "axis": image.axes.__getitem__,
            "programs": _programs(image),
            "variables": image.environment,
            "debian_packages": image.debian_packages,
            "base_removes": " ".join(base.remove),
            "base_sets": list(base.environment),
            # A base of files alone, without a toolkit and settings that the image must keep.
            "base_is_plain": base.cuda is None,
            "wheel_layers": layers.layers(lock),
            "sources": [wheel for wheel in lock.wheels if wheel.is_source],
            "toolkit": toolkit,
            "tools": tools,
            "uv_platform": UV_PLATFORM[image.platform],
            "text": _text,
            "installer_flags": _held(facts.efa.flags, image, "efa-installer"),
            "plugin_switches": _held(facts.plugin.configure, image, "aws-ofi-nccl"),
        }

    def __call__(self, *names: str) -> str:
        """Every stage on top of the one before; the last is called `image`. A stage that is empty is left out."""
        texts = [_environment().get_template("stages/builder.j2").render(self.context).strip("\n")]
        previous = "base"
        for name in names:
            stage = "image" if name == names[-1] else f"with-{name}"
            template = _environment().get_template(f"stages/{name}.j2")
            if text := template.render(self.context, previous=previous, stage=stage).strip("\n"):
                texts.append(text)
                previous = stage
        return "\n\n".join(texts)


Known = TypeVar("Known", bound=Span)


def _held(known: Iterable[Known], image: Image, component: str) -> list[Known]:
    """The rows that hold for the image's version of a component; none where it has none."""
    there = image.components.get(component)
    return [row for row in known if row.holds(there.version)] if there else []


def _programs(image: Image) -> list[str]:
    """The folders of programs that come before the system's on the PATH, each once."""
    brought = (folder for part in image.components.values() for folder in part.details.get("bin", "").split())
    return list(dict.fromkeys([PROGRAMS, *brought]))


def _version_of(image: Image) -> Any:
    def version(component: str) -> str:
        if component not in image.components:
            raise RdmaImagesError(f"a template of target {image.target} asks for {component}, which {image.id} has not")
        return image.version(component)

    return version


def _detail_of(image: Image) -> Any:
    def detail(component: str, name: str) -> str:
        return image.components[component].details[name]

    return detail


def _header(image: Image) -> str:
    versions = "".join(f"#   {c.name} {c.version}{_decided(c)}\n" for c in image.components.values())
    return (
        f"# {image.id}\n"
        f"# Rendered from dockerfiles/targets/{image.template}.j2; a change belongs there, or into matrix.yaml.\n"
        f"{versions}\n"
    )


def _decided(component: Component) -> str:
    """What decided a component, where that was another one: chosen in the matrix or by --set, it is the same image."""
    return "" if component.decided_by in ("matrix", "--set") else f", by {component.decided_by}"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.DOCKERFILES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


@cache
def _text(name: str) -> str:
    return (paths.DOCKERFILES / name).read_text(encoding="utf-8").rstrip("\n")
