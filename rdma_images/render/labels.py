"""Write the labels of an image, readable with `docker inspect`."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from rdma_images.core import paths
from rdma_images.core.image import LABEL_PREFIX, PACKAGE_ORIGIN, Image
from rdma_images.inputs.wheels import Lock

# The paths that decide an image's bytes. The last commit that changed one of them is the image's revision, so that a
# commit to the documents changes no image.
INPUTS = ("dockerfiles", "locks", "facts", "matrix.yaml", "rdma_images")
DIRTY = "-dirty"  # ends the commit of a revision with uncommitted changes


@dataclass(frozen=True)
class Revision:
    """The state of the sources that an image is made from."""

    commit: str  # hash, with DIRTY where uncommitted changes are in; "unknown" outside a git checkout
    time: int  # of the commit, seconds since 1970; the image's "created"
    repository: str | None  # the address of the remote `origin`; None where there is none


def project_revision() -> Revision:
    """Return the state of this checkout's inputs, from git."""
    last_commit = _git("log", "-1", "--format=%H %ct", "--", *INPUTS)
    if not last_commit:
        return Revision("unknown", 0, None)
    commit, time = last_commit.split()
    dirty = DIRTY if _git("status", "--porcelain", "--", *INPUTS) else ""
    return Revision(commit + dirty, int(time), _git("remote", "get-url", "origin") or None)


def image_labels(
    image: Image, summary: str, revision: Revision, stand_ins: Sequence[str], lock: Lock | None = None
) -> dict[str, str]:
    """Return the labels of an image.

    Args:
        summary: What it is for.
        revision: The state of its sources.
        stand_ins: The ids of the sources that stand-ins replaced; the label `rehearsal` names them.
        lock: Its wheels; a label for each that is not the public index's says where it is from.
    """
    parts = image.components.values()
    own_labels = {
        "target": image.target,
        "image-id": image.id,
        "fabric": image.fabric,
        "fallback": image.axes["fallback"],
        **{f"component.{c.name}": c.version for c in parts},
        **{f"requires.{r.name}": f">={r.at_least}" for r in image.requirements},
        **{f"{c.name}.{suffix}": words for c in parts for suffix, words in c.details.labels.items()},
        **{f"run.{setting.name}": setting.value for setting in image.run_settings},
        **{f"limit.{limit.name}": f"{limit.feature}: {limit.why}; {limit.fix}" for limit in image.limitations},
    }
    for wheel in lock.wheels if lock else ():
        if wheel.origin:
            own_labels[f"{PACKAGE_ORIGIN}.{wheel.name}"] = wheel.origin
    if stand_ins:
        own_labels["rehearsal"] = ",".join(sorted(stand_ins))
    prefixed = {f"{LABEL_PREFIX}.{key}": value for key, value in own_labels.items()}
    all_labels = _oci_labels(image, summary, revision) | prefixed
    return dict(sorted((all_labels | (image.additions.labels if image.additions else {})).items()))


def _oci_labels(image: Image, summary: str, revision: Revision) -> dict[str, str]:
    """Return the labels of the OCI's image specification."""
    oci = {
        "title": image.target,
        "description": summary,
        "version": image.tag,
        "revision": revision.commit,
        "base.name": image.onto.base.ref.partition("@")[0] if image.onto else image.axes["base"],
    }
    if image.onto:
        oci["base.digest"] = image.onto.base.digest
    if revision.repository:
        oci["source"] = revision.repository
    return {f"org.opencontainers.image.{key}": value for key, value in oci.items()}


def _git(*arguments: str) -> str:
    """Return the output of git; empty where git is not installed or this is no checkout."""
    try:
        process = subprocess.run(
            ["git", "-C", str(paths.PROJECT), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""
