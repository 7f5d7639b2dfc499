"""`docker run` command lines that give a container GPUs."""

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from rdma_images.jobs.check.foreign_job import JobPart, LocatedText, Trait
from rdma_images.jobs.check.parsers import option_parser, shell
from rdma_images.jobs.check.parsers.commands import ShellWord

RUN = re.compile(r"(?<![\w-])(?:docker|nerdctl|podman)\s+(?:container\s+)?run\s(?P<rest>[^\n]*)")
TENSOR_PARALLEL = re.compile(r"\s(?:--tensor-parallel-size|--tp-size|--tp|-tp)[=\s]\s*(?P<size>\d+)")
GPUS = re.compile(r"(?:count=|^)(?P<count>\d+)$")
GPU_DEVICES = re.compile(r'device=(?P<names>[^"]+)')  # a list in quotes, before other settings


def parts(text: str, file: str) -> Iterator[JobPart]:
    """Yield a part for each command line with GPUs or RDMA devices."""
    if not RUN.search(text):
        return
    joined = re.sub(r"\\\n", lambda _: "\\ ", text)  # a line that goes on, as one of the same length
    lines = shell.read_settings(text)
    starts = shell.line_starts(text)
    has_several = len(RUN.findall(joined)) > 1
    for match in RUN.finditer(joined):
        line = bisect_right(starts, match.start())
        if "#" in text[starts[line - 1] : match.start()]:
            continue  # in a comment
        parsed, image = _parse(match["rest"].replace("\\ ", " "), line)
        options: dict[str, list[str]] = {}
        for option, word in parsed.occurrences:
            options.setdefault(option, []).append(word.text)
        if not _is_job(options):
            continue
        pairs = [value.partition("=") for value in options.get("env", ())]
        networks = options.get("network", [])
        gpus = next((count for value in options.get("gpus", ()) if (count := _gpus(value))), "")
        traits = {right: LocatedText("given", line) for right, granted in _access(options).items() if granted}
        if not _has_shared_memory(options) and "$" not in image:
            traits["default-shm"] = LocatedText("docker run", line)
        if size := TENSOR_PARALLEL.search(match["rest"]):  # of an image whose entrypoint is a server
            traits["tensor-parallel"] = LocatedText(size["size"], line)
        if not networks and not has_several and "$" not in image:
            traits["default-network"] = LocatedText("docker run", line)
        yield JobPart(
            file,
            line,
            "docker",
            "docker run",
            gpus=LocatedText(gpus, line) if gpus else None,
            image=LocatedText(image, line) if image else None,
            environment={key: LocatedText(value, line) for key, equals, value in pairs if equals},
            traits=traits,
            network="host" if networks == ["host"] else "pod",
            # Several "nodes" that share one host's network do meet there.
            start=replace(
                lines.start,
                first_node=None if has_several and networks == ["host"] else lines.start.first_node,
            ),
        )


def _gpus(value: str) -> str:
    """Return how many GPUs `--gpus` asks for, as a number or a list; "" if it does not say."""
    if devices := GPU_DEVICES.search(value):
        return str(sum("=" not in name for name in devices["names"].split(",")))
    count = GPUS.search(value)
    return count["count"] if count else ""


def _is_job(options: dict[str, list[str]]) -> bool:
    devices = options.get("device", [])
    return (
        "gpus" in options or options.get("runtime") == ["nvidia"] or any("infiniband" in device for device in devices)
    )


def _access(options: dict[str, list[str]]) -> dict[Trait, bool]:
    """Return what the container may: all, RDMA devices, and to lock memory."""
    devices = [value for key in ("device", "volume", "mount") for value in options.get(key, ())]
    capabilities = [value.upper().removeprefix("CAP_") for value in options.get("cap_add", ())]
    return {
        "privileged": "privileged" in options,
        "devices": any("/dev/infiniband" in value or "$" in value for value in devices),
        "memlock": any(value.startswith(("memlock", "$")) for value in options.get("ulimit", ()))
        or any(name in ("IPC_LOCK", "ALL") for name in capabilities),
    }


def _has_shared_memory(options: dict[str, list[str]]) -> bool:
    """Return whether the container has more than the default /dev/shm."""
    mounted = [value for key in ("volume", "mount", "tmpfs") for value in options.get(key, ())]
    return "shm_size" in options or "ipc" in options or any("/dev/shm" in value or "$" in value for value in mounted)


def _parse(text: str, line: int) -> tuple[option_parser.ParsedOptions, str]:
    """Return the options of a command line, and its image; "" for none."""
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that ends in another line, which is of the command in the container
        words = text.split()
    parsed = option_parser.parse("docker run", [ShellWord(word, line) for word in words])
    return parsed, words[parsed.position] if parsed.position < len(words) else ""
