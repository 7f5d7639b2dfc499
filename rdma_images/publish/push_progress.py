"""Read the events of docker's push: the progress of each layer, lines that show it, and errors."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rdma_images.core.sizes import format_bytes
from rdma_images.registry import registry_errors

_SECONDS_BETWEEN_LINES = 10.0

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


class LineProgress:
    """The lines of a publication: its steps, and every ten seconds how far a push is."""

    def __init__(self, write_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.write_line = write_line
        self._clock = clock
        self._last = clock()

    def update(self, push: PushProgress) -> None:
        """Write a line when the last is old enough."""
        if self._clock() - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = self._clock()
        layers = push.layers.values()
        finished = sum(layer.state in ("pushed", "mounted", "present") for layer in layers)
        total = sum(layer.total for layer in layers)
        self.write_line(
            f"  {finished} of {len(layers)} layers, {format_bytes(push.sent())} of {format_bytes(total)} sent"
        )


class _Fault(NamedTuple):
    """A kind of fault of a push, with the words and statuses in docker's message that tell it."""

    error: type[registry_errors.RegistryError]
    meaning: str
    fix: str
    words: tuple[str, ...]
    statuses: tuple[int, ...] = ()


# The words are docker's, containerd's and Go's network library's; the first that is found decides. A busy registry is
# asked again before the error is shown.
_FAULTS = (
    _Fault(
        registry_errors.ConflictError,
        "the tag is immutable",
        "set immutable in registries.yaml, so that a rebuild gets a tag of its own",
        ("immutable",),
    ),
    _Fault(
        registry_errors.UnauthorizedError,
        "it does not take the credentials, or wants some",
        "check the credentials in registries.yaml, or log in with docker",
        ("no basic auth credentials", "unauthorized", "authentication required", "authorization failed"),
        (401,),
    ),
    _Fault(
        registry_errors.DeniedError,
        "the credentials do not allow a push",
        "ask for the right to push there, and check that it is not a mirror",
        ("insufficient_scope", "denied", "forbidden", "405 method not allowed"),
        (403,),
    ),
    _Fault(
        registry_errors.MissingError,
        "the repository does not exist",
        "create the repository, or correct its name in registries.yaml",
        ("name unknown", "repository does not exist"),
        (404,),
    ),
    _Fault(registry_errors.UnknownHostError, "unknown host", "check how the host is written", ("no such host",)),
    _Fault(
        registry_errors.UnreachableError,
        "the engine does not reach it",
        "check that the engine reaches the registry, and trusts its certificate",
        ("connection refused", "i/o timeout", "tls: ", "x509: ", "server gave http response"),
    ),
    _Fault(
        registry_errors.BusyError,
        "it is busy, or the connection was cut",
        "publish again later: what arrived is kept",
        ("connection reset", "broken pipe", "use of closed network connection", "eof"),
        (408, 429, 502, 503, 504),
    ),
    # A registry out of disk says no more than a status of 500 (docker-registry 2.8).
    _Fault(
        registry_errors.BusyError,
        "the registry itself fails, as with a full disk",
        "look into its log",
        ("no space left",),
        (500,),
    ),
)


def push_error(host: str, subject: str, text: str) -> registry_errors.RegistryError:
    """Return the RegistryError that the error text of a push stands for."""
    lowered = text.lower()
    masked = registry_errors.mask_secrets(" ".join(text.split()))[:400]
    statuses = set(map(int, _STATUS.findall(text)))
    by_words = (fault for fault in _FAULTS if any(registry_errors.has_words(lowered, word) for word in fault.words))
    by_status = (fault for fault in _FAULTS if statuses.intersection(fault.statuses))
    fault = next(by_words, None) or next(by_status, None)
    if fault is None:
        return registry_errors.RegistryError(
            f"{host}: {subject} was not pushed ({masked})\nlook into the registry's and the engine's logs"
        )
    return fault.error(f"{host}: {subject} was not pushed: {fault.meaning} ({masked})\n{fault.fix}")
