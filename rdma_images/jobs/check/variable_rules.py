"""Rules on the variables of a job, and on the settings by which its transfers of KV caches reach the fabric."""

import re
from collections.abc import Iterator

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts.environment import TransferSetting
from rdma_images.jobs.check.image_rules import PLUGINS, is_path_in_image
from rdma_images.jobs.check.job_part import JobPart, LocatedText, Severity
from rdma_images.jobs.check.rule import CheckContext, Problem, is_placeholder, rule

MAX_NAMES = 100  # of a part that are compared with those that libraries read


@rule("environment.harmful", "error", "facts/environment.yaml")
def harmful_variables(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a variable that takes the network away or breaks it."""
    values = {name: word.text for name, word in part.environment.items() if not is_placeholder(word.text)}
    if values.get("NCCL_NET", "").lower() == "socket":  # tcp.chosen reports it; NCCL then asks no provider
        values.pop("FI_PROVIDER", None)
    command = command_text(part) if values else ""
    for row in (row for name in values for row in context.settings.get(name, ())):
        if not row.applies_to(values, context.fabric, context.versions, command):
            continue
        word = part.environment[row.name]
        conditions = row.conditions(word.text, part.network, context.node, context.versions)
        if conditions is None or (conditions and _is_reported_as_path(part, context, row.name)):
            continue
        reason = ": ".join([*conditions, f"{row.why} [{context.environment.cite(row)}]"])
        severity: Severity = "warning" if conditions or row.possible else "error"
        yield Problem(word, f"{row.name}={word.text}: {reason}", "remove it", severity)


def _is_reported_as_path(part: JobPart, context: CheckContext, name: str) -> bool:
    """Return whether plugin.missing reports a variable as the path of a file that the image may not have."""
    has_image = part.image is not None and not is_placeholder(part.image.text)
    is_plugin = name in PLUGINS and "nccl" not in context.versions
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
    fix = "remove it, unless this job measures TCP to compare with"
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
        if near := context.variables.closest_name(name):
            message = f"{name} is read by none of NCCL, aws-ofi-nccl, libfabric and rdma-core"
            yield Problem(word, message, f"write {near} if that is meant, else remove it")


@rule(
    "environment.library-path",
    "warning",
    "aws/aws-ofi-nccl, INSTALL.md",
)
def library_path(part: JobPart, _: CheckContext) -> Iterator[Problem]:
    """Report LD_LIBRARY_PATH: the job's wins over the image's own order of libraries."""
    word = part.environment.get("LD_LIBRARY_PATH")
    if word and word.text and part.image:
        message = "LD_LIBRARY_PATH comes before the image's own libraries: another NCCL or plugin may be loaded"
        yield Problem(word, message, "remove it")


@rule("transfer.fabric", "error", "facts/environment.yaml")
def transfers_without_fabric(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a server whose transfers, by Mooncake or NIXL, lack the setting by which they reach the fabric."""
    command = command_text(part)
    for row in context.environment.transfers.values() if command and context.fabric else ():
        match = re.search(row.command, command) if row.fabric == context.fabric else None
        if not match:
            continue
        given = _given_value(part, command, row)
        if given and (given.lower() == row.value.lower() or is_placeholder(given)):
            continue
        setting = f"{row.name}={row.value}" if row.name.isupper() else f'"{row.name}": {row.value} in its configuration'
        state = f"{row.name} is {given}" if given else f"{row.name} is not set"
        severity: Severity = (
            "error" if row.effect == "harmful" and (given or not part.pod.has_more_environment) else "warning"
        )
        reason = f"{row.why} [{context.environment.cite(row)}]"
        message = f"{match[0]} on {FABRIC_TITLES[row.fabric]}, and {state}: {reason}"
        line = next((word.line for word in part.command if match[0] in word.text), part.line)
        yield Problem(LocatedText(match[0], line), message, f"set {setting}", severity)


def command_text(part: JobPart) -> str:
    """Return the words of a part's command as one text."""
    return " ".join(word.text for word in part.command)


def _given_value(part: JobPart, command: str, row: TransferSetting) -> str:
    """Return what a variable, or a key in the command's JSON, is set to; "" where it is not."""
    if word := part.environment.get(row.name):
        return word.text or "$()"  # from elsewhere
    match = re.search(rf"\b{re.escape(row.name)}\b[\"'\\]*\s*[:=][\s\"'\\\[]*(?P<value>[\w$<{{]+)", command)
    return match["value"] if match else ""
