"""Whether an image runs on an instance type."""

from collections.abc import Iterator
from dataclasses import replace

from rdma_images.components import cuda, gpus
from rdma_images.components.nccl_tests import GPU
from rdma_images.core import versions
from rdma_images.core.image import FABRIC_TITLES, Image
from rdma_images.facts import Facts
from rdma_images.plan.refusals import Plan


def problems(image: Image, name: str, facts: Facts) -> Iterator[str]:
    """Yield why an image does not run on the instance type `name`, each with what to do.

    Raises RefusedError for a type that is not known.
    """
    node = facts.instances.find(name)
    if node.fabric != image.fabric:
        yield (
            f"{name} has {FABRIC_TITLES[node.fabric]}, and {image.target} is for {FABRIC_TITLES[image.fabric]}\n"
            f"choose another --instance, or a target for {FABRIC_TITLES[node.fabric]}"
        )
        return
    if image.platform != f"linux/{node.architecture}":
        yield (
            f"{name} is {node.architecture}, and {image.target} is for {image.platform}\n"
            f"add --set platform=linux/{node.architecture}"
        )
    if not node.gpu or cuda.NAME not in image.components:
        return
    capability, version = facts.gpus.gpus[node.gpu].capability, image.version(cuda.NAME)
    able = gpus.compiler_capabilities(version, facts)
    has = f"{name} has {node.gpu} ({gpus.architecture_name(capability)})"
    if able and not versions.at_least(capability, min(able, key=versions.sort_key)):
        yield f"{has}, which CUDA {version} of {image.target} does not run on\nchoose another --instance"
    code = image.axes.get(GPU, gpus.ALL_GPUS)
    if code != gpus.ALL_GPUS and not gpus.runs_on_any(code, [name], facts):
        yield f"{has}, and {image.target} is compiled for {code}\nleave out --set gpu={code}"


def restrict_plan(plan: Plan, name: str, are_named: bool, facts: Facts) -> tuple[Plan, list[str]]:
    """Return the plan of the images that run on an instance type, and why the others do not.

    Images whose targets `are_named` stay in it, and so do all where none runs there. Raises as `problems` does.
    """
    misfits = {image.id: [*problems(image, name, facts)] for image in plan.images}
    fitting = tuple(image for image in plan.images if not misfits[image.id])
    if fitting and not are_named:
        return replace(plan, images=fitting), []
    return plan, [reason for reasons in misfits.values() for reason in reasons]


def description(name: str, facts: Facts) -> str:
    """Return the hardware of an instance type in one line."""
    node = facts.instances.find(name)
    gpu = f"{node.gpus} {node.gpu or 'GPUs'} of {node.gpu_memory} GiB"
    return f"on {name}: {gpu}, {node.interfaces} {FABRIC_TITLES[node.fabric]} interfaces, {node.architecture}"
