"""What a shell's lines set for a job: variables, images, and how many ranks and nodes torchrun starts."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rdma_images.jobs.check.foreign_job import Word

VALUE = r"'[^']*'|\"[^\"]*\"|[^\s;]*"
PAIR = re.compile(rf"(?<![\w$]){r'(?P<name>[A-Z][A-Z0-9_]*)'}=(?P<value>{VALUE})")
EXPORT = re.compile(r"\s*(?:export|declare\s+-x)\s+(?P<pairs>.+)")
UNSET = re.compile(r"\s*unset\s+(?P<names>[A-Z0-9_\s]+)$")
BEFORE_COMMAND = re.compile(rf"\s*(?P<pairs>(?:[A-Z][A-Z0-9_]*=(?:{VALUE})\s+)+)[a-z./$]")
OF_MPIRUN = re.compile(rf"(?<!\S)-x\s+(?P<name>[A-Z][A-Z0-9_]*)=(?P<value>{VALUE})")
OF_SRUN = re.compile(r"--export[= ](?P<pairs>\S+=\S+)")
ASSIGNMENT = re.compile(rf"\s*(?:export\s+|readonly\s+|local\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>{VALUE})\s*$")
DEFAULT = re.compile(r"\s*:\s+\"?\$\{(?P<name>\w+):?=(?P<value>[^}]*)\}")
REFERENCE = re.compile(r"\$(?:\{(?P<braced>\w+)(?::?-(?P<default>[^}$]*))?\}|(?P<plain>\w+))")
IMAGE = re.compile(rf"--container-image[= ]\s*(?P<image>{VALUE})")
CONTAINER_ENV = re.compile(r"--container-env[= ](?P<names>[A-Z0-9_,]+)")
RANKS = re.compile(r"--nproc[-_]per[-_]node[= ](?P<value>\"?[\w${}:-]+)")
NODES = re.compile(r"--nnodes[= ](?P<value>\"?[\w${}:-]+)")
COMMENT = re.compile(r"(?:^|\s)#.*")
# A condition that only says which rank or node does something: what it guards happens in every run of the job.
ABOUT_RANKS = re.compile(r"RANK|PROCID|NODEID|hostname|head|master", re.IGNORECASE)


@dataclass(frozen=True)
class Lines:
    """What was read. A variable that some condition may leave out is not among them, nor is an unset one."""

    variables: Mapping[str, Word]
    images: tuple[Word, ...]
    container_env: Word | None
    ranks: Word | None  # of torchrun on each node; None where it is not written, or different in several places
    rank_nodes: Word | None


def read(text: str, first: int = 1) -> Lines:
    """Return what the lines of a shell set; `first` is the number of the first line."""
    variables: dict[str, Word] = {}
    plain: dict[str, str] = {}
    images: dict[str, Word] = {}
    ranks: dict[str, Word] = {}
    nodes: dict[str, Word] = {}
    container_env = None
    for number, line in _unconditional(text, first):
        for name, value in _set_by(line):
            variables[name] = Word(value, number)
        if match := UNSET.match(line):
            for name in match["names"].split():
                variables.pop(name, None)
        if match := ASSIGNMENT.match(line) or DEFAULT.match(line):
            plain[match["name"]] = match["value"].strip("'\"")
        for pattern, words, group in ((IMAGE, images, "image"), (RANKS, ranks, "value"), (NODES, nodes, "value")):
            for match in pattern.finditer(line):
                word = resolved(match[group].strip("'\""), plain)
                words.setdefault(word, Word(word, number))
        if match := CONTAINER_ENV.search(line):
            container_env = Word(match["names"], number)
    return Lines(variables, tuple(images.values()), container_env, _only(ranks), _only(nodes))


def resolved(text: str, values: Mapping[str, str]) -> str:
    """Return a word with the variables in place that the script itself gives a plain value; others stay as written."""

    def value(match: re.Match[str]) -> str:
        known = values.get(match["braced"] or match["plain"], match["default"])
        return match[0] if known is None or "$(" in known or "`" in known else known

    for _ in range(3):  # a value may name another variable
        text = REFERENCE.sub(value, text)
    return text


def block_start(line: int, text: str) -> int:
    """Return the line of the first line of a YAML text whose key is in `line`."""
    return line + 1 if "\n" in text else line


def _only(words: Mapping[str, Word]) -> Word | None:
    return next(iter(words.values())) if len(words) == 1 else None


def _set_by(line: str) -> Iterator[tuple[str, str]]:
    """Yield the variables that a line sets for what runs after it, or in it."""
    for pattern in (EXPORT, BEFORE_COMMAND):
        if match := pattern.match(line):
            yield from ((pair["name"], pair["value"].strip("'\"")) for pair in PAIR.finditer(match["pairs"]))
    for match in OF_MPIRUN.finditer(line):
        yield match["name"], match["value"].strip("'\"")
    if match := OF_SRUN.search(line):
        for pair in match["pairs"].split(","):
            name, equals, value = pair.partition("=")
            if equals and name.isupper():
                yield name, value


def _unconditional(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Yield the lines that every run of the script executes on some node, without comments, each with its number."""
    conditions: list[bool] = []  # of each `if` and `case` around a line: whether it is only about ranks
    for number, line in enumerate(text.split("\n"), first):
        line = "" if line.lstrip().startswith("#") else COMMENT.sub("", line)
        words = line.split()
        start = words[0] if words else ""
        if start == "if" and words[-1] in ("fi", "fi;"):
            continue
        if start in ("if", "case"):
            conditions.append(start == "if" and ABOUT_RANKS.search(line) is not None)
        elif start == "elif" and conditions:
            conditions[-1] = conditions[-1] and ABOUT_RANKS.search(line) is not None
        elif start.rstrip(";") in ("fi", "esac") and conditions:
            conditions.pop()
        elif all(conditions):
            yield number, line
