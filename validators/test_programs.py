"""The programs that an image starts, and those that its packages need to compile where they run."""

import re
from collections.abc import Sequence

import pytest

from rdma_images.facts import facts_file
from rdma_images.facts.faults import Compiling
from rdma_images.inspection.inspection import Inspection, base_name
from rdma_images.inspection.measurements import Files, MeasuredPackages, Programs, Settings, StartedProgram
from rdma_images.validate.probes import programs as probe
from rdma_images.validate.pytest_plugin import Requirement
from validators.compilers import compiling_packages, image_variables, missing_needs

START_SOURCE = (
    "execve(2): what the kernel starts; the shells' exec, and Python, say the same of a file that they are given"
)
INTERPRETER_SOURCE = "execve(2): a script whose interpreter is not there is not started, whatever else lies beside it"
COMPILING_SOURCE = "facts/compiling.yaml, each row with its source"
ENTRY_POINT_SOURCE = (
    "the image's own entry point, started in a sealed container with a command that prints its environment"
)
MPI_SOURCE = (
    "open-mpi/ompi, opal/mca/base/mca_base_component_find.c: a framework is not opened where a component that is asked "
    "for by its name is not there"
)
ALIAS_COMPONENTS = {"self", "sm", "vader"}  # which are built in, or names of each other
LAUNCHERS = re.compile(r"torchrun|torchx|deepspeed|accelerate|ray|vllm|sglang|horovodrun|composer|colossalai|litgpt")
# What an entry point meets in a sealed container, or without what a job gives it: no GPU, network, right or variable.
SITUATION_MESSAGE = re.compile(
    r"[Rr]ead-only|ermission denied|not permitted|[Nn]etwork|resolve|[Cc]onnect|nvidia|NVIDIA|CUDA|GPU|/dev/|[Dd]evice"
    r"|No space|timed out|unbound variable|not set|must be set|must be specified|required|parameter null"
)
GPU_LIBRARY = re.compile(r"lib(?:torch_cuda|cudart)\b")
FIXES_BY_NEED = {
    "c": "apt-get install gcc libc6-dev",
    "Python.h": "install python3-dev of this Python",
    "stdlib.h": "install libc6-dev",
    "c++": "apt-get install g++ libc6-dev",
    "ninja": "pip install ninja, with its folder on PATH",
    "cicc": "install libnvvm or nvidia-nvvm, which nvcc of CUDA 13 has apart, or the whole toolkit",
    "nvcc": "install cuda-nvcc of the image's CUDA and set CUDA_HOME, or take a devel image of CUDA",
}
HEADER_FIX = (
    "install the CUDA toolkit's development packages, as cuda-cudart-dev and libcurand-dev, of the image's CUDA"
)


@pytest.fixture
def programs(settings: Settings) -> Programs:
    """Return the programs that the image starts and compiles with."""
    return settings.programs or pytest.skip("the image's programs were not looked for")


@pytest.mark.validator("programs.entry-point", source=START_SOURCE)
def test_entry_point(programs: Programs, require: Requirement) -> None:
    """The kernel starts what the image's entry point and command name, and the scripts among them."""
    faulty = [program for program in programs.started if program.fault]
    # A volume may bring what the first program starts; that one is the image's, and so are files that are there.
    certain = any(program.fault != probe.ABSENT or not program.by for program in faulty)
    require(
        not faulty,
        expected="programs that are there, that may be executed, and whose interpreter is there",
        actual="; ".join(map(_fault, faulty)) or f"{len(programs.started)} programs can be started",
        fix="; ".join(dict.fromkeys(_fix(program) for program in faulty)),
        severity=None if certain else "warning",
    )


def _fault(program: StartedProgram) -> str:
    """Return what keeps a program from starting, as a sentence."""
    subject = f"{program.by} starts {program.program}" if program.by else f"the entry point {program.word}"
    leads = f", a link to {program.target}" if program.target else ""
    path = f"{subject}, which" if program.by else f"{subject}"
    if program.fault == probe.ABSENT:
        return f"{path} is not there" if "/" in program.word else f"{path} is in no folder of PATH"
    return {
        probe.FOLDER: f"{path} is a folder, and cannot be started",
        probe.NO_RIGHT: f"{path} is not executable: permission denied",
        probe.NO_FORMAT: f"{path} has no #! line: exec format error",
        probe.NO_INTERPRETER: f"{path} begins with #!{program.interpreter}{leads}, which is not there",
        probe.CARRIAGE_RETURN: f"{path} has lines that end as Windows writes them (CRLF): "
        + (f"{program.interpreter} with a carriage return is not there" if program.interpreter else "a shell fails"),
    }[program.fault]


def _fix(program: StartedProgram) -> str:
    """Return what makes a program start."""
    return {
        probe.ABSENT: f"copy {program.word} into the image, or name what is there",
        probe.FOLDER: "name the program in it",
        probe.NO_RIGHT: f"RUN chmod 755 {program.program}",
        probe.NO_FORMAT: f"begin {program.program} with #!/bin/sh",
        probe.NO_INTERPRETER: f"copy {program.target}, with the Python that it is of, into the image, too, or make the "
        "virtual environment with a Python of the image"
        if program.target
        else f"install {program.interpreter}, or name the interpreter that is there",
        probe.CARRIAGE_RETURN: f"RUN sed -i 's/\\r$//' {program.program}, and *.sh text eol=lf in .gitattributes",
    }[program.fault]


