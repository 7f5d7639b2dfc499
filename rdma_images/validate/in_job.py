"""Measure the nodes of a job: what each node runs, what of that is in its logs, and the checks of all nodes as one."""

import base64
import re
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rdma_images.core.check import Check
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import Expected, Inspection
from rdma_images.inspection.measurements import Measured, probe_names
from rdma_images.validate import measure_host, probing, suite
from rdma_images.validate.answers import mark_lost, parse_answers
from rdma_images.validate.probes.measure import MARK

MAX_PART_LENGTH = 800  # characters of a line: a launcher that puts its own words before lines breaks long ones
MAX_ANSWER_BYTES = 64 << 20  # bytes of one node's answers, unpacked
ANSWER_PART = re.compile(r"rdma-images-node (\S+) ([0-9a-f]+) (\d+)/(\d+) ([A-Za-z0-9+/=]+)")
# One process of a node measures it. The ranks' files of NCCL's logs are the job's, and would take the log of a probe's
# own all-reduce. One line, for launchers that write a command into YAML as it is.
SHELL_PREFIX = (
    'test "${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-0}}}" = 0 || exit 0; unset NCCL_DEBUG_FILE; '
    "PATH=$PATH:/opt/venv/bin:/usr/bin:/usr/local/bin:/opt/conda/bin; "
)
BOOTSTRAP = "exec(__import__('zlib').decompress(__import__('base64').b64decode('%s')))"
PRINT_PROGRAM = f"""
import base64, socket, subprocess, sys, zlib
done = subprocess.run([sys.executable, "-c", PROBES, *NAMES], stdout=subprocess.PIPE)
answer = base64.b64encode(zlib.compress(done.stdout, 9)).decode()
parts = [answer[n : n + {MAX_PART_LENGTH}] for n in range(0, len(answer), {MAX_PART_LENGTH})]
checksum = "%08x" % zlib.crc32(answer.encode())
for n, part in enumerate(parts, 1):
    print("rdma-images-node", socket.gethostname(), checksum, "%d/%d" % (n, len(parts)), part, flush=True)
"""


def command(tiers: Sequence[str]) -> tuple[str, ...]:
    """Return what a rank runs so that its node is measured for `tiers`."""
    program = f"PROBES={probing.payload()!r}\nNAMES={list(probe_names(*tiers))!r}\n{PRINT_PROGRAM}"
    packed = base64.b64encode(zlib.compress(program.encode(), 9)).decode()
    return ("/bin/sh", "-c", f'{SHELL_PREFIX}exec python3 -c "{BOOTSTRAP % packed}"')


def parse_measurements(lines: Iterable[str], tiers: Sequence[str]) -> dict[str, Measured]:
    """Return what the nodes measured, by name, from the lines of the job's logs.

    Incomplete answers are left out. Several processes may have measured under one name, as after a restart: the last
    whole answer counts.
    """
    parts: dict[tuple[str, str, int], dict[int, str]] = {}  # by node, answer and how many there are
    for line in lines:
        if match := ANSWER_PART.search(line):
            parts.setdefault((plain(match[1]), match[2], int(match[4])), {})[int(match[3])] = match[5]
    nodes: dict[str, Measured] = {}
    for (node, _, total), pieces in parts.items():
        node_measurements = _decode_answers(pieces, total, probe_names(*tiers))
        if not node_measurements.lost or node not in nodes:
            nodes[node] = node_measurements
    return dict(sorted(nodes.items()))


def _decode_answers(parts: Mapping[int, str], total: int, names: tuple[str, ...]) -> Measured:
    try:
        packed = base64.b64decode("".join(parts[n] for n in range(1, total + 1)))
        text = zlib.decompressobj().decompress(packed, MAX_ANSWER_BYTES)
    except (KeyError, ValueError, zlib.error):
        return mark_lost(names, "what the node printed is not whole in the job's logs")
    _, mark, answers = text.partition(MARK.encode())
    if not mark:
        return mark_lost(names, "the probes ended before they had an answer: see the job's logs")
    return parse_answers(answers.partition(b"\n")[0], names)


def checks(ref: str, nodes: Mapping[str, Measured], expected: Expected, tiers: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks of `tiers` over all nodes: each passes where it passes on every node."""
    by_node = {}
    with tempfile.TemporaryDirectory(prefix="rdma-images-") as folder:
        for node, measured in nodes.items():
            inspection = Inspection(
                subject=measure_host.host_config(ref, node, measured), expected=expected, measured=measured
            )
            by_node[node] = suite.run(inspection, tuple(tiers), Path(folder) / "report.xml")
    checks_of_nodes = zip(*by_node.values(), strict=True)
    return tuple(_joined_check(dict(zip(by_node, same_checks, strict=True))) for same_checks in checks_of_nodes)


def _joined_check(by_node: Mapping[str, Check]) -> Check:
    """Return one check of all nodes: the worst of them, and what it found where."""
    worst = min(by_node.values(), key=lambda check: ("failed", "passed", "skipped").index(check.outcome))
    if worst.outcome == "skipped":
        return worst
    findings = {node: check.actual for node, check in by_node.items() if check.outcome == worst.outcome}
    all_agree = len(set(findings.values())) == 1
    where = f"{len(findings)} of {len(by_node)} nodes" if len(findings) < len(by_node) or all_agree else ""
    text = worst.actual if all_agree else "; ".join(f"{node}: {check}" for node, check in findings.items())
    return replace(worst, actual=": ".join(filter(None, (where, text))))
