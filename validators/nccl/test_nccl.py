"""The NCCL of an image, and everything that names its version."""

import re
from collections.abc import Iterable

from packaging.version import Version

from rdma_images.core import versions
from rdma_images.core.check import Severity
from rdma_images.inspection.inspection import (
    Inspection,
    InstalledNccl,
    base_name,
    mapped_nccl,
    missing_in,
    nccl_in_use,
    nccl_wheels,
    preloaded_nccl,
    second_nccl,
    wheel_nccl,
)
from rdma_images.inspection.measurements import Files, ImportedTorch, Libraries, MeasuredPackages
from rdma_images.validate.validator import Requirement, skip, skip_unmeasured, validator
from validators.support.applies import in_tree
from validators.support.in_use import LIBNCCL, NO_LIBRARY, describe_lack, has_broken_file

NO_TORCH = "the image has no torch"  # why nothing was measured of it
LOADER_SOURCE = "ld.so(8): the order in which the dynamic loader searches"
WHEEL_SOURCE = "the wheels nvidia-nccl-cu12 and nvidia-nccl-cu13 install the same file, nvidia/nccl/lib/libnccl.so.2"
COMPILED_SOURCE = "torch/cuda/nccl.py: version() is a constant of the build, and does not notice what was loaded"
BANNER_SOURCE = (
    "the banner in libnccl: the version, and the CUDA that it was built with; NVIDIA/nccl, src/Makefile: "
    "CUDARTLIB ?= cudart_static, so that it needs no runtime of its own CUDA"
)
CUDA_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
CUPY_FOLDER = "/cupy_backends/"
PATHFINDER_CUPY = "14"  # cupy/_environment.py: it looks for NCCL with cuda-pathfinder, in site-packages first
NCCL_PACKAGES = frozenset({"libnccl2", "libnccl-dev", "libnccl", "libnccl-devel", "nccl"})
DECLARED_SOURCE = "an image says of itself what is in it, and nothing else"


def has_torch(inspection: Inspection) -> bool:
    """Return whether an image has torch; an import that failed is one that has it."""
    return inspection.measured.missing.get("torch") != NO_TORCH


def has_wheel_of_torch(inspection: Inspection) -> bool:
    """Return whether torch is there, and has its NCCL from a wheel."""
    return has_torch(inspection) and in_tree(lambda _, libraries: wheel_nccl(libraries))(inspection)


