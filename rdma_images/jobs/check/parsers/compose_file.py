"""Compose files of Docker: the services that have GPUs or RDMA devices."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rdma_images.core.yaml_file import ForeignDocument
from rdma_images.jobs.check.foreign_job import JobPart, Network, YamlNode
from rdma_images.jobs.check.parsers import docker, shell


def parts(document: ForeignDocument) -> Iterator[JobPart]:
    """Yield a part for each service with GPUs or RDMA devices; none for other documents."""
    services = YamlNode(document, document.data).lookup("services")
    hosts = sum(_with_merge_keys(definition).get("network_mode") == "host" for definition in services.mapping.values())
    for name, definition in services.mapping.items():
        service = YamlNode(document, _with_merge_keys(definition), (*services.path, name))
        gpus = _gpus(service)
        if gpus is None and not any("infiniband" in word for word in _texts(service.lookup("devices").value)):
            continue
        start = _command(service).start
        network: Network = "host" if service.lookup("network_mode").value == "host" else "pod"
        has_network = {"network_mode", "networks", "extends"} & service.mapping.keys()
        access = [*_access(service.mapping), *_default_memory(service.mapping)]
        command = service.lookup("command")
        size = docker.TENSOR_PARALLEL.search(f" {_command_text(command)}")
        yield JobPart(
            document.name,
            service.line,
            "docker",
            f"compose service {name}",
            gpus=service.with_text(gpus) if gpus else None,
            image=None if "build" in service.mapping else service.lookup("image").word,  # a name for what it builds
            environment={
                key: service.with_text(value) for key, value in _environment(service.lookup("environment").value)
            },
            traits={
                **({"tensor-parallel": command.with_text(size["size"])} if size else {}),
                **{
                    key: service.with_text("given")
                    for key in (
                        "compose",
                        *access,
                        *(() if has_network or len(services.mapping) > 1 else ("default-network",)),
                    )
                },
            },
            network=network,
            # Several "nodes" that share one host's network do meet there.
            start=replace(start, first_node=None) if network == "host" and hosts > 1 else start,
        )


def _with_merge_keys(service: object) -> dict[str, Any]:
    """Return a service with what YAML's merge key brings; an empty one for what is no service."""
    if not isinstance(service, dict):
        return {}
    bases = service.get("<<")
    merged: dict[str, Any] = {}
    for base in reversed(bases if isinstance(bases, list) else [bases]):
        merged |= _with_merge_keys(base)
    return merged | service


def _gpus(service: YamlNode) -> str | None:
    """Return how many GPUs a service has, "" where that is not a number; None for none."""
    for device in service.lookup("deploy", "resources", "reservations", "devices").items:
        if "gpu" in _texts(device.lookup("capabilities").value):
            count = str(device.lookup("count").value or "")
            return count if count.isdecimal() else ""
    # A device among the limits is refused, and was meant to be one.
    is_meant = service.lookup("gpus").value or service.lookup("deploy", "resources", "limits", "devices").value
    return "" if is_meant or service.lookup("runtime").value == "nvidia" else None


def _command(service: YamlNode) -> shell.ShellSettings:
    """Return what a service's command sets."""
    command = service.lookup("command")
    text = _command_text(command)
    return shell.read_settings(text, shell.block_start(command.line, text))


def _command_text(command: YamlNode) -> str:
    """Return a command, which may be a list of words, as a shell's text."""
    return command.value if isinstance(command.value, str) else " ".join(_texts(command.value))


def _access(service: dict[str, Any]) -> Iterator[str]:
    """Yield what the container may: all, RDMA devices, lock memory.

    With `extends` also what that file may grant.
    """
    is_elsewhere = "extends" in service
    if service.get("privileged") == "true":
        yield "privileged"
    mounted = [*_texts(service.get("devices")), *_texts(service.get("volumes"))]
    if is_elsewhere or any("/dev/infiniband" in word or "$" in word for word in mounted):
        yield "devices"
    capabilities = [word.upper().removeprefix("CAP_") for word in _texts(service.get("cap_add"))]
    if is_elsewhere or "memlock" in str(service.get("ulimits")) or {"IPC_LOCK", "ALL"} & set(capabilities):
        yield "memlock"


def _default_memory(service: dict[str, Any]) -> Iterator[str]:
    """Yield "default-shm" for a service with the default /dev/shm."""
    mounted = [*_texts(service.get("volumes")), *_texts(service.get("tmpfs"))]
    if not {"shm_size", "ipc", "extends"} & service.keys() and not any("/dev/shm" in word for word in mounted):
        yield "default-shm"


def _texts(values: object) -> list[str]:
    """Return the entries of a list, those of the long form by their source."""
    entries = values if isinstance(values, list) else []
    return [str(entry.get("source")) if isinstance(entry, dict) else str(entry) for entry in entries]


def _environment(variables: object) -> Iterator[tuple[str, str]]:
    if isinstance(variables, dict):
        yield from ((str(key), str(value)) for key, value in variables.items() if isinstance(value, str))
    for text in variables if isinstance(variables, list) else ():
        key, equals, value = str(text).partition("=")
        if equals:
            yield key, value
