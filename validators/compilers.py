"""What Python packages compile with where they run, and what of it an image lacks."""

import re
from collections.abc import Iterator, Mapping, Sequence

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.facts.faults import Compiling, CompilingPackage
from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files, MeasuredPackages, Programs
from rdma_images.validate.probes import programs as probe
from validators.settings import environments

MAX_NAMES = 3
C_COMPILERS = ("gcc", "clang")  # as Triton calls them
CXX_COMPILERS = {"c++", "g++", "clang++"}
# Variables that lead a compiler to other headers.
INCLUDE_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
SYSTEM_COMPILER = re.compile(r"/(?:usr/)?bin/(?:gcc|clang|cc)")


def image_variables(inspection: Inspection) -> dict[str, str]:
    """Return the image's variables, with all that its entry point may set."""
    entry_environment = {name: value for values in environments(inspection).values() for name, value in values.items()}
    return {**inspection.subject.environment, **started_environment(inspection), **entry_environment}


def compiling_packages(
    facts: Compiling, files: Files, packages: MeasuredPackages, environment: Mapping[str, str]
) -> Iterator[tuple[CompilingPackage, list[str]]]:
    """Yield rows of packages that compile, and the installed ones with versions.

    A package that requires Triton counts where no other of Triton's is there.
    """
    installed = dict(packages.installed)
    for row in facts.packages:
        folder = f"-packages/{row.unless_modules}"
        prebuilt = bool(row.unless_modules) and any(folder in path for path in files.libraries)
        if prebuilt or row.unless_beside in installed or row.is_avoided(environment):
            continue
        names = [name for name in row.packages if name in installed and row.holds(installed[name])]
        names = names or ([name for name in packages.needs_triton if name in installed] if row.triton else [])
        if names:
            yield row, [f"{name} {installed[name]}" for name in names[:MAX_NAMES]]


def missing_needs(
    needs: Sequence[str], programs: Programs, environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield each need that the image does not meet, and how that is said."""
    elsewhere = {base_name(path) for path in programs.elsewhere}
    conda = any(map(probe.CONDA_COMPILER.fullmatch, elsewhere))
    including = any(environment.get(name) for name in INCLUDE_VARIABLES)
    for need in needs:
        if need == "c" and not environment.get("CC") and not conda:
            compiler = next((programs.compilers[name] for name in C_COMPILERS if name in programs.compilers), "")
            if not compiler and not elsewhere & {*C_COMPILERS, "cc"}:
                yield "c", "no C compiler (gcc, clang or CC)"
            elif compiler and SYSTEM_COMPILER.fullmatch(compiler) and "stdlib.h" not in programs.headers:
                yield "stdlib.h", f"no stdlib.h for {compiler}"
        elif need == "Python.h":
            if programs.python_headers and not including and not any(programs.python_headers.values()):
                yield "Python.h", f"no Python.h in {', '.join(programs.python_headers)}"
        elif need == "c++" and not environment.get("CXX") and not conda:
            if not {*programs.compilers, *elsewhere} & CXX_COMPILERS:
                yield "c++", "no C++ compiler (c++ or CXX)"
        elif need == "ninja" and need not in programs.compilers:
            ninja = next((path for path in programs.elsewhere if base_name(path) == "ninja"), "")
            yield "ninja", f"no ninja on PATH, but {ninja}" if ninja else "no ninja"
        elif need == "nvcc" and not programs.nvcc:
            yield "nvcc", _without_nvcc(programs, environment)
        elif need == "nvcc" and not programs.cicc:
            yield "cicc", f"no {programs.cuda_home}/nvvm/bin/cicc for nvcc"
        elif need.endswith(".h") and programs.nvcc and need not in programs.headers and not including:
            where = f"no {need} in {programs.cuda_home}/include"
            yield (
                ("toolkit", f"no {need}: {programs.nvcc} is of {programs.toolkit}")
                if programs.toolkit
                else (need, where)
            )


def _without_nvcc(programs: Programs, environment: Mapping[str, str]) -> str:
    """Return where nvcc was looked for, and where it is instead."""
    nvcc = next((path for path in programs.elsewhere if base_name(path) == "nvcc"), "")
    variable = next((name for name in ("CUDA_HOME", "CUDA_PATH") if environment.get(name)), "")
    if variable:
        return f"no bin/nvcc in {variable}={environment[variable]}"
    if nvcc:
        return f"no nvcc by CUDA_HOME or PATH, but {nvcc}"
    return f"no {programs.cuda_home}/bin/nvcc" if programs.cuda_home else "no nvcc"
