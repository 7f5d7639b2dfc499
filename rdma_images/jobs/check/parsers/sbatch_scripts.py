"""sbatch scripts, `sbatch --wrap`, and scripts that srun starts on each node."""

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rdma_images.jobs.check.foreign_job import JobPart, LocatedText, ShellFault, Trait
from rdma_images.jobs.check.parsers import commands, option_parser, shell
from rdma_images.jobs.check.parsers.commands import ShellWord

WRAP = re.compile(r"\bsbatch\b[^#\n]*(?:\\\n[^\n]*)*--wrap\b")
LOWER_DIRECTIVE = re.compile(r"^#sbatch[ \t]+(?P<option>--?[A-Za-z]\S*)", re.MULTILINE)
CLEAN_CONTAINER = re.compile(
    r"^[^#\n]*\bsrun\b[^#\n]*\b(?P<program>singularity|apptainer)[ \t]+(?:exec|run)\b(?:(?!\.sif\b|://|\$)[^#\n])*[ \t]"
    r"(?:-e|--cleanenv|-C|--containall)\s",
    re.MULTILINE,
)
LIGHTNING = re.compile(
    r"\b(?:pytorch[-_])?lightning\b|\blitpose\b|\btrainer\.(?:devices|num_nodes|gpus)=", re.IGNORECASE
)
DIRECTIVE = re.compile(r"^[ \t]*#SBATCH[ \t]+(?P<option>--?[A-Za-z][^\n]*)", re.MULTILINE)
# torchrun on a node of Slurm's, by what Slurm says of that node.
ON_EACH_NODE = re.compile(r"--node[-_]rank[= ]\"?\$\{?SLURM_(?:NODEID|PROCID)")
GRES = re.compile(r"(?:^|,)gpu:(?:[\w.-]+:)?(?P<count>\d+)(?:\(|,|$)")
SRUN = re.compile(r"^[^#\n]*\bsrun\b", re.MULTILINE)
# A program that runs where the script does, on the first node, and whatever may start others.
PYTHON = re.compile(
    r"^[ \t]*(?:[A-Z][A-Z0-9_]*=\S*[ \t]+)*python[\d.]*[ \t]+(?!-c\b|-m[ \t]+(?:venv|pip)\b)\S", re.MULTILINE
)
STARTERS = r"srun|mpirun|mpiexec|ibrun|jsrun|prun|pdsh|clush|ssh|sbatch|parallel|ray|run\w*|launch\w*|submit\w*"
STARTS_TORCHRUN = re.compile(rf"\b(?:{STARTERS})\b|\.sh\b|\$\{{?\w*(?:CMD|LAUNCH|RUN)")
STARTS_OTHERS = re.compile(
    rf"{STARTS_TORCHRUN.pattern}|\b(?:horovodrun|torchrun|deepspeed|accelerate|dask|source)\b", re.IGNORECASE
)
HOST_QUERY = re.compile(r"\$\(\s*srun\b[^()]*\bhostname\b[^()]*\)")  # a word that srun asks the first node for
ACTIVATION = re.compile(r"^.*\bactivate\b.*$", re.MULTILINE)  # of an environment
COUNT = re.compile(r"(?:[\w.-]+:)?(?P<count>\d+)")
EARLY_RANK = re.compile(r"--(?:machine|node)[_-]rank[= ]\s*(?P<value>\$\{?SLURM_(?:PROCID|NODEID)\b\}?)")
# What a shell reads as one: a comment, a character behind a backslash, text in single quotes.
LITERAL = re.compile(r"(?:(?<=\s)|^)#[^\n]*|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL | re.MULTILINE)
FIRST_COMMAND = re.compile(r"^[ \t]*[^#\s]", re.MULTILINE)
NODE_COUNTS = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
SOME_NODES = re.compile(r"\b(?:if|case)\b[^\n]*\bSLURM_(?:PROCID|NODEID)\b")
NODES_OPTION = re.compile(r"(?<!\S)(?:-N[ =]?|--nodes[= ])\S")


def is_script(text: str) -> bool:
    """Return whether a text is an sbatch script, or one that srun starts on each node."""
    return bool(DIRECTIVE.search(text) or ON_EACH_NODE.search(text))


def begins_with_directive(text: str) -> bool:
    """Return whether a directive stands before the first command."""
    directive, command = DIRECTIVE.search(text), FIRST_COMMAND.search(text)
    return directive is not None and (command is None or directive.start() < command.start())


def parts(text: str, name: str) -> Iterator[JobPart]:
    """Yield the parts of a script."""
    if DIRECTIVE.search(text):
        yield _slurm(text, name, "sbatch script")
    elif ON_EACH_NODE.search(text):
        yield _slurm(text, name, "script of each node")
    else:
        yield from _wrapped_commands(text, name)


def launch_parts(text: str, name: str) -> Iterator[JobPart]:
    """Yield the part of a shell's script that starts ranks or servers without a scheduler."""
    script_settings = shell.read_settings(text)
    start = script_settings.start
    if name.endswith(".txt") and not text.startswith("#!"):  # which may be prose, with apostrophes
        start = replace(start, faults=())
    if start.launches:
        launch = start.launches[0]
        yield JobPart(
            name,
            launch.line,
            "script",
            f"script with {launch.program}",
            environment=script_settings.variables,
            network="host",
            start=start,
        )


def _slurm(text: str, name: str, title: str) -> JobPart:
    starts = shell.line_starts(text)
    options = _directives(text, starts)
    nodes = options.get("nodes")
    initial_values = dict.fromkeys(NODE_COUNTS, nodes.text) if nodes and nodes.number else {}
    script_settings = shell.read_settings(text, initial_values=initial_values, folder=Path(name).parent)
    images = tuple(LocatedText(word.text.removeprefix("docker://"), word.line) for word in script_settings.images)
    if directive := options.get("container_image"):
        images = (LocatedText(directive.text.removeprefix("docker://"), directive.line), *images)
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    code = HOST_QUERY.sub("", code)
    lone_launcher = (
        script_settings.start.lone_launcher or _lone_program(code, options) or _lone_torchrun(code, script_settings)
    )
    unexpanded = (*script_settings.start.unexpanded, *_unexpanded_directives(text, options))
    start = replace(script_settings.start, lone_launcher=lone_launcher, unexpanded=unexpanded)
    # An srun or a loop with a number of nodes of its own may start several jobs of fewer nodes; so may a condition.
    if NODES_OPTION.search(code):
        start = replace(start, nodes=None, lone_launcher=None)
    elif SOME_NODES.search(code):
        start = replace(start, nodes=None)
    return JobPart(
        name,
        min((word.line for word in options.values()), default=1),
        "slurm",
        title,
        nodes=nodes,
        gpus=_gpus(options),
        image=images[0] if images else None,
        environment=script_settings.variables,
        options=options,
        traits=_traits(text, options, script_settings),
        network="host",
        start=start,
        more_images=images[1:],
    )


def _traits(
    text: str, options: Mapping[str, LocatedText], script_settings: shell.ShellSettings
) -> dict[Trait, LocatedText]:
    """Return what a script says beside its options and variables."""
    starts = shell.line_starts(text)
    traits: dict[Trait, LocatedText] = {}
    if container_env := script_settings.container_env or options.get("container_env"):
        traits["container-env"] = container_env
    if SRUN.search(text):
        traits["srun"] = LocatedText("srun", 1)
    if late_match := _late_directive(text):
        traits["late-directive"] = LocatedText(
            re.split(r"[=\s]", late_match["option"])[0], bisect_right(starts, late_match.start("option"))
        )
    if options and (match := LOWER_DIRECTIVE.search(text)):
        traits["lower-directive"] = LocatedText(match["option"], bisect_right(starts, match.start()))
    if LIGHTNING.search(text):
        traits["lightning"] = LocatedText("given", 1)
    if match := CLEAN_CONTAINER.search(text):
        traits["clean-container"] = LocatedText(match["program"], bisect_right(starts, match.start()))
    if options and not text.startswith("#!"):
        traits["no-shebang"] = LocatedText("#SBATCH", 1)
    if options and (rank_match := _early_rank(text)):
        traits["early-rank"] = LocatedText(rank_match["value"], bisect_right(starts, rank_match.start("value")))
    return traits


def _wrapped_commands(text: str, name: str) -> Iterator[JobPart]:
    """Yield the part of each `sbatch --wrap` of a shell's script."""
    for command in commands.parse_commands(text).commands if WRAP.search(text) else ():
        parsed = option_parser.parse("sbatch", command.words[1:])
        options = parsed.options
        if command.words[0].text != "sbatch" or "wrap" not in options:
            continue
        script_settings = shell.read_settings(options["wrap"].text, options["wrap"].line)
        yield JobPart(
            name,
            command.line,
            "slurm",
            "sbatch --wrap",
            nodes=options.get("nodes"),
            gpus=_gpus(options),
            environment=script_settings.variables,
            options=options,
            network="host",
            start=script_settings.start,
        )


def _directives(text: str, starts: list[int]) -> dict[str, LocatedText]:
    """Return the options of all directives."""
    words: list[ShellWord] = []
    for match in DIRECTIVE.finditer(text):
        line = bisect_right(starts, match.start("option"))
        words += [ShellWord(word, line) for word in _split(match["option"])]
    return option_parser.parse("sbatch", words).options


def _unexpanded_directives(text: str, directives: Mapping[str, LocatedText]) -> Iterator[ShellFault]:
    """Yield the directives with a variable, unless another shell may put it in place."""
    for name, word in directives.items() if "<<" not in text else ():
        if "$" in word.text:
            problem = f"#SBATCH --{name.replace('_', '-')} has {word.text[:40]}: sbatch puts no variable in place"
            yield ShellFault(word, problem, "write the value, or give it on sbatch's command line", "warning")


def _split(text: str) -> list[str]:
    """Return the words of a directive, up to a comment."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _late_directive(text: str) -> re.Match[str] | None:
    """Return the first directive after the first command, which sbatch does not read any more."""
    command = FIRST_COMMAND.search(text)
    return DIRECTIVE.search(text, command.start()) if command and "<<" not in text else None


def _early_rank(text: str) -> re.Match[str] | None:
    """Return a node's rank that the script's own shell puts in place, before srun starts."""
    if "<<" in text:  # which may quote it
        return None
    literal = LITERAL.sub(lambda match: match[0] if match[0].startswith('"') else " " * len(match[0]), text)
    return EARLY_RANK.search(literal)


def _lone_program(code: str, options: Mapping[str, LocatedText]) -> LocatedText | None:
    """Return the first Python program of a script that starts nothing on other nodes."""
    program = PYTHON.search(code)
    if not options or not program or STARTS_OTHERS.search(ACTIVATION.sub("", code)):
        return None
    return LocatedText("python", next(iter(options.values())).line)


def _lone_torchrun(code: str, script_settings: shell.ShellSettings) -> LocatedText | None:
    """Return torchrun in a script in which nothing can start it on other nodes."""
    if STARTS_TORCHRUN.search(ACTIVATION.sub("", code)):
        return None
    launch = next((launch for launch in script_settings.start.launches if launch.program == "torchrun"), None)
    return LocatedText("torchrun", launch.line) if launch and launch.is_certain else None


def _gpus(options: Mapping[str, LocatedText]) -> LocatedText | None:
    """Return the GPUs of each node, as a number where one is written."""
    if (word := options.get("gpus_per_node")) and (match := COUNT.fullmatch(word.text)):
        return LocatedText(match["count"], word.line)
    if (word := options.get("gres")) and (match := GRES.search(word.text)):
        return LocatedText(match["count"], word.line)
    nodes, tasks = options.get("nodes"), options.get("ntasks_per_node")
    for name, divisor in (("gpus", nodes), ("gpus_per_task", None)):
        if (word := options.get(name)) and (match := COUNT.fullmatch(word.text)):
            count = int(match["count"][:9])
            if name == "gpus_per_task":
                return LocatedText(str(count * tasks.number), word.line) if tasks and tasks.number else None
            if divisor and divisor.number and count % divisor.number == 0:
                return LocatedText(str(count // divisor.number), word.line)
    return None
