"""What a shell's lines set for a job: variables, images, and how many ranks and nodes torchrun starts."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rdma_images.jobs.check import commands, launches
from rdma_images.jobs.check.foreign_job import RankStart, YamlWord

VALUE = r"'[^']*'|\"[^\"]*\"|\$\([^()\n]*\)|(?:[^\s;'\"][^\s;]*)?"
PAIR = re.compile(rf"(?<![\w$])(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>{VALUE})")
EXPORT = re.compile(r"\s*(?:export|declare\s+-x)\s+(?P<pairs>.+)")
UNSET = re.compile(r"\s*unset\s+(?P<names>[A-Z0-9_\s]+)$")
BEFORE_COMMAND = re.compile(rf"\s*(?P<pairs>(?:[A-Z][A-Z0-9_]*=(?:{VALUE})\s+)+)[a-z./$]")
MPIRUN_VARIABLE = re.compile(rf"(?<!\S)-x\s+(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>{VALUE})")
SRUN_EXPORTS = re.compile(r"--export[= ](?P<pairs>\S+=\S+)")
ASSIGNMENT = re.compile(rf"\s*(?:export\s+|readonly\s+|local\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>{VALUE})\s*$")
DEFAULT = re.compile(r"\s*:\s+\"?\$\{(?P<name>\w+):?=(?P<value>[^{}]*)\}")
REFERENCE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^}$]*))?\}|(?P<plain>\w+))")
IMAGE = re.compile(rf"--container-image[= ]\s*(?P<image>{VALUE})")
CONTAINER_ENV = re.compile(r"--container-env[= ](?P<names>[A-Z0-9_,]+)")
RANKS = re.compile(r"--nproc[-_]per[-_]node[= ](?P<value>\"?[\w${}:-]+)")
# Of all nodes together; -n is also an option of nccl-tests.
MPI_RANKS = re.compile(r"(?:(?<!\S)--?np|\bmpi(?:run|exec)\s+-n)[= ]\s*(?P<value>\"?[\w${}:-]+)")
RESTARTS = re.compile(r"--max[-_]restarts[= ](?P<value>\"?[\w${}:-]+)")
FIRST_NODE = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr)[= ](?P<value>\"?[^\s\"')]+)")
# Of SGLang: its devices are Mooncake's, and NIXL's transfers choose their own.
DEVICES_OF_MOONCAKE = re.compile(r"--disaggregation-ib-device[= ]\S+")
BY_NIXL = re.compile(r"--disaggregation-transfer-backend[= ]nixl\b")
# DeepSpeed's and Accelerate's launchers where a shell reads a command, and how they learn of other nodes.
LAUNCHER = re.compile(
    r"(?:^|[;&|(\"'])\s*(?:exec\s+|time\s+)?(?:[A-Z][A-Z0-9_]*=\S*\s+)*(?:srun(?:\s+-[^\s=]+(?:[= ][^\s-]\S*)?)*\s+)?"
    r"(?P<command>deepspeed|accelerate\s+launch)\s+(?P<words>.*)"
)
KNOWS_NODES = {
    "deepspeed": re.compile(r"(?<!\S)(?:-H|--hostfile|--no_ssh|--node_rank)\b|\$"),
    "accelerate": re.compile(r"--(?:num_machines|config_file|deepspeed_hostfile)\b|\$"),
}
NODES = re.compile(r"--nnodes[= ](?P<value>\"?[\w${}:-]+)")
# What follows is not torchrun's: a script's own options, or those of NVIDIA's launcher, whose rendezvous is its own.
NOT_TORCHRUNS = re.compile(r"\bft_launcher\b|\.py\b")
ENDED = re.compile(r"(?:^|[\s;])(?:fi|esac)\s*;?\s*$")
ASSIGNED = re.compile(r"(?<![\w$-])(?P<name>[A-Za-z_]\w*)=")
MAX_COMMAND_LENGTH = 1 << 12  # characters of a command, over several lines, that are read
MAX_WORD_LENGTH = 4096  # characters of a word whose variables are put in place
COMMENT = re.compile(r"(?:^|\s)#.*")
# A condition that only says which rank or node does something: what it guards happens in every run of the job.
ABOUT_RANKS = re.compile(r"RANK|PROCID|NODEID|hostname|head|master", re.IGNORECASE)


@dataclass(frozen=True)
class ShellSettings:
    """What was read. A variable that some condition may set or leave out is not among them, nor is an unset one."""

    variables: Mapping[str, YamlWord]
    images: tuple[YamlWord, ...]
    container_env: YamlWord | None
    start: RankStart


def read(text: str, first: int = 1, known: Mapping[str, str] | None = None) -> ShellSettings:
    """Return what the lines of a shell set.

    Args:
        text: the lines of a shell.
        first: the number of its first line.
        known: variables that the launcher sets.
    """
    shell_text = commands.read(text, first, known)
    variables: dict[str, YamlWord] = {}
    plain: dict[str, str] = {}
    images: dict[str, YamlWord] = {}
    ranks: dict[str, YamlWord] = {}
    nodes: dict[str, YamlWord] = {}
    restarts: dict[str, YamlWord] = {}
    mpi_ranks: dict[str, YamlWord] = {}
    first_nodes: dict[str, YamlWord] = {}
    devices = None
    uncertain: set[str] = set()  # what some condition sets
    container_env = None
    is_foreign = False  # whether the line goes on with words that are not torchrun's
    for number, line, is_certain in _lines(text, first):
        foreign = NOT_TORCHRUNS.search(line)
        torchruns = "" if is_foreign else line[: foreign.start()] if foreign else line
        is_foreign = (is_foreign or foreign is not None) and line.rstrip().endswith("\\")
        if not is_certain:
            uncertain |= {match["name"] for match in ASSIGNED.finditer(line)}
            continue
        for name, value in _set_by(line):
            variables[name] = YamlWord(value, number)
        if match := UNSET.match(line):
            for name in match["names"].split():
                variables.pop(name, None)
        if match := ASSIGNMENT.match(line) or DEFAULT.match(line):
            plain[match["name"]] = match["value"].strip("'\"")
        for pattern, words, group, source in (
            (IMAGE, images, "image", line),
            (RANKS, ranks, "value", line),
            (NODES, nodes, "value", line),
            (MPI_RANKS, mpi_ranks, "value", line),
            (RESTARTS, restarts, "value", torchruns),
            (FIRST_NODE, first_nodes, "value", line),
        ):
            for match in pattern.finditer(source):
                written = match[group].strip("'\"")
                has_default = pattern is FIRST_NODE and ":-" in written  # of a variable that the launcher sets
                values = {} if has_default else {k: plain[k] for k in plain.keys() - uncertain}
                word = written if has_default else resolved(written, values)
                words.setdefault(word, YamlWord(word, number))
        if match := DEVICES_OF_MOONCAKE.search(line):
            devices = YamlWord(match[0], number)
        if match := CONTAINER_ENV.search(line):
            container_env = YamlWord(match["names"], number)
    variables = {name: word for name, word in variables.items() if name not in uncertain}
    return ShellSettings(
        variables,
        tuple(images.values()),
        container_env,
        RankStart(
            _only(ranks),
            _only(nodes),
            _only(restarts),
            _only(first_nodes),
            devices if BY_NIXL.search(text) else None,
            _lone_launcher(text, first),
            _only(mpi_ranks),
            launches.launches(shell_text),
            shell_text.faults,
            shell_text.assigned,
        ),
    )


def _lone_launcher(text: str, first: int) -> YamlWord | None:
    """Return the first launcher that learns of no other node by its own options; variables may hold them."""
    if "DLTS_HOSTFILE" in text or "ACCELERATE_CONFIG" in text:
        return None
    command, start = "", first
    for number, line, is_certain in _lines(text, first):
        if not command:
            start = number
        command += line.rstrip("\\") + " "
        if line.endswith("\\") and len(command) < MAX_COMMAND_LENGTH:
            continue
        launcher = LAUNCHER.search(command[:MAX_COMMAND_LENGTH]) if is_certain else None
        command = ""
        if launcher:
            name = launcher["command"].split()[0]
            own_words = launcher["words"].partition(".py")[0]
            if own_words.strip() and not KNOWS_NODES[name].search(own_words):
                return YamlWord(" ".join(launcher["command"].split()), start)
    return None


def resolved(text: str, values: Mapping[str, str]) -> str:
    """Return a word with the variables in place that the script itself gives a plain value; others stay as written."""

    def value(match: re.Match[str]) -> str:
        substitute = values.get(match["braced"] or match["plain"], match["default"])
        return match[0] if substitute is None or "$(" in substitute or "`" in substitute else substitute

    for _ in range(3):  # a value may name another variable
        if len(text) < MAX_WORD_LENGTH:
            text = REFERENCE.sub(value, text)
    return text[:MAX_WORD_LENGTH]


def line_starts(text: str) -> list[int]:
    """Return where each line of a text begins; `bisect` finds the line of a position in it, from 1."""
    return [0, *(match.end() for match in re.finditer("\n", text))]


def block_start(line: int, text: str) -> int:
    """Return the line of the first line of a YAML text whose key is in `line`."""
    return line + 1 if "\n" in text else line


def _only(words: Mapping[str, YamlWord]) -> YamlWord | None:
    return next(iter(words.values())) if len(words) == 1 else None


def _set_by(line: str) -> Iterator[tuple[str, str]]:
    """Yield the variables that a line sets for what runs after it, or in it."""
    for pattern in (EXPORT, BEFORE_COMMAND):
        if match := pattern.match(line):
            yield from ((pair["name"], pair["value"].strip("'\"")) for pair in PAIR.finditer(match["pairs"]))
    for match in MPIRUN_VARIABLE.finditer(line):
        yield match["name"], match["value"].strip("'\"")
    if match := SRUN_EXPORTS.search(line):
        for pair in match["pairs"].split(","):
            name, equals, value = pair.partition("=")
            if equals and name.isupper():
                yield name, value


def _lines(text: str, first: int) -> Iterator[tuple[int, str, bool]]:
    """Yield each line without comments, its number, and whether every run of the script executes it on some node."""
    conditions: list[bool] = []  # of each `if` and `case` around a line: whether it is only about ranks
    for number, line in enumerate(text.split("\n"), first):
        line = "" if line.lstrip().startswith("#") else COMMENT.sub("", line)
        words = line.split(maxsplit=1)
        start = words[0].rstrip(";") if words else ""
        is_certain = not conditions or conditions[-1]  # what is within a condition has that one, too
        if start in ("if", "case") and not ENDED.search(line):
            conditions.append(is_certain and start == "if" and ABOUT_RANKS.search(line) is not None)
        elif start == "elif" and conditions:
            conditions[-1] = conditions[-1] and ABOUT_RANKS.search(line) is not None
        elif start in ("fi", "esac") and conditions:
            conditions.pop()
        else:
            yield number, line, is_certain and start not in ("if", "case")
