"""Read the events of docker's push: the progress of each layer, and errors."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rdma_images.core.sizes import format_bytes
from rdma_images.registry import registry_errors

LayerState = Literal["waiting", "pushing", "pushed", "mounted", "present"]

_DONE: dict[str, LayerState] = {"Pushed": "pushed", "Layer already exists": "present"}
_DIGEST = re.compile(r": digest: (sha256:[0-9a-f]{64}) size: \d+")
_STATUS = re.compile(r"(?:status(?: code)?(?: from \S+ request to \S+)?:?|: ) ?(\d{3})\b")


@dataclass
class LayerProgress:
    """The progress of one layer; `id` is docker's short digest, sizes are in bytes."""

    id: str
    state: LayerState = "waiting"
    current: int = 0
    total: int = 0


@dataclass
class PushProgress:
    """The state of one push, from its events so far."""

    layers: dict[str, LayerProgress] = field(default_factory=dict)
    digest: str | None = None  # what docker says it has pushed

    def sent(self) -> int:
        """Return the bytes sent so far."""
        return sum(layer.current for layer in self.layers.values())

    def description(self) -> str:
        """Return how much of the image has been sent."""
        layers = self.layers.values()
        finished = sum(layer.state in ("pushed", "mounted", "present") for layer in layers)
        total = sum(layer.total for layer in layers)
        return f"{finished} of {len(layers)} layers, {format_bytes(self.sent())} of {format_bytes(total)} sent"

    def snapshot(self) -> tuple[int, tuple[LayerState, ...]]:
        """Return a value that changes with all progress; the same value means a stall."""
        return self.sent(), tuple(layer.state for layer in self.layers.values())

    def update(self, event: dict[str, Any], host: str, subject: str) -> None:
        """Apply one event. Raises the RegistryError that the event carries."""
        if "error" in event or "errorDetail" in event:
            detail = event.get("errorDetail") or {}
            raise push_error(
                host, subject, str(event.get("error") or detail.get("message") or "docker gives no reason")
            )
        status = str(event.get("status", ""))
        if digest := _DIGEST.search(status):
            self.digest = digest[1]
        layer_id = event.get("id")
        if not layer_id:
            return
        layer = self.layers.setdefault(layer_id, LayerProgress(layer_id))
        detail = event.get("progressDetail") or {}
        layer.current = max(layer.current, int(detail.get("current") or 0))
        layer.total = max(layer.total, int(detail.get("total") or 0))
        if status.startswith("Mounted from"):
            layer.state = "mounted"
        elif status == "Pushing":
            layer.state = "pushing"
        else:
            layer.state = _DONE.get(status, layer.state)
        if layer.state == "pushed":
            layer.current = max(layer.current, layer.total)


class _Fault(NamedTuple):
    """A kind of fault of a push, with the words and statuses in docker's message that tell it."""

    error: type[registry_errors.RegistryError]
    fix: str
    words: tuple[str, ...]
    statuses: tuple[int, ...] = ()


# The words are docker's, containerd's and Go's network library's; the first that is found decides. A busy registry is
# asked again before the error is shown; one out of disk says no more than a status of 500 (docker-registry 2.8).
_FAULTS = (
    _Fault(
        registry_errors.ConflictError,
        "set immutable in registries.yaml, so that a rebuild gets a tag of its own",
        ("immutable",),
    ),
    _Fault(
        registry_errors.UnauthorizedError,
        "check the credentials in registries.yaml, or log in with docker",
        ("no basic auth credentials", "unauthorized", "authentication required", "authorization failed"),
        (401,),
    ),
    _Fault(
        registry_errors.DeniedError,
        "ask for the right to push there, and check that it is not a mirror",
        ("insufficient_scope", "denied", "forbidden", "405 method not allowed"),
        (403,),
    ),
    _Fault(
        registry_errors.MissingError,
        "create the repository, or correct its name in registries.yaml",
        ("name unknown", "repository does not exist"),
        (404,),
    ),
    _Fault(
        registry_errors.UnreachableError,
        "check that the engine reaches the registry, and trusts its certificate",
        ("no such host", "connection refused", "i/o timeout", "tls: ", "x509: ", "server gave http response"),
    ),
    _Fault(
        registry_errors.BusyError,
        "publish again later: what arrived is kept; if it fails again, look for a full disk in the registry's log",
        ("connection reset", "broken pipe", "use of closed network connection", "eof", "no space left"),
        (408, 429, 500, 502, 503, 504),
    ),
)


def push_error(host: str, subject: str, text: str) -> registry_errors.RegistryError:
    """Return the RegistryError that the error text of a push stands for."""
    lowered = text.lower()
    masked = registry_errors.mask_secrets(" ".join(text.split()))[:400]
    statuses = set(map(int, _STATUS.findall(text)))
    by_words = (fault for fault in _FAULTS if any(registry_errors.has_words(lowered, word) for word in fault.words))
    by_status = (fault for fault in _FAULTS if statuses.intersection(fault.statuses))
    unknown = _Fault(registry_errors.RegistryError, "look into the registry's and the engine's logs", ())
    fault = next(by_words, None) or next(by_status, unknown)
    return fault.error(f"{host}: {subject} was not pushed: {masked}\n{fault.fix}")
