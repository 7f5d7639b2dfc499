"""Rules on the environment variables of a job."""

import re
from collections.abc import Iterator

from rdma_images.jobs.check.job_part import JobPart, Severity
from rdma_images.jobs.check.rules.images import PLUGINS, is_path_in_image
from rdma_images.jobs.check.rules.rule import CheckContext, Problem, is_placeholder, rule
from rdma_images.jobs.check.rules.transfers import command_text
from rdma_images.nccl_logs.verdict import logs_channels

# Variables of NCCL that are read as numbers: NCCL_PARAM in its sources.
NUMBERS = re.compile(
    r"NCCL_(?:\w+_(?:DISABLE|ENABLE|CNT|TIMEOUT|NCHANNELS|CHANNELS|SIZE|BUFFSIZE|NTHREADS|PERTHREAD|RECV_COMPLETION)|"
    r"IB_(?:GID_INDEX|SL|TC|PKEY|QPS_PER_CONNECTION|AR_THRESHOLD|SPLIT_DATA_ON_QPS|PCI_RELAXED_ORDERING|MERGE_NICS)|"
    r"BUFFSIZE|NTHREADS|CROSS_NIC|NET_GDR_READ|IGNORE_CPU_AFFINITY|NVLS_ENABLE|SHM_DISABLE|P2P_DISABLE)|"
    r"TORCH_NCCL_ASYNC_ERROR_HANDLING"
)
INTEGER = re.compile(r"[-+]?\d")
RANGES = {"NCCL_IB_TIMEOUT": (0, 31), "NCCL_IB_RETRY_CNT": (0, 7), "NCCL_IB_SL": (0, 15), "NCCL_IB_TC": (0, 255)}
INTERFACE_LISTS = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME")
DEBUG_LEVELS = ("VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE")
MAX_NAMES = 100  # of a part that are compared with those that libraries read


