"""All that is known of one image when its validators run: what is expected, its configuration, the measurements."""

import posixpath
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from rdma_images.core.image import LABEL_PREFIX, machine_name
from rdma_images.core.plain import plain
from rdma_images.facts import gpu_software
from rdma_images.inspection.measurements import Files, Libraries, MappedNccl, Measured
from rdma_images.inspection.values import MeasuredValue

# The driver's own libraries: mounted into a container by the runtime, in no image.
DRIVER_LIBRARIES = frozenset({"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"})
NCCL_WHEEL_PATH = "-packages/nvidia/nccl/lib/libnccl.so.2"
# glibc's elf/dl-version.c and elf/dl-lookup.c, and probes that read the files of an image in its place.
NO_VERSION = re.compile(
    r"(?P<file>/[^\s:]+): version `(?P<version>[\w.]+)' not found \(required by (?P<asker>[^)\s]+)\)"
)
NO_SYMBOL = re.compile(r"(?:[^\s:]+: )?(?P<asker>/[^\s:]+): undefined symbol: (?P<symbol>\w+).*")
NO_SYMBOL_OF_A_FILE = re.compile(r"(?:[^\s:]+: )?undefined symbol: (?P<symbol>\w+) \((?P<asker>[^)\s]+)\)")


class HistoryStep(MeasuredValue):
    """One step of the image's history: what made it, and the bytes it added."""

    made_by: str
    bytes: int


class InstalledNccl(NamedTuple):
    """An NCCL of the image: its path, and its version, "" where that is not known."""

    path: str
    version: str


class ImageConfig(MeasuredValue):
    """An image's configuration.

    `digest` identifies its content: of the manifest where the engine keeps one, else of the configuration.
    """

    ref: str
    digest: str
    platform: str
    labels: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    user: str = ""
    entrypoint: list[str] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)
    bytes: int = 0
    created: str = ""
    layers: list[str] = Field(default_factory=list)  # digests of the uncompressed layers, lowest first
    history: list[HistoryStep] = Field(default_factory=list)  # oldest first
    workdir: str = ""  # in which the entry point begins; "" where it is not known

    def label(self, name: str) -> str | None:
        """Return the value of the label `name` below our prefix; None where the image lacks it."""
        return self.labels.get(f"{LABEL_PREFIX}.{name}")

    @property
    def machine(self) -> str:
        """Return the machine as ELF files name it, "x86_64"; "" where it is not known."""
        architecture = self.platform.partition("/")[2].partition("/")[0]
        return machine_name(self.platform) or architecture

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """Return the ids of the sources that stand-ins replaced."""
        return tuple(filter(None, plain(self.label("rehearsal") or "").split(",")))


class Expected(MeasuredValue):
    """The expectations of an image.

    `fabric` is None for an image that is not for either fabric; `reason` says how that is known. `components` are the
    versions of the matrix, empty for an image that was not planned here. `instance` is the instance type that was asked
    for, "" for none; `requested_fabric` is the fabric that it or --fabric asks for, "none" for no fabric.
    """

    fabric: Literal["efa", "erdma"] | None
    reason: str
    target: str | None = None
    components: dict[str, str] = Field(default_factory=dict)
    instance: str = ""
    requested_fabric: str = ""


class Inspection(MeasuredValue):
    """One image and everything that is known about it; the input of every validator."""

    subject: ImageConfig
    expected: Expected
    measured: Measured

    def stand_in_id(self, source: str) -> str | None:
        """Return what stood in for `source`, in the version that the labels give it; None where it is the real one."""
        source_id = f"{source}-{self.subject.label(f'component.{source}')}"
        return source_id if source_id in self.subject.stand_ins else None

    def libraries_named(self, name: str) -> list[str]:
        """Return the files, without links, called `name`, or `name` and a version."""
        tree = self.measured.tree
        pattern = re.compile(re.escape(name) + r"(\.\d+)*")
        files = tree.files.library_files if tree else {}
        return sorted(p for p, f in files.items() if not f.target and pattern.fullmatch(base_name(p)))


def describe_missing_libraries(inspection: Inspection, names: Sequence[str]) -> str:
    """Return the names of missing libraries, with the folder where one lies."""
    tree = inspection.measured.tree
    readable = sorted(path for path, file in tree.files.library_files.items() if not file.condition) if tree else []
    path = next((path for name in names for path in readable if base_name(path) == name and "/stubs/" not in path), "")
    if not path:
        similar = next((base_name(path) for name in names for path in readable if _is_another_release(path, name)), "")
        return ", ".join(names) + (f" (the image has {similar})" if similar else "")
    library, folder = "it" if len(names) == 1 else base_name(path), posixpath.dirname(path)
    settings = inspection.measured.settings
    listed = settings.loader_folders.get(folder, "") if settings else ""
    why = f"{listed} names the folder, and ldconfig has not run since" if listed else "and is not searched"
    return f"{', '.join(names)} ({folder} has {library}{':' if listed else ','} {why})"


def _is_another_release(path: str, library: str) -> bool:
    """Return whether the library at `path` is `library` with another number.

    As libmpi.so.40 is of libmpi.so.12.
    """
    stem, suffix, _ = library.partition(".so.")
    return bool(suffix) and re.fullmatch(re.escape(stem + suffix) + r"\d+(?:\.\d+)?", base_name(path)) is not None


