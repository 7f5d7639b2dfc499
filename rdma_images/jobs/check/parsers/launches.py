"""The commands of a shell's text that start ranks or servers: torchrun, mpirun, accelerate, Ray and others."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.jobs.check.foreign_job import Launch, LocatedText, RankStart, ShellFault
from rdma_images.jobs.check.parsers import commands, option_parser
from rdma_images.jobs.check.parsers.commands import Command, ShellWord

MAX_DEPTH = 4  # commands within the words of others
# What runs the command that follows its own options.
WRAPPERS = re.compile(
    r"srun|env|sudo|numactl|taskset|timeout|nice|stdbuf|singularity|apptainer|docker|podman|nerdctl|enroot|shifter|"
    r"ssh|pdsh|clush|uv|poetry|conda|pixi|micromamba|nsys|ncu|strace|bash|sh|zsh|eval|mpirun|mpiexec|kubectl|"
    r"ibrun|jsrun|prun|parallel|horovodrun|python[\d.]*|tini|dumb-init|wait|if|while|until|source|set|ray|\$.*|"
    r".*\.sh|neuron_parallel_compile"
)
SHELL = re.compile(r"(?:ba|z|da)?sh")
# Arguments that say how many ranks a program is for: Megatron's, verl's, slime's.
SIZE = re.compile(
    r"--(?:tensor|pipeline|expert)[-_]model[-_]parallel[-_]size\b|trainer\.(?:n_gpus_per_node|nnodes)=|--actor[-_]num[-_]nodes\b"
)
EXPORTS = ("export", "declare", "typeset")
ALL_EXPORTED = (["set", "-a"], ["set", "-o"])
INHERITED = {"PATH", "LD_LIBRARY_PATH", "HOME", "USER", "PYTHONPATH", "TMPDIR", "CUDA_VISIBLE_DEVICES"}
DOUBLE_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
ESCAPED_DOLLAR = re.compile(r"(?<!\\)\\(?P<name>\$\{?[A-Za-z_]\w*)")
CONTAINERS = ("docker", "podman", "nerdctl")
NO_CONTAINER = ("build", "buildx", "push", "pull", "tag", "save")  # commands of docker's that start none
RUNS_SCRIPT = re.compile(rf"{SHELL.pattern}|source|python[\d.]*|.*\.sh")  # whose options may name a launcher
SHELL_OPTION = re.compile(r"-[a-z]*c")
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torchrun": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
}
PROGRAMS = {
    "torchrun": "torchrun",
    "ft_launcher": "ft_launcher",
    "hyperpodrun": "hyperpodrun",
    "deepspeed": "deepspeed",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "horovodrun": "horovodrun",
}
SUBCOMMANDS = {
    ("accelerate", "launch"): "accelerate",
    ("tune", "run"): "tune",
    ("ray", "start"): "ray",
    ("vllm", "serve"): "vllm",
    ("sglang", "serve"): "sglang",
}
# With torchrun's options; the restarts of the others are not torchrun's.
LIKE_TORCHRUN = ("torchrun", "ft_launcher", "hyperpodrun", "tune")
SERVERS = ("ray", "vllm", "sglang")  # whose words are all their own
PYTHON = re.compile(r"python[\d.]*")
TASK_PROGRAM = re.compile(
    r"(?:\w+[-_])?train(?:[-_]\w+)?|[a-z_]+_perf|litpose"
)  # which is one rank, as nccl-tests' are
SCRIPT = re.compile(r".*\.(?:py|sh|pyz)|-m|--module")
OPTION = re.compile(r"-{1,2}[A-Za-z]")
HYDRA = re.compile(r"\+{0,2}[a-z][\w.]*\.\w+=.*|[a-z_]\w*=.*")
# A variable that may hold options of the launcher.
OPTION_VARIABLE = re.compile(r"\$.*(?:ARG|OPT|CONF|PARAM|FLAG|LAUNCH|DIST|RDZV|TORCHRUN|@|\*)", re.IGNORECASE)
# Options by which a launcher learns of other nodes, and variables of the platforms that name them in a file.
OTHER_NODES_OPTIONS = {
    "deepspeed": {"H", "hostfile", "no_ssh", "node_rank"},
    "accelerate": {"num_machines", "config_file", "deepspeed_hostfile"},
}
NODES_FILE_VARIABLE = re.compile("DLTS_HOSTFILE|ACCELERATE_CONFIG")
# What the shell around puts in place: no other one reads it.
EXPANSION = re.compile(r"\$\([^()]*\)|`[^`]*`|\$\{[^{}]*\}|\$\w+")
STARTED_SCRIPT = re.compile(r"(?:\./|(?=\w))[\w./-]+\.(?:sh|bash)")
READS_COMMANDS = ("ssh", "sbatch")  # from its standard input, as a shell does
MPI_VARIABLE = re.compile(r"[A-Z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class _Context:
    is_certain: bool
    srun: Mapping[str, LocatedText] | None = None
    on_nodes: bool = False
    forwarder: str = ""
    forwarded_variables: frozenset[str] | None = None
    exported: Mapping[str, LocatedText] = field(default_factory=dict)
    depth: int = 0
    nested: commands.NestedReader = field(default_factory=commands.NestedReader)


def rank_start(shell_text: commands.ShellText, text: str, folder: Path | None = None) -> RankStart:
    """Return how a text starts its ranks, by its commands.

    Args:
        shell_text: its commands.
        text: the text itself.
        folder: where the scripts are that it starts; None where that is not known.
    """
    starts = launches(shell_text, folder)
    certain = [launch for launch in starts if launch.is_certain]
    elastic = [launch for launch in certain if launch.program in LIKE_TORCHRUN]
    torchruns = [launch for launch in elastic if launch.program == "torchrun"]
    mpiruns = [launch for launch in certain if launch.program == "mpirun"]
    return RankStart(
        ranks=_only_value(elastic, "nproc_per_node"),
        nodes=_only_value(certain, "nnodes"),
        restarts=_only_value(torchruns, "max_restarts"),
        first_node=_only_value(certain, "rdzv_endpoint", "master_addr", has_defaults=False),
        lone_launcher=None if NODES_FILE_VARIABLE.search(text) else next(_lone_launchers(certain), None),
        mpi_ranks=_only_value(mpiruns, "np"),
        launches=starts,
        faults=shell_text.faults,
        unexpanded=tuple(_unexpanded(shell_text)),
        assigned=shell_text.assigned,
    )


def _only_value(starts: Iterable[Launch], *names: str, has_defaults: bool = True) -> LocatedText | None:
    """Return an option's value, or its variable's default, if all launches have the same."""
    words = [launch.options[name] for launch in starts for name in names if name in launch.options]
    if has_defaults:
        words = [LocatedText(commands.expand_defaults(word.text), word.line) for word in words]
    return words[0] if len({word.text for word in words}) == 1 else None


def _lone_launchers(starts: Iterable[Launch]) -> Iterator[LocatedText]:
    """Yield the launchers whose own options, or variables in them, name no other node."""
    for launch in starts:
        names = OTHER_NODES_OPTIONS.get(launch.program)
        if names and launch.script and not (names & launch.options.keys() or launch.forwarder or launch.has_variables):
            yield LocatedText("accelerate launch" if launch.program == "accelerate" else launch.program, launch.line)


def launches(text: commands.ShellText, folder: Path | None = None) -> tuple[Launch, ...]:
    """Return the launches of a text's commands, of nested texts, and of a folder's scripts."""
    starts: list[Launch] = []
    exported: dict[str, LocatedText] = {}
    nested = commands.NestedReader()
    written: dict[str, ShellWord] = {}  # heredocs by the files that they are written to
    for command in text.commands:
        context = _Context(command.is_certain, exported=exported.copy(), nested=nested)
        if command.words[0].text == commands.HEREDOC_MARK:
            _, *words, body = command.words
            if _reads_commands(words):
                starts += _heredoc_launches(tuple(words), body, command, context)
            elif file := _written_file(words):
                written[file] = body
            continue
        if file := next((name for name in map(_base_name, command.words) if name in written), ""):
            starts += _heredoc_launches(command.words, written[file], command, context)
        elif script := _script_beside(command.words, folder):
            script_starts = _heredoc_launches(command.words, script, command, context)
            starts += (_at_line(launch, script.line) for launch in script_starts)
        if command.words[0].text in EXPORTS and command.is_certain:
            exported |= _settings(command.words[1:])
        starts += _launches_in(command.words, command, replace(context, exported=exported.copy()))
    return tuple(starts)


def _reads_commands(words: Sequence[ShellWord]) -> bool:
    """Return whether a command reads others from standard input: a shell, ssh or sbatch."""
    names = [_base_name(word) for word in words if not word.text.startswith("-")]
    reads = bool(names) and (names[0] in READS_COMMANDS or SHELL.fullmatch(names[-1]) is not None)
    return reads and not any(SHELL_OPTION.fullmatch(word.text) for word in words)


def _script_beside(words: tuple[ShellWord, ...], folder: Path | None) -> ShellWord | None:
    """Return the text of a script in a folder that a command starts, as a word of the command.

    Returns:
        None for none.
    """
    heads = [_base_name(word) for word in words if not word.text.startswith("-")]
    for word in words if folder else ():
        path = folder / word.text if folder and STARTED_SCRIPT.fullmatch(word.text) else None
        is_started = heads[0] in ("srun", "source", ".", _base_name(word)) or SHELL.fullmatch(heads[0]) is not None
        if path and is_started and path.is_file():
            try:
                return ShellWord(files.read_text(path), word.line)
            except RdmaImagesError:
                return None
    return None


def _at_line(launch: Launch, line: int) -> Launch:
    """Return a launch of another file as one in a line of this one."""

    def moved(words: Mapping[str, LocatedText]) -> dict[str, LocatedText]:
        return {name: LocatedText(word.text, line) for name, word in words.items()}

    return replace(
        launch,
        line=line,
        options=moved(launch.options),
        arguments=moved(launch.arguments),
        exported=moved(launch.exported),
    )


def _written_file(words: Sequence[ShellWord]) -> str:
    """Return the name of the file that a command writes its standard input to; "" for none."""
    names = [_base_name(word) for word in words]
    if not names or names[0] not in ("cat", "tee"):
        return ""
    for before, word in pairwise(words):
        if before.text in (">", "tee"):
            return _base_name(word)
    redirect = next((word.text for word in words if re.match(r">[^>]", word.text)), "")
    return redirect[1:].rpartition("/")[2]


def _heredoc_launches(
    words: tuple[ShellWord, ...], body: ShellWord, command: Command, context: _Context
) -> Iterator[Launch]:
    """Yield the launches of a heredoc that a command reads, or starts as a file."""
    if not words or _base_name(words[0]) in (*commands.PRINTING_COMMANDS, "chmod", "rm", "cp", "scp"):
        return
    on_nodes = body.quote == "'" or _base_name(words[0]) == "srun"
    yield from _nested_launches(body, command, _wrapper_context(words, context), on_nodes=on_nodes)


def _unexpanded(text: commands.ShellText) -> Iterator[ShellFault]:
    """Yield the variables in a quoted script that its shell does not have."""
    words = [word for command in text.commands for word in command.words if command.words[0].text in EXPORTS]
    exported = {word.text.partition("=")[0] for word in words}
    if any([word.text for word in command.words[:2]] in ALL_EXPORTED for command in text.commands):
        return
    for command in text.commands:
        names = {_base_name(word) for word in command.words}
        passed_words = " ".join(word.text for word in command.words if word.quote != "'")
        for word in () if names & {*CONTAINERS, "ssh", "pdsh"} else _quoted_scripts(command.words):
            inner = commands.parse_commands(word.text, word.line)
            for match in commands.REFERENCE.finditer(word.text):
                name = match["braced"] or match["plain"]
                if name in text.assigned - exported - inner.assigned - INHERITED and f"{name}=" not in passed_words:
                    line = word.line + word.text.count("\n", 0, match.start())
                    problem = f"{name} is set here and not exported: the shell that reads '…' finds it empty"
                    yield ShellFault(LocatedText(name, line), problem, f"write export {name}=…", "warning")
            if escaped := ESCAPED_DOLLAR.search(DOUBLE_QUOTED.sub("", word.text)):
                problem = f"\\{escaped['name']} in single quotes stays as it is: the value is not put in place"
                yield ShellFault(LocatedText(escaped["name"], word.line), problem, "leave the backslash out", "warning")


def _quoted_scripts(words: tuple[ShellWord, ...]) -> Iterator[ShellWord]:
    """Yield the texts for another shell that the shell around leaves as they are."""
    if words[0].text == commands.HEREDOC_MARK:
        yield from words[-1:] if words[-1].quote == "'" and _reads_commands(words[1:-1]) else ()
        return
    for position in range(1, len(words)):
        word = words[position]
        match = commands.HEREDOC_VALUE.fullmatch(word.text)
        if not _is_script(words, position):
            continue
        if word.quote == "'":
            yield word
        elif match and match["quote"]:
            yield ShellWord(match["body"], word.line + 1, "'")


def nested_commands(
    text: commands.ShellText, nested: commands.NestedReader | None = None, depth: int = 0
) -> Iterator[Command]:
    """Yield each command of a text, and after it those in its words, as in `bash -c …`."""
    nested = nested or commands.NestedReader()
    for command in text.commands:
        yield command
        for position in range(1, len(command.words)) if depth < MAX_DEPTH else ():
            word = command.words[position]
            is_body = command.words[0].text == commands.HEREDOC_MARK and position == len(command.words) - 1
            is_read = is_body and _reads_commands(command.words[1:-1])
            if re.search(r"\s", word.text) and (
                is_read or _is_script(command.words, position) or _is_read_again(command.words)
            ):
                inner = nested.read(word.text, word.line, {} if word.quote == "'" else command.values)
                for nested_command in nested_commands(inner, nested, depth + 1):
                    yield replace(nested_command, is_certain=nested_command.is_certain and command.is_certain)


def _is_script(words: tuple[ShellWord, ...], position: int) -> bool:
    """Return whether a word is the script of a shell, as behind bash -c."""
    return SHELL_OPTION.fullmatch(words[position - 1].text) is not None and any(
        SHELL.fullmatch(_base_name(word)) for word in words[:position]
    )


def _is_read_again(words: tuple[ShellWord, ...]) -> bool:
    """Return whether a shell reads each word of a command once more."""
    return _base_name(words[0]) in ("ssh", "eval")


def _settings(words: tuple[ShellWord, ...]) -> dict[str, LocatedText]:
    """Return the words that are NAME=value."""
    matches = ((commands.ASSIGNMENT.fullmatch(word.text), word.line) for word in words)
    return {match["name"]: LocatedText(match["value"], line) for match, line in matches if match}


def _launches_in(words: tuple[ShellWord, ...], command: Command, context: _Context) -> Iterator[Launch]:
    """Yield the launches of a command's words."""
    start = next((n for n, word in enumerate(words) if not commands.ASSIGNMENT.fullmatch(word.text)), len(words))
    context = replace(context, exported={**context.exported, **_settings(words[:start])})
    words = words[start:]
    if not words:
        return
    program, length = _program(words)
    if program in ("mpirun", "horovodrun"):
        variables = _forwarded_by_mpirun(words) if program == "mpirun" else None
        mpi_context = replace(context, forwarder=program, forwarded_variables=variables)
        yield _launch(program, words[length:], words[0].line, mpi_context)
        context = replace(context, on_nodes=True, forwarder="", forwarded_variables=None)
        yield from _wrapped_launches(words, command, context)
    elif program:
        yield _launch(program, words[length:], words[0].line, context)
    elif WRAPPERS.fullmatch(_base_name(words[0])):
        launches_behind = list(_wrapped_launches(words, command, _wrapper_context(words, context)))
        yield from launches_behind or _sized_programs(words, context)
    else:
        yield from _sized_programs(words, context)