@rule("environment.harmful", "error", "facts/environment.yaml")
def harmful_variables(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a variable that takes the network away or breaks it."""
    yield from _settings(part, context, "harmful")


@rule("environment.slow", "warning", "facts/environment.yaml")
def slow_variables(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a variable that makes the network slower."""
    yield from _settings(part, context, "slow")


@rule("environment.obsolete", "warning", "facts/environment.yaml", summary="today's versions do not need {}")
def obsolete_variables(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report the variables that today's versions do not need, or do not read."""
    yield from _settings(part, context, "obsolete")


def _settings(part: JobPart, context: CheckContext, effect: str) -> Iterator[Problem]:
    """Yield the variables of a part that have an effect by facts/environment.yaml."""
    values = {name: word.text for name, word in part.environment.items() if not is_placeholder(word.text)}
    command = command_text(part) if values else ""
    rows = [row for name in values for row in context.tables.settings.get(name, ()) if row.effect == effect]
    for row in rows:
        if not row.applies_to(values, context.fabric, context.versions, command):
            continue
        word = part.environment[row.name]
        conditions = row.conditions(word.text, part.network, context.node, context.versions)
        if conditions is None or (conditions and _is_reported_as_path(part, context, row.name)):
            continue
        if effect == "obsolete":
            reason = ", ".join([*conditions, row.why])
            yield Problem(word, f"{row.name} ({reason})", "remove them")
            continue
        reason = ": ".join([*conditions, f"{row.why} [{context.tables.environment.cite(row)}]"])
        severity: Severity = "error" if effect == "harmful" and not conditions and not row.possible else "warning"
        yield Problem(word, f"{row.name}={word.text}: {reason}", "remove it", severity)


def _is_reported_as_path(part: JobPart, context: CheckContext, name: str) -> bool:
    """Return whether plugin.missing reports a variable as the path of a file that the image may not have."""
    has_image = part.image is not None and not is_placeholder(part.image.text)
    is_plugin = name in dict(PLUGINS) and "nccl" not in context.versions
    return has_image and is_plugin and is_path_in_image(part.environment[name].text, context)


@rule("tcp.chosen", "warning", "NVIDIA/nccl, NCCL_NET: no other network than the one named is taken")
def chosen_sockets(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report TCP on nodes with a fabric: right for a comparison, and for nothing else."""
    word = part.environment.get("NCCL_NET")
    is_in_pyxis = part.kind == "slurm" and part.image is not None
    if not word or word.text.lower() != "socket" or not (context.fabric or is_in_pyxis):
        return
    message = f"NCCL_NET={word.text}: NCCL uses TCP sockets alone, and leaves the fabric"
    message += f" ({context.fabric})" if context.fabric else ""
    fix = "remove it, unless this job is the TCP leg of a comparison"
    if is_in_pyxis and "NCCL_NET" not in part.container_env:
        message += "; where the image sets NCCL_NET, its own value wins"
        fix += ", which has to name it in srun's --container-env"
    yield Problem(word, message, fix)


@rule(
    "environment.misspelt",
    "warning",
    "facts/variables.yaml, read from the sources of NCCL, aws-ofi-nccl, libfabric and rdma-core",
)
def misspelt_variables(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a variable that nothing reads, and whose name is nearly one that is read."""
    for name, word in list(part.environment.items())[:MAX_NAMES]:
        if near := context.tables.variables.closest_name(name):
            message = f"{name} is read by none of NCCL, aws-ofi-nccl, libfabric and rdma-core"
            yield Problem(word, message, f"write {near} if that is meant, else remove it")


@rule("environment.value", "error", "NVIDIA/nccl, src/misc/param.cc, ncclLoadParam, and src/transport/net_ib")
def values_of_another_type(part: JobPart, _: CheckContext) -> Iterator[Problem]:
    """Report values that a library does not read as they are meant."""
    for name, word in part.environment.items():
        value = word.text.strip()
        if not value or "$" in value or "{" in value or "<" in value:
            continue
        if NUMBERS.fullmatch(name) and not INTEGER.match(value):
            message = f"{name}={value[:40]} is no number: it counts as 0, or as the default"
            yield Problem(word, message, "write 1 or 0, or another number")
        elif (limits := RANGES.get(name)) and value.isdecimal() and not limits[0] <= int(value[:9]) <= limits[1]:
            message = f"{name}={value[:40]}: values go from {limits[0]} to {limits[1]}"
            yield Problem(word, message, "write a value within them")
        elif name in INTERFACE_LISTS and re.search(r"[*?/]", value):
            message = f"{name}={value[:40]}: it takes the beginnings of names, and no wildcard: none fits"
            yield Problem(word, message, "write the beginning of the names alone, as eth or mlx5")
        elif name == "NCCL_DEBUG" and value.upper() not in DEBUG_LEVELS:
            message = f"NCCL_DEBUG={value[:40]} is none of {', '.join(DEBUG_LEVELS)}: NCCL prints nothing"
            yield Problem(word, message, "write INFO", "warning")
        elif name == "NCCL_DEBUG_SUBSYS" and not logs_channels(value):
            message = f"NCCL_DEBUG_SUBSYS={value[:40]} leaves INIT and NET out: no log says which network NCCL used"
            yield Problem(word, message, "add INIT,NET, or remove it", "warning")
        elif name == "UCX_NET_DEVICES" and re.fullmatch(r"(mlx|erdma|bnxt|irdma|rocep|ib)[^:,]*", value):
            message = f"UCX_NET_DEVICES={value[:40]} names no port: UCX's names are as mlx5_0:1"
            yield Problem(word, message, "write the port, as :1, behind each device", "warning")


@rule(
    "environment.library-path",
    "warning",
    "aws/aws-ofi-nccl, INSTALL.md; measured by environment.library-path of the validators",
)
def library_path(part: JobPart, _: CheckContext) -> Iterator[Problem]:
    """Report LD_LIBRARY_PATH: the job's wins over the image's own order of libraries."""
    word = part.environment.get("LD_LIBRARY_PATH")
    if word and word.text and part.image:
        message = "LD_LIBRARY_PATH comes before the image's own libraries: another NCCL or plugin may be loaded"
        yield Problem(word, message, "remove it")