def explain_refusal(error: str) -> str:
    """Return the words of glibc's loader as a sentence that names the file at fault."""
    if match := NO_VERSION.search(error):
        age = "of another rdma-core" if match["version"].startswith("IBVERBS_PRIVATE") else "older"
        return f"{match['asker']} cannot be loaded: it needs {match['version']}, and {match['file']} is {age}"
    if match := NO_SYMBOL.fullmatch(error) or NO_SYMBOL_OF_A_FILE.fullmatch(error):
        return f"{match['asker']} cannot be loaded: its libraries have no {match['symbol']}"
    return error


def base_name(path: str) -> str:
    """Return the last step of a path inside the image."""
    return path.rstrip("/").rpartition("/")[2]


def mapped_nccl(inspection: Inspection) -> MappedNccl | None:
    """Return the libnccl that `import torch` maps; None where it maps none.

    Where it maps several, the one that is not the wheel's: it was loaded first, and its symbols win.
    """
    torch = inspection.measured.torch
    libraries = torch.nccl if torch else []
    return next((nccl for nccl in libraries if not nccl.path.endswith(NCCL_WHEEL_PATH)), next(iter(libraries), None))


def wheel_nccl(libraries: Libraries) -> str | None:
    """Return the libnccl of the NVIDIA wheel, by its path; None where no wheel brought one."""
    return next(
        (path for path, file in libraries.nccl.items() if path.endswith(NCCL_WHEEL_PATH) and not file.error), None
    )


def same_nccl(libraries: Libraries, first: str, second: str) -> bool:
    """Return whether both files are NCCL, of one version and CUDA."""
    banners = [file.banner for path in (first, second) if (file := libraries.nccl.get(path))]
    return len(banners) == 2 and banners[0] == banners[1]


def second_nccl(libraries: Libraries, in_use: str) -> str:
    """Return an NCCL of another build that the loader finds; "" where it finds none."""
    file = libraries.resolved["libnccl.so.2"].file
    return "" if file in ("", in_use) or same_nccl(libraries, in_use, file) else file


def nccl_wheels(inspection: Inspection) -> dict[str, str]:
    """Return the NCCL wheels that are installed: name -> version."""
    packages = inspection.measured.packages
    folders = packages.wheels.values() if packages else ()
    return {
        name: version
        for folder in folders
        for name, version in folder.items()
        if gpu_software.WHEEL_NAME.fullmatch(name)
    }


def resolve_links(files: Files, path: str) -> str:
    """Return the file behind a library's links."""
    for _ in files.library_files:
        file = files.library_files.get(path)
        if not file or not file.target:
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), file.target))
    return path


def preloaded_nccl(inspection: Inspection) -> str | None:
    """Return the libnccl that LD_PRELOAD of the image names, which every process takes; None where it names none."""
    tree, words = inspection.measured.tree, re.split(r"[:\s]+", inspection.subject.environment.get("LD_PRELOAD", ""))
    files = [resolve_links(tree.files, word) for word in words] if tree else []
    return next((file for file in files if tree and file in tree.libraries.nccl), None)


def linked_nccl(libraries: Libraries) -> str:
    """Return the libnccl that torch's own library gets from the loader; "" for none."""
    linked = [c for path, c in libraries.closures.items() if base_name(path).startswith("libtorch_cuda")]
    files = [closure.libraries.get("libnccl.so.2", "") for closure in linked]
    return next((file for file in files if file in libraries.nccl), "")


def nccl_in_use(inspection: Inspection) -> InstalledNccl | None:
    """Return the NCCL that a training process will use; None where the image has none.

    It is the one that torch maps, else a preloaded one, the one that torch's library gets, the wheel's, the one in
    torch's own library, the loader's; else, as of conda, the only one in the image.
    """
    mapped = mapped_nccl(inspection)
    if mapped:
        return InstalledNccl(mapped.path, mapped.version)
    tree = inspection.measured.tree
    if not tree:
        return None
    readable = [path for path, file in tree.libraries.nccl.items() if not file.error]
    in_torch = next((path for path in readable if base_name(path).startswith("libtorch_cuda")), "")
    path = preloaded_nccl(inspection) or linked_nccl(tree.libraries) or wheel_nccl(tree.libraries) or in_torch
    path = path or tree.libraries.resolved["libnccl.so.2"].file
    path = path or (readable[0] if len(readable) == 1 else "")
    return InstalledNccl(path, tree.libraries.nccl[path].version) if path in readable else None


def cuda_in_use(inspection: Inspection, libraries: Libraries) -> str:
    """Return the CUDA of torch, else of the label, else of the NCCL that is in use; "" where nothing names it."""
    torch, nccl = inspection.measured.torch, nccl_in_use(inspection)
    nccl_cuda = libraries.nccl[nccl.path].cuda if nccl and nccl.path in libraries.nccl else ""
    return (torch.cuda if torch else "") or inspection.subject.label("component.cuda") or nccl_cuda


def missing_in(libraries: Libraries, path: str) -> list[str]:
    """Return the libraries that the loader does not find for `path`, but the driver's."""
    closure = libraries.closures.get(path)
    return [name for name in closure.missing if name not in DRIVER_LIBRARIES] if closure else []
