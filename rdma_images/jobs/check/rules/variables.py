"""Rules on environment variables of a job, and on those that its ranks do not get."""

import re
from collections.abc import Collection, Iterator

from rdma_images.jobs.check import image_reports
from rdma_images.jobs.check.foreign_job import JobPart, Launch
from rdma_images.jobs.check.rules.rule import CheckContext, RuleFinding, is_placeholder, rule
from rdma_images.nccl_logs.verdict import logs_channels
from rdma_images.validate.probes.tree import LISTED_NAME

# What decides how ranks reach each other, and is of no use where mpirun or docker alone reads it.
READ_BY_RANKS = re.compile(r"(?:NCCL|TORCH_NCCL|FI|OFI_NCCL|UCX|GLOO|NVSHMEM)_\w+")
TRANSFER_BACKEND = "disaggregation_transfer_backend"
OF_GPUS = ("cuda", "gdr", "rocm", "ze_", "gaudi")  # how names of UCX's transports for memory of GPUs begin
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


@rule(
    "environment.passed",
    "warning",
    "open-mpi/ompi, mpirun(1), -x; SchedMD, srun(1), --export; Docker, docker run, --env",
)
def lost_variables(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report variables that are set for the launcher and do not reach the ranks."""
    for launch in part.start.launches:
        exported = {name: word for name, word in launch.exported.items() if READ_BY_RANKS.fullmatch(name)}
        if launch.program == "mpirun" and part.title == "MPIJob Launcher":
            exported |= {name: word for name, word in part.environment.items() if READ_BY_RANKS.fullmatch(name)}
        clause, forwarded = _variable_forwarding(part, launch)
        same_forwarder = (
            other.forwarded_variables for other in part.start.launches if other.forwarder == launch.forwarder
        )
        all_forwarded = frozenset().union(*(names for names in same_forwarder if names), forwarded or ())
        missing = {name: word for name, word in exported.items() if forwarded is not None and name not in all_forwarded}
        if not missing:
            continue
        names = ", ".join(list(missing)[:4]) + (" and others" if len(missing) > 4 else "")
        problem = f"{names} {'is' if len(missing) == 1 else 'are'} set here, and {clause}: the ranks do not get it"
        yield next(iter(missing.values())), problem, f"pass {'it' if len(missing) == 1 else 'them'} on"


def _variable_forwarding(part: JobPart, launch: Launch) -> tuple[str, frozenset[str] | None]:
    """Return what forwards variables to a launch's ranks, and which; None for all."""
    export = launch.srun.get("export") if launch.srun is not None else None
    if export and "$" not in export.text:
        names = export.text.split(",")
        return f"srun has --export={export.text[:60]}", None if "ALL" in names else _variable_names(names)
    default = part.options.get("export")
    if launch.srun is not None and not export and default and default.text == "NONE":
        return "with #SBATCH --export=NONE srun passes nothing on", frozenset()
    if launch.program == "mpirun" and part.kind == "slurm":
        return "", None  # which srun starts, with all variables
    names_hosts = any(name in launch.options for name in ("H", "host", "hostfile", "machinefile"))
    if launch.program == "mpirun" and not (part.kind == "kubernetes" or names_hosts):
        return "", None
    clauses = {
        "mpirun": "mpirun has no -x for it",
        "docker": "docker run has no -e for it",
        "ssh": "ssh does not send it",
    }
    return clauses.get(launch.forwarder, ""), launch.forwarded_variables if launch.forwarder in clauses else None


@rule(
    "environment.clean", "warning", "apptainer/apptainer, apptainer exec(1): --cleanenv, and --containall, which has it"
)
def clean_containers(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a container that takes Slurm's variables from the ranks that srun starts in it."""
    if word := part.traits.get("clean-container"):
        problem = f"{word.text} takes the variables of srun and PMI from the ranks: each is rank 0 of one"
        yield word, problem, "leave -e and --containall out, or pass SLURM_ and PMI variables with --env"


def _variable_names(words: list[str]) -> frozenset[str]:
    return frozenset(word.partition("=")[0] for word in words)


@rule("transfer.devices", "warning", "sgl-project/sglang, python/sglang/srt/disaggregation/nixl/conn.py @007ba53")
def devices_of_another_backend(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report devices that are named for Mooncake, where NIXL moves the cache."""
    for launch in part.start.launches:
        devices, backend = launch.options.get("disaggregation_ib_device"), launch.options.get(TRANSFER_BACKEND)
        if launch.is_certain and devices and backend and backend.text == "nixl":
            option = f"--disaggregation-ib-device {devices.text}"
            problem = f"{option} is read for Mooncake alone: NIXL's UCX chooses devices by itself"
            yield devices, problem, "set UCX_NET_DEVICES, as mlx5_0:1, on prefill and decode"


@rule(
    "transfer.transports",
    "warning",
    "openucx/ucx, src/ucp/core/ucp_context.c, UCX_TLS: no other transport is taken than those named; ai-dynamo/nixl",
)
def transports_without_gpus(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report UCX's transports if none moves GPUs' memory, in which NIXL has the cache."""
    word = part.environment.get("UCX_TLS")
    if not word or is_placeholder(word.text) or not re.fullmatch(r"[\w,]+", word.text):
        return
    names = word.text.split(",")
    if "all" in names or any(name.startswith(OF_GPUS) for name in names):
        return
    for launch in part.start.launches:
        connector, backend = (launch.options.get(name) for name in ("kv_transfer_config", TRANSFER_BACKEND))
        is_on_gpu = connector and "Nixl" in connector.text and '"cpu"' not in connector.text
        if is_on_gpu or (backend and backend.text == "nixl"):
            problem = f"UCX_TLS={word.text}: none of these transports moves memory of GPUs, where NIXL finds the cache"
            yield word, problem, "add cuda_copy and cuda_ipc, or remove it"
            return


@rule("environment.harmful", "error", "facts/environment.yaml")
def harmful_variables(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a variable that takes the network away or breaks it."""
    yield from _variables(part, context, "harmful", "remove it")


@rule("environment.slow", "warning", "facts/environment.yaml")
def slow_variables(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a variable that makes the network slower."""
    yield from _variables(part, context, "slow", "remove it")


@rule("environment.obsolete", "warning", "facts/environment.yaml")
def obsolete_variables(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a variable that today's versions do not need, or do not read."""
    yield from _variables(part, context, "obsolete", "remove it")


def _variables(part: JobPart, context: CheckContext, effect: str, fix: str) -> Iterator[RuleFinding]:
    values = {name: word.text for name, word in part.environment.items() if not is_placeholder(word.text)}
    table = context.tables.environment
    for row in table.variables.values():
        if row.effect != effect or row.image_only or not row.applies_to(values, context.fabric, context.versions):
            continue
        word = part.environment[row.name]
        conditions = row.conditions(word.text, part.network, context.node, context.versions)
        if conditions is not None:
            reason = ": ".join([*conditions, f"{row.why} [{table.cite(row)}]"])
            problem = f"{row.name}={word.text}: {reason}"
            yield (
                word,
                problem,
                fix,
                "error" if effect == "harmful" and not conditions and not row.possible else "warning",
            )


@rule(
    "environment.misspelt",
    "warning",
    "facts/variables.yaml, read from the sources of NCCL, aws-ofi-nccl, libfabric and rdma-core",
)
def misspelt_variables(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a variable that nothing reads, and whose name is nearly one that is read."""
    for name, word in part.environment.items():
        if near := context.tables.variables.closest_name(name):
            problem = f"{name} is read by none of NCCL, aws-ofi-nccl, libfabric and rdma-core"
            yield word, problem, f"write {near} if that is meant, else remove it"


@rule("environment.value", "error", "NVIDIA/nccl, src/misc/param.cc, ncclLoadParam, and src/transport/net_ib")
def values_of_another_type(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report values that a library does not read as they are meant."""
    for name, word in part.environment.items():
        value = word.text.strip()
        if not value or "$" in value or "{" in value or "<" in value:
            continue
        if NUMBERS.fullmatch(name) and not INTEGER.match(value):
            problem = f"{name}={value[:40]} is no number: it counts as 0, or as the default"
            yield word, problem, "write 1 or 0, or another number"
        elif (limits := RANGES.get(name)) and value.isdecimal() and not limits[0] <= int(value[:9]) <= limits[1]:
            yield word, f"{name}={value[:40]}: values go from {limits[0]} to {limits[1]}", "write a value within them"
        elif name in INTERFACE_LISTS and re.search(r"[*?/]", value):
            problem = f"{name}={value[:40]}: it takes the beginnings of names, and no wildcard: none fits"
            yield word, problem, "write the beginning of the names alone, as eth or mlx5"
        elif name == "NCCL_DEBUG" and value.upper() not in DEBUG_LEVELS:
            problem = f"NCCL_DEBUG={value[:40]} is none of {', '.join(DEBUG_LEVELS)}: NCCL prints nothing"
            yield word, problem, "write INFO", "warning"
        elif name == "NCCL_DEBUG_SUBSYS" and not logs_channels(value):
            problem = f"NCCL_DEBUG_SUBSYS={value[:40]} leaves INIT and NET out: no log says which network NCCL used"
            yield word, problem, "add INIT,NET, or remove it", "warning"
        elif name == "UCX_NET_DEVICES" and re.fullmatch(r"(mlx|erdma|bnxt|irdma|rocep|ib)[^:,]*", value):
            problem = f"UCX_NET_DEVICES={value[:40]} names no port: UCX's names are as mlx5_0:1"
            yield word, problem, "write the port, as :1, behind each device", "warning"


@rule(
    "environment.library-path",
    "warning",
    "aws/aws-ofi-nccl, INSTALL.md; measured by environment.library-path of the validators",
)
def library_path(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report LD_LIBRARY_PATH: the job's wins over the image's own order of libraries."""
    word = part.environment.get("LD_LIBRARY_PATH")
    if word and word.text and part.image:
        problem = "LD_LIBRARY_PATH comes before the image's own libraries: another NCCL or plugin may be loaded"
        yield word, problem, "remove it"


@rule(
    "plugin.missing", "error", "NVIDIA/nccl, src/plugin/plugin_open.cc; awsome-distributed-ai pull requests 878 and 936"
)
def missing_plugin(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report a plugin that a variable names and the image's report does not have."""
    image = part.image
    for name, prefix in (("NCCL_NET_PLUGIN", "libnccl-net"), ("NCCL_TUNER_PLUGIN", "libnccl-tuner")):
        word = part.environment.get(name)
        if not (
            image and word and not is_placeholder(image.text) and (libraries := image_reports.libraries(image.text))
        ):
            continue
        file_names = [
            plugin_files(value, prefix) for value in word.text.split(",") if value and value.lower() != "none"
        ]
        if not file_names or any(
            _may_contain(value, context.mounts, libraries) for names in file_names for value in names
        ):
            continue
        ends = {value.rpartition("/")[2] for names in file_names for value in names}
        files_of_that_name = sorted(path for path in libraries if path.rpartition("/")[2] in ends)
        plugins = files_of_that_name or sorted(
            path for path in libraries if path.rpartition("/")[2].startswith(("libnccl-", "libnccom-"))
        )
        plugin_list = f"it has {', '.join(plugins)}" if plugins else "it has no plugin"
        tried_names = " or ".join(file_name for names in file_names for file_name in names)
        problem = f"{name}={word.text}: {tried_names} is not in the image; {plugin_list}"
        yield word, problem, "remove it: NCCL finds the image's own plugin by itself"


def plugin_files(word: str, prefix: str) -> list[str]:
    """Return the files that NCCL opens for a word of its variable."""
    is_composed = "/" not in word and not (word.startswith("lib") and word.endswith(".so"))
    return [word, f"{prefix}-{word}.so"] if is_composed else [word]


def _may_contain(name: str, mounts: Collection[str], libraries: Collection[str]) -> bool:
    """Return whether the image or a volume may have it.

    A name that reports do not list, or that a shell completes, may be.
    """
    if "/" not in name:
        return any(path.rpartition("/")[2] == name for path in libraries)
    if (
        "$" in name
        or not LISTED_NAME.fullmatch(name.rpartition("/")[2])
        or name.startswith(tuple(f"{mount}/" for mount in mounts))
    ):
        return True
    return name in libraries or f"/usr{name}" in libraries


@rule(
    "tcp.override",
    "error",
    "NVIDIA/pyxis, README: what the image sets wins over what is exported, unless --container-env names it",
)
def lost_exports(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report exports that lose to the image's own values in a run over TCP."""
    if part.kind != "slurm" or not part.image:
        return
    exported = part.traits["container-env"].text.split(",") if "container-env" in part.traits else []
    for name, usual in (("NCCL_NET", ("Libfabric", "AWS Libfabric", "OFI", "IB")), ("FI_PROVIDER", ("efa",))):
        word = part.environment.get(name)
        if word and word.text not in usual and not is_placeholder(word.text) and name not in exported:
            problem = f"{name}={word.text} is exported here, but where the image sets {name} too the image's value wins"
            yield word, problem, f"add {name} to srun's --container-env"


@rule("tcp.chosen", "warning", "NVIDIA/nccl, NCCL_NET: no other network than the one named is taken")
def chosen_sockets(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report TCP on nodes with a fabric: right for a comparison, and for nothing else."""
    word = part.environment.get("NCCL_NET")
    if word and word.text.lower() == "socket" and context.fabric:
        problem = f"NCCL_NET={word.text}: NCCL uses TCP sockets alone, and leaves the fabric ({context.fabric})"
        yield word, problem, "remove it, unless this job is the TCP leg of a comparison"


@rule("tcp.leg", "error", "NVIDIA/nccl, NCCL_NET; libfabric's fi_fabric(7), FI_PROVIDER")
def tcp_leg(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a run over TCP that unsets what the image sets, and does not replace it."""
    run = part.traits.get("run")
    if part.kind == "skypilot" and run and "USE_EFA" in part.environment and "NCCL_NET=Socket" not in run.text:
        problem = (
            "USE_EFA=false does not set NCCL_NET=Socket: the leg without EFA uses what the image insists on, or EFA"
        )
        yield run, problem, "export NCCL_NET=Socket FI_PROVIDER=tcp in that case"