@pytest.mark.validator("programs.command", source=ENTRY_POINT_SOURCE, severity="warning")
def test_command(inspection: Inspection, require: Requirement) -> None:
    """The entry point starts the command that it is given."""
    ended, settings = inspection.measured.ended_entry, inspection.measured.settings
    if not ended and not inspection.measured.entry:
        pytest.skip(inspection.measured.missing.get("entry", "the entry point was not started"))
    programs = settings.programs.started if settings and settings.programs else []
    if any(program.fault for program in programs):
        pytest.skip("a program is not started: see programs.entry-point")
    words = _entry_words(inspection.subject.entrypoint)
    is_script = any(base_name(path) in probe.SHELLS for path in (*words[:1], *(p.interpreter for p in programs[:2])))
    situation = bool(ended and ended.code and SITUATION_MESSAGE.search(ended.words))
    require(
        ended is None,
        expected="it to start the command, which prints its environment",
        actual=f"the entry point {' '.join(words)} ends with {ended.code}, and the command that `docker run` or a "
        f"pod's args give it is not started{ended.words and f': {ended.words}'}"
        if ended
        else "it was started",
        fix='end the script with exec "$@"; a pod\'s command: passes the entry point by'
        if is_script
        else "take the program out of ENTRYPOINT, and name it in CMD; a pod's command: passes the entry point by",
        severity=None if is_script and not situation else "note",
    )


def _entry_words(entry: Sequence[str]) -> list[str]:
    """Return the words that name an entry point: its program, and a shell's script."""
    words = list(entry)
    if words and base_name(words[0]) in probe.INIT_PROGRAMS:
        words = [word for word in words[1:] if not word.startswith("-")]
    return words[:2] if words and base_name(words[0]) in probe.SHELLS else words[:1]


@pytest.mark.validator("programs.scripts", source=INTERPRETER_SOURCE, severity="warning")
def test_scripts(programs: Programs, require: Requirement) -> None:
    """Each script of Python's packages on PATH begins with a Python that is there."""
    lines, launching = [], False
    for interpreter, scripts in programs.unstartable.items():
        names = sorted((base_name(path) for path in scripts), key=lambda name: not LAUNCHERS.fullmatch(name))
        launching |= bool(LAUNCHERS.fullmatch(names[0]))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        subject = "they begin" if len(names) > 1 else "it begins"
        lines.append(f"{', '.join(names[:3])}{more} cannot be started: {subject} with #!{interpreter}, not there")
    require(
        not lines,
        expected="scripts whose first line names a Python of the image",
        actual="; ".join(lines) or "all of them do",
        fix="make the virtual environment where it is used, or install the packages again there: it cannot be moved",
        severity=None if launching else "note",
    )


@pytest.mark.validator("mpi.components", source=MPI_SOURCE, severity="warning")
def test_mpi_components(inspection: Inspection, settings: Settings, programs: Programs, require: Requirement) -> None:
    """Open MPI has the components that variables and its own files ask for."""
    if not programs.mpi:
        pytest.skip("no mpirun of an Open MPI whose components are known is on PATH")
    chosen = {name: ("", value) for name, value in image_variables(inspection).items()}
    chosen |= {
        s.name: (f"{s.file}:{s.line}: ", s.value)
        for s in settings.assigned
        if s.name not in chosen and s.reader != "launcher"
    }
    lines = []
    for name, (where, value) in chosen.items():
        framework = name.removeprefix("OMPI_MCA_")
        names = programs.mpi.get(framework, []) if name != framework else []
        missing = [
            word for word in value.split(",") if word.strip() and word.strip() not in {*names, *ALIAS_COMPONENTS}
        ]
        if names and missing and not value.startswith("^"):
            lines.append(
                f"{where}{name}={value}: Open MPI has no {framework} {', '.join(missing)}, only {', '.join(names)}: "
                "MPI does not start"
            )
    require(
        not lines,
        expected="components that this Open MPI has",
        actual="; ".join(lines) or "all of them are there",
        fix="leave the variable or line out, or build Open MPI with what the component needs",
    )


@pytest.mark.validator("packages.compilers", source=COMPILING_SOURCE, severity="warning")
def test_compilers(
    inspection: Inspection, files: Files, packages: MeasuredPackages, programs: Programs, require: Requirement
) -> None:
    """What a package compiles with where it runs is in the image."""
    if not any(map(GPU_LIBRARY.match, map(base_name, files.libraries))):
        pytest.skip("the image has neither torch for CUDA nor CUDA's runtime")
    facts, environment = facts_file.read(Compiling), image_variables(inspection)
    lines: list[str] = []
    fixes: list[str] = []
    for row, compiling in compiling_packages(facts, files, packages, environment):
        is_beside = bool(row.where) and (lines or any(missing_needs(row.where, programs, environment)))
        missing = {} if is_beside else dict(missing_needs(row.needs, programs, environment))
        if missing:
            verb, lacks = "compiles" if len(compiling) == 1 else "compile", sorted(missing.values(), key=len)
            sentence = f"{', '.join(compiling)} {verb} {row.when}, and finds {', '.join(lacks)}"
            lines.append(f"{sentence} [{facts.cite(row)}]")
            fixes += [
                f"set CUDA_HOME={programs.toolkit}" if need == "toolkit" else FIXES_BY_NEED.get(need, HEADER_FIX)
                for need in missing
            ]
    require(
        not lines,
        expected="the compilers, and the headers, that packages need where they run",
        actual="; ".join(lines) or "no package lacks one",
        fix="; ".join(dict.fromkeys(fixes)),
    )