def _sized_programs(words: tuple[ShellWord, ...], context: _Context) -> Iterator[Launch]:
    """Yield a program that starts ranks by itself, by the sizes among its arguments."""
    if any(SIZE.match(word.text) for word in words):
        yield _launch("python", words[1:], words[0].line, context)


def _base_name(word: ShellWord) -> str:
    return word.text.rpartition("/")[2]


def _wrapper_context(words: tuple[ShellWord, ...], context: _Context) -> _Context:
    """Return the context of what a wrapper starts: srun's options, forwarded variables."""
    head = _base_name(words[0])
    if head == "srun":
        return replace(context, srun=option_parser.parse("srun", words[1:]).options)
    if head in CONTAINERS and len(words) > 1 and words[1].text in ("run", "container"):
        return replace(context, forwarder="docker", forwarded_variables=_forwarded_by_docker(words))
    if head in ("ssh", "pdsh", "clush"):
        names = frozenset(re.findall(r"\b([A-Z_][A-Z0-9_]*)=", " ".join(word.text for word in words)))
        return replace(context, forwarder="ssh", forwarded_variables=names)
    return context


def _wrapped_launches(words: tuple[ShellWord, ...], command: Command, context: _Context) -> Iterator[Launch]:
    """Yield the launches behind a wrapper's options, and of the texts of other shells."""
    head = _base_name(words[0])
    if head in CONTAINERS and len(words) > 1 and words[1].text in NO_CONTAINER:
        return
    for position in range(1, len(words)):
        word = words[position]
        is_script = _is_script(words, position)
        if (is_script or _is_read_again(words)) and re.search(r"\s", word.text) and context.depth < MAX_DEPTH:
            yield from _nested_launches(word, command, context, on_nodes=word.quote == "'" and head != "eval")
            if is_script:
                return
        is_value = RUNS_SCRIPT.fullmatch(head) and words[position - 1].text.startswith("--")
        if is_value or (word.quote and re.search(r"\s", word.text)):
            continue
        nested_program, _ = _program(words[position:])
        if nested_program and nested_program != "python":
            yield from _launches_in(words[position:], command, context)
            return
    if head == "srun":
        yield from _python_launches(words, context) or _task_program(words, context)