@validator("nccl.loaded", source=LOADER_SOURCE, when=has_wheel_of_torch)
def test_loaded(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """A process that imports torch maps the NCCL that was installed with it, or that the image's LD_PRELOAD names."""
    wheel, mapped = wheel_nccl(libraries), mapped_nccl(inspection)
    if not inspection.measured.torch:
        skip(inspection.measured.missing["torch"])
    required = preloaded_nccl(inspection) or wheel or ""
    require(
        mapped is not None and mapped.path == required,
        expected=required,
        actual="no libnccl is mapped after import torch"
        if not mapped
        else mapped.path
        if mapped.path == required
        else f"torch maps NCCL {mapped.version} at {mapped.path}, and not {required}",
        fix="remove the other libnccl, and what puts it first: LD_PRELOAD, /etc/ld.so.preload or LD_LIBRARY_PATH",
        severity=_severity(inspection),
    )


def _severity(inspection: Inspection) -> Severity:
    """Return the severity of another NCCL than the installed one.

    It is an error where a plan or a label says which it is.
    """
    return (
        "error"
        if inspection.expected.components.get("nccl") or inspection.subject.label("component.nccl")
        else "warning"
    )


def has_wheels(inspection: Inspection) -> bool:
    """Return whether an NCCL wheel is installed, or may be."""
    return inspection.measured.packages is None or bool(nccl_wheels(inspection))


@validator("nccl.version", source="ncclGetVersion() of the mapped file, and the wheel's metadata", when=has_wheels)
def test_version(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """The installed libnccl is the version that its wheel says."""
    if not inspection.measured.packages:
        skip_unmeasured(inspection, "packages")
    wheel, wheels, mapped = wheel_nccl(libraries), nccl_wheels(inspection), mapped_nccl(inspection)
    if not wheel or not wheels:
        skip("no NCCL wheel is installed")
    answered = mapped.version if mapped and mapped.path == wheel else libraries.nccl[wheel].version
    require(
        answered in wheels.values(),
        expected=" or ".join(f"{version} ({name})" for name, version in wheels.items()),
        actual=f"{wheel} is {f'NCCL {answered}' if answered else 'a file without a version'}"
        + ("" if answered in wheels.values() else f", and its wheel says {', '.join(wheels.values())}"),
        fix="the file was overwritten after the wheel was installed: install the wheel last",
        severity=_severity(inspection),
    )


@validator("nccl.compiled", source=COMPILED_SOURCE, severity="warning", when=has_torch)
def test_compiled(inspection: Inspection, torch: ImportedTorch, nccl: InstalledNccl, require: Requirement) -> None:
    """The NCCL in use is no older than the one torch was compiled against."""
    if not torch.compiled_nccl:
        skip("this torch was built without NCCL")
    chosen = inspection.expected.components.get("nccl")
    compiled, in_use = Version(torch.compiled_nccl), Version(nccl.version)
    newer = in_use >= compiled and in_use.major == compiled.major
    require(
        newer,
        expected=f"{torch.compiled_nccl} or later of the same major version"
        + (f" ({chosen} chosen)" if chosen else ""),
        actual=nccl.version
        if newer
        else f"NCCL {nccl.version} is in use, and torch was compiled with {torch.compiled_nccl}",
        fix=f"install the NCCL that torch {torch.version} asks for, or a later one",
    )


def _runtime_of_torch(libraries: Libraries) -> str:
    """Return the major version of the CUDA runtime that torch needs.

    "" where there is no torch, or one without CUDA.
    """
    torch_closures = [
        loaded for path, loaded in libraries.closures.items() if base_name(path).startswith("libtorch_cuda")
    ]
    names = [name for loaded in torch_closures for name in (*loaded.libraries, *loaded.missing)]
    return next((match.group(1) for name in names if (match := CUDA_RUNTIME.match(name))), "")


def _runtime_in_folder(inspection: Inspection, files: Files, libraries: Libraries) -> str:
    """Return the CUDA of NCCL's callers, else of the system's runtime; "" for several."""
    closures = [answer for path, answer in libraries.closures.items() if "/torch/lib/" not in path]
    callers = [answer for answer in closures if LIBNCCL in answer.libraries or LIBNCCL in answer.missing]
    names = [name for answer in callers for name in (*answer.libraries, *answer.missing)]
    names = names if any(map(CUDA_RUNTIME.match, names)) else [base_name(path) for path in files.library_files]
    majors = {match.group(1) for name in names if (match := CUDA_RUNTIME.match(name))}
    if len(majors) != 1:
        return ""
    (major,), stated = majors, inspection.subject.environment.get("CUDA_VERSION", "")
    return stated if stated.partition(".")[0] == major else major


@validator("nccl.cuda", source=BANNER_SOURCE, severity="warning")
def test_cuda(
    inspection: Inspection, files: Files, libraries: Libraries, nccl: InstalledNccl, require: Requirement
) -> None:
    """The NCCL in use is built for the image's CUDA: torch's, or the one that the label names.

    Of a torch that was not imported, the runtime that it needs says which CUDA it is for; without torch, that of the
    programs that call NCCL, or the only one of the system.
    """
    if len(nccl_wheels(inspection)) > 1:
        skip("there is more than one NCCL wheel: see nccl.wheels")
    torch = inspection.measured.torch
    declared = torch.cuda if torch else inspection.subject.label("component.cuda")
    needed = "" if torch else _runtime_of_torch(libraries) or _runtime_in_folder(inspection, files, libraries)
    cuda = declared or needed or skip("the image has no CUDA")
    library = libraries.nccl.get(nccl.path)
    if not library or not library.cuda:
        skip(f"{nccl.path} does not say its CUDA")
    built_for = library.cuda
    major = cuda.partition(".")[0]
    fits = built_for.partition(".")[0] == major
    require(
        fits,
        expected=f"for CUDA {major}, as {'the label says' if declared and not torch else 'what calls it is'}",
        actual=f"NCCL {library.banner} at {nccl.path} is built for CUDA {built_for}, and the image has CUDA {cuda}"
        f"{'' if fits else ': they do not mix'}",
        fix=f"install nvidia-nccl-cu{major} in its place",
    )


def is_planned(inspection: Inspection) -> bool:
    """Return whether a plan says which NCCL the image has."""
    return "nccl" in inspection.expected.components


@validator("nccl.matrix", source=DECLARED_SOURCE, when=is_planned)
def test_matrix(inspection: Inspection, nccl: InstalledNccl, require: Requirement) -> None:
    """The NCCL in use is the one that the matrix chose."""
    chosen = inspection.expected.components["nccl"]
    require(
        nccl.version == chosen,
        expected=chosen,
        actual=f"NCCL {nccl.version} is in use, at {nccl.path}, and {chosen} was planned"
        if nccl.version != chosen
        else nccl.version,
        fix="build the image again: what it holds is not what was planned",
    )


@validator("nccl.wheels", source=WHEEL_SOURCE, severity="warning", when=has_wheels)
def test_wheels(inspection: Inspection, packages: MeasuredPackages, require: Requirement) -> None:
    """No two NCCL wheels overwrite each other."""
    wheels = nccl_wheels(inspection)
    in_folders = [{name for name in folder if name in wheels} for folder in packages.wheels.values()]
    wheels = {name: wheels[name] for name in sorted(max(in_folders, key=len, default=wheels))}
    require(
        len(wheels) == 1,
        expected="one wheel of nvidia-nccl-cu*",
        actual=" and ".join(f"{name} {version}" for name, version in wheels.items())
        + (" write the same libnccl.so.2: the one that was installed last is there" if len(wheels) > 1 else ""),
        fix="uninstall both, then install the one of torch's CUDA: removing one alone also removes the other's file",
    )


@validator("nccl.loader", source=LOADER_SOURCE, severity="warning")
def test_loader(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl, require: Requirement) -> None:
    """A program that asks the loader for NCCL gets the same file as torch, or another of the same build."""
    answer = libraries.resolved["libnccl.so.2"]
    second = second_nccl(libraries, nccl.path)
    users = _users(inspection, libraries, second) if second else []
    banner = libraries.nccl[second].banner if second in libraries.nccl else ""
    torch_version = libraries.nccl[nccl.path].banner if nccl.path in libraries.nccl else nccl.version
    signs = ", ".join(
        [*_packages_of_nccl(inspection), *([f"NCCL_VERSION={v}"] if (v := _nccl_version_variable(inspection)) else [])]
    )
    require(
        not second,
        expected=f"{nccl.path}, or nothing",
        actual=f"{users[0] if users else 'what loads NCCL without torch'} takes NCCL {banner or 'of another build'} at "
        f"{second}, not torch's {torch_version}: both can crash"
        if second
        else answer.file or "nothing: only torch finds its own",
        fix=f"remove the other library{f' ({signs})' if signs else ''}, its ld.so.conf.d entry (then run ldconfig), "
        "or its folder from LD_LIBRARY_PATH",
        severity="note" if second and not users else None,
    )


def _users(inspection: Inspection, libraries: Libraries, nccl: str) -> list[str]:
    """Return the programs and libraries, beside torch's, that take this NCCL or have code for GPUs."""
    takers = [path for path, closure in libraries.closures.items() if closure.libraries.get(LIBNCCL) == nccl]
    others = ("/torch/lib/", *([CUPY_FOLDER] if _cupy_opens_wheels(inspection) else []))
    return [path for path in (*takers, *libraries.gpu_code) if not any(folder in path for folder in others)]


def _cupy_opens_wheels(inspection: Inspection) -> bool:
    """Return whether CuPy opens the wheel's NCCL before the loader is asked for one."""
    installed = inspection.measured.packages.installed if inspection.measured.packages else ()
    return any(name.startswith("cupy") and versions.at_least(version, PATHFINDER_CUPY) for name, version in installed)


def _packages_of_nccl(inspection: Inspection) -> list[str]:
    """Return name and version of each system package that brings NCCL."""
    packages = inspection.measured.packages
    version_by_package = {**packages.dpkg, **packages.rpm} if packages else {}
    return [f"{name} {version}" for name, version in version_by_package.items() if name in NCCL_PACKAGES]


def _nccl_version_variable(inspection: Inspection) -> str:
    """Return what NCCL_VERSION says in the image's environment."""
    return inspection.subject.environment.get("NCCL_VERSION", "")


@validator(
    "nccl.single",
    source="two libraries of one name: which one is loaded depends on who asks first",
    severity="warning",
    when=in_tree(lambda _, libraries: libraries.nccl),
)
def test_single(inspection: Inspection, libraries: Libraries, require: Requirement) -> None:
    """No libnccl is in the image but what torch or the loader takes."""
    mapped, wheel = mapped_nccl(inspection), wheel_nccl(libraries)
    in_use = nccl_in_use(inspection)
    # A copy that is loaded, or that the loader finds, has a check of its own.
    checked = {mapped and mapped.path, wheel, in_use and in_use.path, libraries.resolved["libnccl.so.2"].file}
    spare = [path for path in libraries.nccl if path not in checked]
    has_users = len(libraries.nccl) > len(spare)
    require(
        not spare or (len(spare) == 1 and not has_users),
        expected="one file",
        actual=f"{len(libraries.nccl)} NCCL; neither torch nor the loader takes {_with_version(libraries, spare)}"
        if spare and has_users
        else _with_version(libraries, libraries.nccl),
        fix=f"remove {', '.join(spare)}, or the package or wheel that brings it",
        severity="note" if spare and has_users else None,
    )


def _with_version(libraries: Libraries, paths: Iterable[str]) -> str:
    return ", ".join(f"{path} ({libraries.nccl[path].version or 'no version'})" for path in paths)


@validator("nccl.closure", source=LOADER_SOURCE)
def test_closure(inspection: Inspection, libraries: Libraries, nccl: InstalledNccl, require: Requirement) -> None:
    """Every library that NCCL needs is found."""
    missing = missing_in(libraries, nccl.path)
    if has_broken_file(inspection, libraries, *missing):
        skip(NO_LIBRARY)
    require(
        not missing,
        expected="nothing missing",
        actual=f"NCCL {nccl.version} cannot be loaded: {describe_lack(inspection, missing)}"
        if missing
        else f"{len(libraries.closures[nccl.path].libraries)} libraries found",
        fix=f"install the package that brings {', '.join(missing)}",
    )
