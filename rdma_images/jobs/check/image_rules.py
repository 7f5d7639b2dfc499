"""Rules on a job's image: its digest, and the plugins that variables look for in it."""

import re
from collections.abc import Collection, Iterator

from rdma_images.jobs import image_reports
from rdma_images.jobs.check.job_part import JobPart
from rdma_images.jobs.check.rule import CheckContext, Problem, is_placeholder, rule
from rdma_images.validate.probes.tree import LISTED_NAME

FILE = re.compile(r"[./].*|.*\.sqsh")  # an image that enroot has imported
PLUGINS = (("NCCL_NET_PLUGIN", "libnccl-net"), ("NCCL_TUNER_PLUGIN", "libnccl-tuner"))
REMOVE_PLUGIN = "remove it: NCCL finds the image's own plugin by itself"


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
    "plugin.missing", "error", "NVIDIA/nccl, src/plugin/plugin_open.cc; awsome-distributed-ai pull requests 878 and 936"
)
def missing_plugin(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a plugin that a variable names and the image's report does not have, or that no report shows."""
    image = part.image
    if not image or is_placeholder(image.text):
        return
    libraries = image_reports.libraries(image.text)
    for variable, prefix in PLUGINS:
        word = part.environment.get(variable)
        names = [name for name in word.text.split(",") if name and name.lower() != "none"] if word else []
        tried = [file for name in names for file in plugin_files(name, prefix)]
        if not word or not tried:
            continue
        if libraries is None and is_path_in_image(word.text, context):
            message = (
                f"{variable}={word.text}: the path is that of one build of the plugin, and nothing shows that the "
                "image has it there; without the file NCCL goes on without the plugin"
            )
            yield Problem(word, message, REMOVE_PLUGIN, "warning")
        elif libraries is not None and not any(_may_contain(file, context, libraries) for file in tried):
            plugins = sorted(path for path in libraries if "/libnccl-" in path)
            listed = f"it has {', '.join(plugins)}" if plugins else "it has no plugin"
            message = f"{variable}={word.text}: {' or '.join(tried)} is not in the image; {listed}"
            yield Problem(word, message, REMOVE_PLUGIN)


def is_path_in_image(value: str, context: CheckContext) -> bool:
    """Return whether a value is the path of a file that the image would have to have."""
    is_mounted = value.startswith(tuple(f"{mount.rstrip('/')}/" for mount in context.mounts))
    return value.startswith("/") and not is_mounted and not is_placeholder(value)


def plugin_files(word: str, prefix: str) -> list[str]:
    """Return the files that NCCL opens for a word of its variable."""
    is_composed = "/" not in word and not (word.startswith("lib") and word.endswith(".so"))
    return [word, f"{prefix}-{word}.so"] if is_composed else [word]


def _may_contain(name: str, context: CheckContext, libraries: Collection[str]) -> bool:
    """Return whether the image or a volume may have it.

    A name that reports do not list, or that a shell completes, may be.
    """
    if "/" not in name:
        return any(path.rpartition("/")[2] == name for path in libraries)
    is_listed = LISTED_NAME.fullmatch(name.rpartition("/")[2]) is not None
    return not (is_listed and is_path_in_image(name, context)) or name in libraries or f"/usr{name}" in libraries
