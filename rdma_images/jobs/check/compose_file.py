"""Compose files of Docker: the services that have GPUs or RDMA devices."""

from collections.abc import Iterator
from typing import Any

from rdma_images.core.yaml_file import Path_, Written
from rdma_images.jobs.check.foreign_job import Piece, Word


def pieces(document: Written) -> Iterator[Piece]:
    """Yield a piece for each service with GPUs or RDMA devices; none for a document of another kind."""
    services = document.data.get("services") if isinstance(document.data, dict) else None
    for name, written in services.items() if isinstance(services, dict) else ():
        service = _merged(written)
        gpus = _gpus(service)
        if gpus is None and not any("infiniband" in word for word in _texts(service.get("devices"))):
            continue
        steps: Path_ = ("services", name)
        line = document.line(*steps)
        image = service.get("image")
        yield Piece(
            document.name,
            line,
            "docker",
            f"compose service {name}",
            gpus=Word(gpus, line) if gpus else None,
            image=Word(image, document.line(*steps, "image")) if isinstance(image, str) else None,
            environment={key: Word(value, line) for key, value in _environment(service.get("environment"))},
            settings={key: Word("given", line) for key in ("compose", "service", *_access(service))},
            network="host" if service.get("network_mode") == "host" else "pod",
        )


def _merged(service: object) -> dict[str, Any]:
    """Return a service with what YAML's merge key brings; an empty one for what is no service."""
    if not isinstance(service, dict):
        return {}
    bases = service.get("<<")
    merged: dict[str, Any] = {}
    for base in reversed(bases if isinstance(bases, list) else [bases]):
        merged |= _merged(base)
    return merged | service


def _gpus(service: dict[str, Any]) -> str | None:
    """Return how many GPUs a service has, "" where that is not a number; None for none."""
    deploy: Any = service
    for key in ("deploy", "resources", "reservations"):
        deploy = deploy.get(key) if isinstance(deploy, dict) else None
    reserved = deploy.get("devices") if isinstance(deploy, dict) else None
    for device in reserved if isinstance(reserved, list) else ():
        if isinstance(device, dict) and "gpu" in _texts(device.get("capabilities")):
            count = str(device.get("count") or "")
            return count if count.isdecimal() else ""
    return "" if service.get("gpus") or service.get("runtime") == "nvidia" else None


def _access(service: dict[str, Any]) -> Iterator[str]:
    """Yield what the container may: all, RDMA devices, and to lock memory; of what is elsewhere, what it may be."""
    is_elsewhere = "extends" in service
    if service.get("privileged") == "true":
        yield "privileged"
    mounted = [*_texts(service.get("devices")), *_texts(service.get("volumes"))]
    if is_elsewhere or any("/dev/infiniband" in word or "$" in word for word in mounted):
        yield "devices"
    capabilities = [word.upper().removeprefix("CAP_") for word in _texts(service.get("cap_add"))]
    if is_elsewhere or "memlock" in str(service.get("ulimits")) or {"IPC_LOCK", "ALL"} & set(capabilities):
        yield "memlock"


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