def _nested_launches(word: ShellWord, command: Command, context: _Context, *, on_nodes: bool) -> Iterator[Launch]:
    """Yield the launches of another shell's text, with variables where they are known."""
    if match := commands.HEREDOC_VALUE.fullmatch(word.text):
        word = commands.ShellWord(match["body"], word.line + 1, match["quote"])
        on_nodes = on_nodes or word.quote != ""
    text = word.text.replace('\\"', '"').replace("\\$", "$")
    exported = {name: EXPANSION.sub("$_", value.text) for name, value in context.exported.items()}
    nested_text = context.nested.read(text, word.line, exported if on_nodes else command.values)
    context = replace(context, on_nodes=context.on_nodes or on_nodes, depth=context.depth + 1)
    for nested_command in nested_text.commands:
        yield from _launches_in(nested_command.words, nested_command, context)


def _python_launches(words: tuple[ShellWord, ...], context: _Context) -> list[Launch]:
    """Return the program of Python that srun itself starts; none for another one."""
    for position, word in enumerate(words):
        if PYTHON.fullmatch(_base_name(word)):
            is_script = any(SCRIPT.fullmatch(following.text) for following in words[position:])
            return [_launch("python", words[position + 1 :], word.line, context)] if is_script else []
    return []


def _task_program(words: tuple[ShellWord, ...], context: _Context) -> list[Launch]:
    """Return a program that srun starts and whose name is that of one rank, as a launch."""
    position = 1 + option_parser.parse("srun", words[1:]).position
    if position >= len(words) or not TASK_PROGRAM.fullmatch(_base_name(words[position])):
        return []
    return [_launch("python", words[position:], words[position].line, context)]


