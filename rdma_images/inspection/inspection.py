"""All that is known of one image when its validators run: what is expected, what the engine says, what was measured."""

import posixpath
import re
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from rdma_images.core.pipeline import LABEL_PREFIX
from rdma_images.core.plain import plain
from rdma_images.inspection.measurements import Files, Libraries, MappedNccl, Measured
from rdma_images.inspection.values import Value

# The driver's own libraries: mounted into a container by the runtime, in no image.
OF_THE_DRIVER = frozenset({"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"})
WHEEL = "-packages/nvidia/nccl/lib/libnccl.so.2"
NCCL_WHEEL = re.compile(r"nvidia-nccl-cu(\d+)")


class Step(Value):
    """One step of the image's history: what made it, and the bytes it added."""

    made_by: str
    bytes: int


class Subject(Value):
    """An image as its configuration describes it.

    `digest` identifies its content: of the manifest where the engine keeps one, else of the configuration.
    """

    ref: str
    digest: str
    platform: str
    labels: dict[str, str]
    environment: dict[str, str]
    user: str
    entrypoint: list[str]
    tags: list[str]
    bytes: int
    created: str
    layers: list[str]  # digests of the uncompressed layers, lowest first
    history: list[Step]  # oldest first

    def label(self, name: str) -> str | None:
        """A label of ours, by what follows the prefix."""
        return self.labels.get(f"{LABEL_PREFIX}.{name}")

    @property
    def machine(self) -> str:
        """The machine of its platform as ELF files call it, such as "x86_64"; "" where it is not known."""
        architecture = self.platform.partition("/")[2].partition("/")[0]
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(architecture, architecture)

    @property
    def rehearsal(self) -> tuple[str, ...]:
        """The ids of the sources that stand-ins replaced."""
        return tuple(filter(None, plain(self.label("rehearsal") or "").split(",")))


class Expected(Value):
    """What the image is meant to be.

    `fabric` is None for an image that is not for either fabric; `because` says how that is known. `components` are the
    versions of the matrix, empty for an image that nobody here planned.
    """

    fabric: Literal["efa", "erdma"] | None
    because: str
    target: str | None = None
    components: dict[str, str] = Field(default_factory=dict)


class Case(Value):
    """One image and everything that was found out about it; the input of every validator."""

    subject: Subject
    expected: Expected
    measured: Measured

    def stands_in(self, source: str) -> str | None:
        """What stood in for `source`, in the version that the labels give it; None where it is the real one."""
        wanted = f"{source}-{self.subject.label(f'component.{source}')}"
        return wanted if wanted in self.subject.rehearsal else None

    def libraries_named(self, name: str) -> list[str]:
        """The real files (links followed by their own name) called `name`, or `name` and a version."""
        tree = self.measured.tree
        wanted = re.compile(re.escape(name) + r"(\.\d+)*")
        files = tree.files.libraries if tree else {}
        return sorted(p for p, f in files.items() if not f.target and wanted.fullmatch(name_of(p)))


def name_of(path: str) -> str:
    """The last step of a path inside the image."""
    return PurePosixPath(path).name


def mapped_nccl(case: Case) -> MappedNccl | None:
    """The libnccl that `import torch` maps, None where there is no torch or it maps none.

    Where it maps several, the one that is not the wheel's: it was there first, and its symbols win.
    """
    torch = case.measured.torch
    found = torch.nccl if torch else []
    return next((nccl for nccl in found if not nccl.path.endswith(WHEEL)), next(iter(found), None))


def wheel_nccl(libraries: Libraries) -> str | None:
    """The libnccl of the NVIDIA wheel, by its place; None where no wheel brought one."""
    return next((path for path, about in libraries.nccl.items() if path.endswith(WHEEL) and not about.error), None)


def same_nccl(libraries: Libraries, one: str, other: str) -> bool:
    """Whether both files are NCCL, of one version and CUDA."""
    found = [about.banner for path in (one, other) if (about := libraries.nccl.get(path))]
    return len(found) == 2 and found[0] == found[1]


def nccl_wheels(case: Case) -> dict[str, str]:
    """The NCCL wheels that are installed: name -> version."""
    packages = case.measured.packages
    folders = packages.wheels.values() if packages else ()
    return {name: version for folder in folders for name, version in folder.items() if NCCL_WHEEL.fullmatch(name)}


def file_of(files: Files, path: str) -> str:
    """The file behind a library's links."""
    for _ in files.libraries:
        about = files.libraries.get(path)
        if not about or not about.target:
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), about.target))
    return path


def preloaded_nccl(case: Case) -> str | None:
    """The libnccl that LD_PRELOAD of the image names, which every process takes; None where it names none."""
    tree, words = case.measured.tree, re.split(r"[:\s]+", case.subject.environment.get("LD_PRELOAD", ""))
    files = [file_of(tree.files, word) for word in words] if tree else []
    return next((file for file in files if tree and file in tree.libraries.nccl), None)


def nccl_in_use(case: Case) -> tuple[str, str] | None:
    """Path and version of the NCCL that a training process will use.

    It is torch's, else a preloaded one, the wheel's, the loader's; else, as of conda, the only one that is there.
    """
    mapped = mapped_nccl(case)
    if mapped:
        return mapped.path, mapped.version
    tree = case.measured.tree
    if not tree:
        return None
    whole = [path for path, about in tree.libraries.nccl.items() if not about.error]
    found = preloaded_nccl(case) or wheel_nccl(tree.libraries) or tree.libraries.resolved["libnccl.so.2"].file
    found = found or (whole[0] if len(whole) == 1 else "")
    return (found, tree.libraries.nccl[found].version) if found in whole else None


def cuda_in_use(case: Case, libraries: Libraries) -> str:
    """The CUDA of torch, else of the label, else of the NCCL that is in use; "" where nothing says."""
    torch, nccl = case.measured.torch, nccl_in_use(case)
    own = libraries.nccl[nccl[0]].cuda if nccl and nccl[0] in libraries.nccl else ""
    return (torch.cuda if torch else "") or case.subject.label("component.cuda") or own


def missing_in(libraries: Libraries, path: str) -> list[str]:
    """The names that nothing answers to when the loader maps `path`, without the driver's."""
    closure = libraries.closures.get(path)
    return [name for name in closure.missing if name not in OF_THE_DRIVER] if closure else []
