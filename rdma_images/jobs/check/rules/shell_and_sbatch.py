"""Rules on what a shell or sbatch does not read as it is meant."""

import difflib
import re
from collections.abc import Iterator

from rdma_images.jobs.check.foreign_job import JobPart
from rdma_images.jobs.check.rules.rule import CheckContext, RuleFinding, rule

MEETING_OPTIONS = (
    "nnodes",
    "num_machines",
    "num_nodes",
    "nproc_per_node",
    "num_processes",
    "node_rank",
    "machine_rank",
    "master_addr",
    "master_port",
    "main_process_ip",
    "main_process_port",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_backend",
    "dist_init_addr",
    "hostfile",
)
VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*)\}?(?::\d+)?")
MIN_SIMILARITY = 0.8  # as difflib measures it: one letter of five


@rule(
    "shell.broken",
    "error",
    "bash(1): quotes are closed, a backslash joins lines only as the last character, an assignment has no blanks",
)
def broken_commands(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report lines that a shell reads as other commands than they look."""
    if word := part.traits.get("dos-lines"):
        problem = "the lines end as on Windows, with a carriage return: the shell's name and each last word have one"
        yield word, problem, "convert the file, as with dos2unix or sed -i 's/\\r$//'"
    for fault in part.start.faults:
        yield fault.word, fault.message, fault.fix


@rule(
    "slurm.directives",
    "error",
    "SchedMD, sbatch(1): directives are read up to the first command; the first line names a shell",
)
def lost_directives(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report directives that sbatch does not read, and a script that it refuses."""
    if word := part.traits.get("late-directive"):
        problem = f"#SBATCH {word.text} stands after the first command: sbatch does not read it, nor those below"
        yield word, problem, "move all directives before the first command"
    if word := part.traits.get("lower-directive"):
        problem = f"#sbatch {word.text} is a comment: sbatch reads #SBATCH alone, in capitals"
        yield word, problem, "write #SBATCH", "warning"
    if word := part.traits.get("no-shebang"):
        yield word, "the first line is not #!/bin/bash: sbatch refuses the script", "begin the file with #!/bin/bash"


@rule(
    "launch.unset",
    "warning",
    "bash(1): a variable that is not set is empty; SchedMD, sbatch(1); skypilot-org/skypilot issues 2546 and 6920",
)
def unset_variables(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a variable that is not set where it is read, as by a typing error."""
    for fault in part.start.unexpanded:
        yield fault.word, fault.message, fault.fix, fault.severity
    if part.kind not in ("slurm", "script", "docker"):
        return
    for launch in part.start.launches:
        for name in MEETING_OPTIONS:
            word = launch.options.get(name)
            variable = VARIABLE.fullmatch(word.text) if word else None
            if not (word and variable) or variable["name"] in part.start.assigned | part.environment.keys():
                continue
            candidates = sorted(part.start.assigned)
            if near := difflib.get_close_matches(variable["name"], candidates, n=1, cutoff=MIN_SIMILARITY):
                problem = f"${variable['name']} is set nowhere here, and {near[0]} is: --{name} may be empty"
                yield word, problem, f"write ${near[0]} if that is meant"