def _program(words: tuple[ShellWord, ...]) -> tuple[str, int]:
    """Return the launcher that words begin with, and how many of them name it; "" for none."""
    names = [_base_name(word) for word in words[:4]]
    if names[0] in PROGRAMS:
        return PROGRAMS[names[0]], 1
    if len(names) > 1 and (names[0], names[1]) in SUBCOMMANDS:
        return SUBCOMMANDS[names[0], names[1]], 2
    if PYTHON.fullmatch(names[0]) or names[0].endswith("$PYTHON"):
        position = 1
        while position < len(words) - 1 and (option := words[position].text).startswith("-"):
            if option == "-m":
                return MODULES.get(words[position + 1].text, ""), position + 2
            position += 2 if option in ("-W", "-X") else 1
    return "", 0


def _launch(program: str, words: tuple[ShellWord, ...], line: int, context: _Context) -> Launch:
    has_flags = program in option_parser.FLAGS
    parsed = option_parser.parse(program, words) if has_flags else option_parser.ParsedOptions()
    script = len(words) if program in SERVERS else parsed.position
    if program not in SERVERS and (not has_flags or _may_have_options(words, script)):
        default = 0 if program == "python" else len(words)
        script = next((n for n in range(script, len(words)) if SCRIPT.fullmatch(words[n].text)), default)
    options = {**parsed.options, **_options(words[parsed.position : script])}
    return Launch(
        program=program,
        line=line,
        options=options,
        arguments=_options(words[script + 1 :]),
        is_certain=context.is_certain,
        srun=context.srun,
        on_nodes=context.on_nodes,
        forwarder=context.forwarder,
        forwarded_variables=context.forwarded_variables,
        may_have_more_options=any(OPTION_VARIABLE.match(word.text) for word in words[:script]),
        exported=context.exported,
        visible_devices=context.exported.get("CUDA_VISIBLE_DEVICES"),
        script=words[script].text if script < len(words) else "",
        has_variables=any("$" in word.text for word in words[: script + 1]),
    )


