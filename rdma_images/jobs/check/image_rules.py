"""Rules on a job's image: its digest, and the plugins that variables look for in it."""

import re
from collections.abc import Iterator

from rdma_images.jobs.check.job_part import JobPart
from rdma_images.jobs.check.rule import CheckContext, Problem, is_placeholder, rule

FILE = re.compile(r"[./].*|.*\.sqsh")  # an image that enroot has imported
PLUGINS = ("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN")


@rule("image.tag", "warning", "kubernetes.io, Images: a tag can be moved while pods start")
def image_by_tag(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report an image by tag: nodes can run different bytes, and no evidence belongs to them."""
    if part.pod.is_service or not context.accelerated:
        return
    for image in part.images:
        if not is_placeholder(image.text) and not FILE.fullmatch(image.text) and "@sha256:" not in image.text:
            message = f"{image.text} has no digest: its tag can move while the job starts"
            yield Problem(image, message, "name the image by its digest, @sha256:…")


@rule(
    "plugin.missing",
    "warning",
    "NVIDIA/nccl, src/plugin/plugin_open.cc; awsome-distributed-ai pull request 878",
)
def plugin_by_path(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a plugin by a path that no volume brings: that of one build of an image."""
    if not part.image or is_placeholder(part.image.text):
        return
    for variable in PLUGINS:
        word = part.environment.get(variable)
        if word and is_path_in_image(word.text, context):
            message = (
                f"{variable}={word.text}: the path is that of one build of the plugin, and nothing shows that the "
                "image has it there; without the file NCCL goes on without the plugin"
            )
            yield Problem(word, message, "remove it: NCCL finds the image's own plugin by itself")


def is_path_in_image(value: str, context: CheckContext) -> bool:
    """Return whether a value is the path of a file that the image would have to have."""
    is_mounted = value.startswith(tuple(f"{mount.rstrip('/')}/" for mount in context.mounts))
    return value.startswith("/") and not is_mounted and not is_placeholder(value)
