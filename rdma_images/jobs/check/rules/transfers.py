"""Rules on what moves the KV cache of a serving job between nodes: Mooncake and NIXL."""

import re
from collections.abc import Iterator

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.facts.environment import TransferSetting
from rdma_images.jobs.check.job_part import JobPart, LocatedText, Severity
from rdma_images.jobs.check.rules.rule import CheckContext, Problem, is_placeholder, rule


@rule("transfer.fabric", "error", "facts/environment.yaml")
def transfers_without_fabric(part: JobPart, context: CheckContext) -> Iterator[Problem]:
    """Report a server whose transfers lack the setting by which they reach the fabric."""
    command = command_text(part)
    for row in context.tables.environment.transfers.values() if command and context.fabric else ():
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
        reason = f"{row.why} [{context.tables.environment.cite(row)}]"
        message = f"{match[0]} on {FABRIC_TITLES[row.fabric]}, and {state}: {reason}"
        word = LocatedText(match[0], line_at(part, match.start()))
        yield Problem(word, message, f"set {setting}", severity)


def command_text(part: JobPart) -> str:
    """Return the words of a part's command as one text."""
    return " ".join(word.text for word in part.command)


def line_at(part: JobPart, position: int) -> int:
    """Return the line of what stands at `position` in the text of a part's command."""
    end = 0
    for word in part.command:
        end += len(word.text) + 1
        if position < end:
            return word.line
    return part.line


def _given_value(part: JobPart, command: str, row: TransferSetting) -> str:
    """Return what a variable, or a key in the command's JSON, is set to; "" where it is not."""
    if word := part.environment.get(row.name):
        return word.text or "$()"  # from elsewhere
    match = re.search(rf"\b{re.escape(row.name)}\b[\"'\\]*\s*[:=][\s\"'\\\[]*(?P<value>[\w$<{{]+)", command)
    return match["value"] if match else ""