def _may_have_options(words: tuple[ShellWord, ...], position: int) -> bool:
    """Return whether a word is a variable that may hold options, and not the program."""
    return position < len(words) and words[position].text.startswith("$") and not words[position].quote


def _options(words: tuple[ShellWord, ...]) -> dict[str, LocatedText]:
    """Return options by name, the last of each, of a program whose options are not known."""
    options: dict[str, LocatedText] = {}
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else None
        if OPTION.match(word.text):
            name, equals, value = word.text.partition("=")
            if not equals and following and not OPTION.match(following.text):
                value = following.text
            options[name.lstrip("-").replace("-", "_")] = LocatedText(value, word.line)
        elif HYDRA.fullmatch(word.text):
            name, _, value = word.text.lstrip("+").partition("=")
            options[name] = LocatedText(value, word.line)
    return options


def _forwarded_by_mpirun(words: tuple[ShellWord, ...]) -> frozenset[str] | None:
    """Return the variables that mpirun sends with -x; None for another MPI's options."""
    texts = [word.text for word in words]
    if any(text.startswith(("-genv", "-env", "-ppn")) for text in texts) or "mca_base_env_list" in texts:
        return None
    names = {after.partition("=")[0] for before, after in pairwise(texts) if before == "-x"}
    return None if any(not MPI_VARIABLE.fullmatch(name) for name in names) else frozenset(names)


def _forwarded_by_docker(words: tuple[ShellWord, ...]) -> frozenset[str] | None:
    """Return the variables that a container gets by its command line.

    Returns:
        None where a file or a variable has more.
    """
    texts = [word.text for word in words]
    if any(text.startswith(("--env-file", "$", "-e$")) or text == "--env-host" for text in texts):
        return None
    names = {text.removeprefix("--env=") for text in texts if text.startswith("--env=")}
    names |= {after for before, after in pairwise(texts) if before in ("-e", "--env")}
    names |= {text[2:] for text in texts if re.match(r"-e[A-Z]", text)}
    return frozenset(name.partition("=")[0] for name in names)
