"""Read the events of docker's push: the progress of each layer, and errors."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

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


_IMMUTABLE = "the tag is immutable"
# Fixes by the kind of fault; a busy registry is asked again before the error is shown.
_FIXES: dict[type[registry_errors.RegistryError], str] = {
    registry_errors.ConflictError: "set immutable in registries.yaml, so that a rebuild gets a tag of its own",
    registry_errors.UnauthorizedError: "check the credentials in registries.yaml, or log in with docker",
    registry_errors.DeniedError: "ask for the right to push there, and check that it is not a mirror",
    registry_errors.MissingError: "create the repository, or correct its name in registries.yaml",
    registry_errors.UnknownHostError: "check how the host is written",
    registry_errors.UnreachableError: "check that the engine reaches the registry, and trusts its certificate",
    registry_errors.BusyError: "publish again later: what arrived is kept",
}
_OTHER = "look into the registry's and the engine's logs"
# The words are docker's, containerd's and Go's network library's; the first that is found decides.
_WORDS: tuple[tuple[str, type[registry_errors.RegistryError], str], ...] = (
    ("immutable", registry_errors.ConflictError, _IMMUTABLE),
    ("no basic auth credentials", registry_errors.UnauthorizedError, "it asks for credentials"),
    ("unauthorized", registry_errors.UnauthorizedError, "it does not take the credentials"),
    ("authentication required", registry_errors.UnauthorizedError, "it does not take the credentials"),
    ("authorization failed", registry_errors.UnauthorizedError, "it does not take the credentials"),
    ("insufficient_scope", registry_errors.DeniedError, "the credentials do not allow a push"),
    ("denied", registry_errors.DeniedError, "the credentials do not allow a push"),
    ("forbidden", registry_errors.DeniedError, "the credentials do not allow a push"),
    ("405 method not allowed", registry_errors.DeniedError, "it takes no push"),
    ("no space left", registry_errors.BusyError, "its disk is full"),
    ("name unknown", registry_errors.MissingError, "the repository does not exist"),
    ("repository does not exist", registry_errors.MissingError, "the repository does not exist"),
    ("connection refused", registry_errors.UnreachableError, "the connection is refused"),
    ("no such host", registry_errors.UnknownHostError, "unknown host"),
    ("i/o timeout", registry_errors.UnreachableError, "no answer"),
    ("tls: ", registry_errors.UnreachableError, "the engine does not trust its certificate"),
    ("x509: ", registry_errors.UnreachableError, "the engine does not trust its certificate"),
    (
        "server gave http response",
        registry_errors.UnreachableError,
        "it speaks plain HTTP, for which the engine is not configured",
    ),
    ("connection reset", registry_errors.BusyError, "the connection was cut"),
    ("broken pipe", registry_errors.BusyError, "the connection was cut"),
    ("use of closed network connection", registry_errors.BusyError, "the connection was cut"),
    ("eof", registry_errors.BusyError, "the connection was cut"),
)
_STATUSES: dict[int, type[registry_errors.RegistryError]] = {
    401: registry_errors.UnauthorizedError,
    403: registry_errors.DeniedError,
    404: registry_errors.MissingError,
    **dict.fromkeys((408, 429, 502, 503, 504), registry_errors.BusyError),
}


def push_error(host: str, subject: str, text: str) -> registry_errors.RegistryError:
    """Return the RegistryError that the error text of a push stands for."""
    lowered = text.lower()
    masked = registry_errors.mask_secrets(" ".join(text.split()))[:400]
    for word, error_class, meaning in _WORDS:
        if registry_errors.has_words(lowered, word):
            return error_class(f"{host}: {subject} was not pushed: {meaning} ({masked})\n{_FIXES[error_class]}")
    for status in map(int, _STATUS.findall(text)):
        if status == 500:
            # A registry out of disk says no more than that (docker-registry 2.8).
            reason = "the registry itself fails, as with a full disk"
            return registry_errors.BusyError(
                f"{host}: {subject} was not pushed: {reason} ({masked})\nlook into its log"
            )
        if error_type := _STATUSES.get(status):
            return error_type(f"{host}: {subject} was not pushed ({masked})\n{_FIXES[error_type]}")
    return registry_errors.RegistryError(f"{host}: {subject} was not pushed ({masked})\n{_OTHER}")
