"""Variables of any image: names and lines that are read, and files that are there."""

import re

from rdma_images.chain.nccl_environment import started_environment
from rdma_images.chain.verbs_links import IB_DISABLE, sharp_disabling_variable, sharp_plugin
from rdma_images.inspection.inspection import Inspection, missing_in
from rdma_images.inspection.measurements import Settings
from rdma_images.validate.probes.settings import FILE_VARIABLES
from rdma_images.validate.validator import Requirement, validator
from validators.support.variables import environments, variable_facts

NAME_SOURCE = "facts/known-variables.yaml, read from the sources of NCCL, aws-ofi-nccl, libfabric and rdma-core"
FILE_SOURCE = "NVIDIA/nccl, src/graph/xml.cc and src/graph/search.cc: what NCCL does where it cannot open such a file"
ENDING_EFFECTS = {"NCCL_GRAPH_FILE": "NCCL ends", "VLLM_NCCL_SO_PATH": "vLLM ends"}
MISSING_EFFECTS = {**ENDING_EFFECTS, "LD_PRELOAD": "every program complains, and nothing is preloaded"}
QUOTED_VALUE = re.compile(r"[\"'].*|.*[\"']")
PRELOAD_FIX = "preload the build that is for the libraries of this image, or install what brings the others"
MOUNTED_FOLDERS = ("/proc/", "/sys/", "/dev/", "/run/", "/var/run/")
SCRATCH_FOLDERS = ("/tmp/", "/var/tmp/")  # where what sets a variable at a start may also write the file
FORM_SOURCE = (
    "NVIDIA/nccl src/misc/param.cc: all before the first = is the name, all after it the value, # only at the start"
)
NAME_FIX = "write the line as NAME=value, with the very name that is read"
LINE_END_FIX = "take the carriage returns out with dos2unix"
PLAIN_FIX = "write the line as NAME=value, without quotes and spaces"
VERBATIM_READERS = ("nccl", "libfabric")  # who takes a line of its file as it stands


@validator("environment.misspelt", source=NAME_SOURCE, severity="warning")
def test_misspelt(inspection: Inspection, require: Requirement) -> None:
    """Variable names are spelt as libraries read them, and values have no quotes."""
    variable_table, started_with = variable_facts(), started_environment(inspection)
    values = {name: value for environment in environments(inspection).values() for name, value in environment.items()}
    meant = {name: near for name in values if (near := variable_table.closest_name(name))}
    quoted = [name for name, value in values.items() if name in variable_table.names and QUOTED_VALUE.fullmatch(value)]
    lines = [f"{name} is read by nothing: {near} is" for name, near in meant.items()]
    lines += [f"{name}={values[name]}: the quotes are a part of the value" for name in quoted]
    fixes = [f"write {near} in place of {name}, or leave it out" for name, near in meant.items()]
    fixes += [f"set {name} without quotes: a file of variables is not read by a shell" for name in quoted]
    plugin, switch = sharp_plugin(inspection), sharp_disabling_variable(started_with)
    if plugin and started_with.get(IB_DISABLE, "0") not in ("", "0"):
        lines.append(f"{IB_DISABLE} does nothing: NCCL takes {plugin}, which reads {switch}")
        fixes.append(f"set {switch}=1, too, or leave {IB_DISABLE} out")
    require(
        not lines,
        expected="names that the libraries read, and values without quotes",
        actual="; ".join(lines) or "no other name, and no quotes",
        fix="; ".join(fixes),
    )


@validator("environment.files", source=FILE_SOURCE)
def test_files(inspection: Inspection, settings: Settings, require: Requirement) -> None:
    """Files named by variables exist, and preloaded libraries find what they need."""
    missing = [path for path in settings.absent if not path.startswith(MOUNTED_FOLDERS)]
    unwritten = [path for path in missing if not path.startswith(SCRATCH_FOLDERS)]
    assignments = [
        (f"{origin}: " if origin else "", name, values.get(name, ""), unwritten if origin else missing)
        for origin, values in environments(inspection).items()
        for name in (*FILE_VARIABLES, "LD_PRELOAD")
    ]
    assignments += [(f"{item.file}:{item.line}: ", item.name, item.value, unwritten) for item in settings.assigned]
    faults = [
        (name, f"{origin}{name}={path} is not there: {MISSING_EFFECTS.get(name, 'NCCL goes on without it')}")
        for origin, name, value, paths in assignments
        if name in (*FILE_VARIABLES, "LD_PRELOAD")
        for path in paths
        if path in re.split(r"[:\s]+", value)
    ]
    faults.sort(key=lambda fault: fault[0] not in ENDING_EFFECTS)
    fix = "remove the variable, or put the file into the image: a job that mounts the file can set its variable, too"
    lacking = _preloaded_in_vain(inspection, settings)
    ends = bool(lacking) or any(name in ENDING_EFFECTS for name, _ in faults)
    require(
        not faults and not lacking,
        expected="every file that a variable names, and every library that a preloaded one needs",
        actual="; ".join([*(line for _, line in faults), *lacking]) or "no variable names a file that is not there",
        fix="; ".join([*([fix] if faults else []), *([PRELOAD_FIX] if lacking else [])]),
        severity=None if ends else "warning",
    )


def _preloaded_in_vain(inspection: Inspection, settings: Settings) -> list[str]:
    """Return what preloaded libraries need and nothing answers to: no program starts then."""
    origins = {word: f"LD_PRELOAD={word}" for word in _preloaded(inspection)}
    origins |= {
        setting.value: f"{setting.file} names {setting.value}"
        for setting in settings.assigned
        if setting.reader == "loader"
    }
    tree = inspection.measured.tree
    lines = []
    for word, origin in origins.items():
        answer = tree.libraries.resolved.get(word) if tree else None
        if tree and answer and (missing := missing_in(tree.libraries, answer.file)):
            lines.append(f"{origin} needs {', '.join(missing)}, not there: no program starts")
    return lines


def _preloaded(inspection: Inspection) -> list[str]:
    return re.split(r"[:\s]+", started_environment(inspection).get("LD_PRELOAD", ""))


@validator("settings.readable", source=FORM_SOURCE, severity="warning")
def test_readable(settings: Settings, require: Requirement) -> None:
    """Every line of nccl.conf, libfabric.conf and of shells' files sets a variable that something reads."""
    variable_table = variable_facts()
    fixes: dict[str, str] = {}
    for setting in (setting for setting in settings.assigned if setting.reader != "start script"):
        where = f"{setting.file}:{setting.line}"
        if setting.reader in VERBATIM_READERS and not re.fullmatch(r"\w+", setting.name):
            fixes[f"{where}: the name of the variable is {setting.name!r}, which nothing reads"] = NAME_FIX
        elif setting.reader in VERBATIM_READERS and setting.value.endswith("\r"):
            fixes[f"{where}: a carriage return is a part of the value of {setting.name}"] = LINE_END_FIX
        elif setting.reader in VERBATIM_READERS and re.fullmatch(r"([\"']).*\1|\s+.*|.*\s+", setting.value):
            fixes[f"{where}: the value of {setting.name} is {setting.value!r}, quotes and spaces with it"] = PLAIN_FIX
        elif near := variable_table.closest_name(setting.name):
            fixes[f"{where}: {setting.name} is read by nothing: {near} is"] = NAME_FIX
    require(
        not fixes,
        expected="NAME=value, without export, quotes or spaces, in lines as Unix ends them",
        actual="; ".join(fixes) or "every line sets a variable",
        fix="; ".join(dict.fromkeys(fixes.values())),
    )
