"""What we ask of a registry beside docker's push: is it there, read it, put a manifest, a small blob, a tag."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import requests
from pydantic import TypeAdapter, ValidationError

from rdma_images.core import files, http
from rdma_images.registry import faults
from rdma_images.registry.documents import document
from rdma_images.registry.http import Connection

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFESTS = ", ".join((OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX))
CHUNK = 1 << 20  # bytes of a blob that is read into a file
# A digest becomes part of an address: one with a slash in it would lead elsewhere.
_DIGEST = re.compile(r"[a-z0-9+._-]+:[A-Za-z0-9=_-]+")


@dataclass(frozen=True)
class Descriptor:
    """Content by digest. `size` in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = field(default_factory=dict)
    artifact_type: str = ""
    platform: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The descriptor as the image specification writes it."""
        body: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        optional = {"annotations": self.annotations, "artifactType": self.artifact_type, "platform": self.platform}
        return body | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_json(cls, body: Any) -> "Descriptor":
        """The descriptor in a manifest or an index, which anybody may have written. Raises MalformedError."""
        known = body if isinstance(body, dict) else {}
        try:
            found = _FORM.validate_python(
                {
                    "media_type": known.get("mediaType") or "",
                    "digest": known.get("digest"),
                    "size": known.get("size") or 0,
                    "annotations": known.get("annotations") or {},
                    "artifact_type": known.get("artifactType") or "",
                    "platform": known.get("platform") or {},
                }
            )
        except ValidationError as error:
            wrong = ".".join(map(str, error.errors()[0]["loc"]))
            raise faults.MalformedError(
                f"a descriptor has no good {wrong}: {json.dumps(body)[:120]}\n{DAMAGED}"
            ) from None
        if not _DIGEST.fullmatch(found.digest):
            raise faults.MalformedError(f"{found.digest[:80]!r} is no digest\n{DAMAGED}")
        return found


DAMAGED = "have it deleted in the registry, and publish again"
_FORM: TypeAdapter[Descriptor] = TypeAdapter(Descriptor)


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index as a registry holds it: the very bytes, and what they say."""

    media_type: str
    raw: bytes

    @property
    def digest(self) -> str:
        """Computed from the bytes, so that no header has to be trusted."""
        return digest_of(self.raw)

    @property
    def body(self) -> dict[str, Any]:
        """The bytes as JSON. Raises MalformedError where they are none."""
        return document(self.raw, f"the manifest {self.digest}")

    @property
    def descriptor(self) -> Descriptor:
        """How others point to it."""
        artifact_type = str(self.body.get("artifactType") or "")
        return Descriptor(self.media_type, self.digest, len(self.raw), artifact_type=artifact_type)

    def layers(self) -> tuple[Descriptor, ...]:
        """The layers of an image's or artifact's manifest; none of an index."""
        return descriptors(self.body, "layers")

    def members(self) -> tuple[Descriptor, ...]:
        """What an index lists; nothing of an image's manifest."""
        return descriptors(self.body, "manifests")


def descriptors(body: dict[str, Any], name: str) -> tuple[Descriptor, ...]:
    """The list of descriptors called `name` in a manifest or an index; empty where it has none."""
    listed = body.get(name) or []
    if not isinstance(listed, list):
        raise faults.MalformedError(f"{name} is no list, but {json.dumps(listed)[:80]}\n{DAMAGED}")
    return tuple(map(Descriptor.from_json, listed))


def labels_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The labels in an image's config; none where it has none."""
    inner = config.get("config")
    labels = inner.get("Labels") if isinstance(inner, Mapping) else None
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, Mapping) else {}


def digest_of(raw: bytes) -> str:
    """The digest by which a registry knows these bytes."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def canonical(body: Any) -> bytes:
    """`body` as JSON whose bytes depend on nothing but its content."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Repository:
    """One repository of a registry."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.ref = f"{connection.host}/{name}"

    def head(self, reference: str) -> str | None:
        """The digest that a tag or digest leads to; None where there is no such thing (or no such repository)."""
        try:
            answer = self._ask("HEAD", f"manifests/{reference}", headers={"Accept": MANIFESTS}, subject=reference)
        except faults.MissingError:
            return None
        # A registry may leave the header out; then the bytes tell.
        return answer.headers.get("Docker-Content-Digest") or self.manifest(reference).digest

    def manifest(self, reference: str) -> Manifest:
        """The manifest of a tag or digest, checked against the digest when one was asked for."""
        answer = self._ask("GET", f"manifests/{reference}", headers={"Accept": MANIFESTS}, subject=reference)
        found = Manifest(answer.headers.get("Content-Type", "").partition(";")[0], answer.content)
        if reference.startswith("sha256:") and found.digest != reference:
            raise faults.ConflictError(
                f"{self.ref}: the registry sent {found.digest} when asked for {reference}\n{DAMAGED}"
            )
        document(found.raw, f"what {self.connection.host} has for {self.name}:{reference}")
        return found

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """The config of the image with this manifest: its labels, its layers' ids, when it was made."""
        if "config" not in manifest.body:
            raise faults.MalformedError(
                f"{self.ref}@{manifest.digest} is no image: it names no config\nname an image, and no attachment"
            )
        digest = Descriptor.from_json(manifest.body["config"]).digest
        return document(self.blob(digest), f"{self.ref}: the config {digest}")

    def put_manifest(self, reference: str, manifest: Manifest) -> requests.Response:
        """Store a manifest under a tag or its digest."""
        return self._ask(
            "PUT",
            f"manifests/{reference}",
            data=manifest.raw,
            headers={"Content-Type": manifest.media_type},
            subject=reference,
            ok=(201,),
            write=True,
        )

    def has_blob(self, digest: str, size: int) -> bool:
        """Whether the repository holds this blob of `size` bytes. Raises ConflictError where it has fewer or more."""
        try:
            # As it lies there: of what a proxy compresses on the way, the length would be another.
            plain = {"Accept-Encoding": "identity"}
            answer = self._ask("HEAD", f"blobs/{digest}", subject=digest, headers=plain, allow_redirects=True)
        except faults.MissingError:
            return False
        found = answer.headers.get("Content-Length", "")
        if found.isdigit() and int(found) != size:  # the specification only asks registries to tell it
            raise faults.ConflictError(
                f"{self.ref}: of {digest}, which has {size} bytes, the registry holds {found}: what it stores is "
                f"damaged\n{DAMAGED}"
            )
        return True

    def blob(self, digest: str) -> bytes:
        """A small blob's bytes, checked against the digest."""
        raw = self._ask("GET", f"blobs/{digest}", subject=digest).content
        if digest_of(raw) != digest:
            raise faults.ConflictError(f"{self.ref}: the registry sent other bytes than {digest}\n{DAMAGED}")
        return raw

    def save(self, digest: str, file: Path, stop: threading.Event) -> None:
        """Write a blob to a file, checked against the digest; setting `stop` ends it with a PublishError.

        A partial file is resumed, where the registry does that. One that then has other bytes is removed, for another
        try, by a BusyError.
        """
        stopped = faults.PublishError(f"{self.ref}@{digest}: stopped, because something else failed")
        if stop.is_set():
            raise stopped
        have = file.stat().st_size if file.exists() else 0
        how = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        ok = (200, 206, 416) if have else (200,)  # 416: there is nothing after what the file has
        with (
            self._ask("GET", f"blobs/{digest}", digest, ok=ok, headers=how, stream=True) as answer,
            files.as_file_error(file),
            file.open("a+b" if answer.status_code == 416 or http.continues(answer, have) else "w+b") as to,
        ):
            to.seek(0)
            found = hashlib.file_digest(to, "sha256")
            try:
                for piece in answer.iter_content(CHUNK) if answer.status_code != 416 else ():
                    found.update(piece)
                    to.write(piece)
                    if stop.is_set():
                        raise stopped
            except requests.RequestException as error:
                raise faults.from_transport(self.connection.host, error) from None
        if f"sha256:{found.hexdigest()}" != digest:
            file.unlink(missing_ok=True)
            if have:
                raise faults.BusyError(f"{self.ref}@{digest}: the download did not go on where it broke off\ntry again")
            raise faults.ConflictError(f"{self.ref}: the registry sent other bytes than {digest}\n{DAMAGED}")

    def put_blob(self, raw: bytes) -> str:
        """Store a small blob and return its digest; nothing is sent when it is there."""
        digest = digest_of(raw)
        with suppress(faults.InternalError):  # where the registry cannot say it, sending repairs what can be repaired
            if self.has_blob(digest, len(raw)):
                return digest
        self.upload(self.begin_upload(digest), digest, raw)
        return digest

    def mount(self, digest: str, source: "Repository") -> bool:
        """Have a blob that `source`, a repository of the same registry, has; False where the registry does not do that.

        Nothing is sent either way.
        """
        answer = self.connection.request(
            "POST",
            f"/v2/{self.name}/blobs/uploads/",
            f"{self._scope(write=True)} {source._scope(write=False)}",
            f"{self.ref}@{digest}",
            ok=(201, 202),
            params={"mount": digest, "from": source.name},
        )
        if answer.status_code == 201:
            return True
        with suppress(faults.PublishError):  # it waits for the bytes now, until it forgets it by itself
            self.connection.request(
                "DELETE", self._place(answer), self._scope(write=True), f"{self.ref}@{digest}", ok=(204,)
            )
        return False

    def begin_upload(self, digest: str) -> str:
        """Where the registry wants the blob `digest` to be sent; it takes it whether or not it has it."""
        begun = self._ask("POST", "blobs/uploads/", subject=digest, ok=(202,), write=True)
        return self._place(begun)

    def _place(self, begun: requests.Response) -> str:
        return str(requests.compat.urljoin(f"{self.connection.base}/v2/", begun.headers.get("Location", "")))

    def upload(self, place: str, digest: str, content: bytes | IO[bytes]) -> None:
        """Send the blob `digest` to the place that `begin_upload` gave."""
        separator = "&" if "?" in place else "?"
        self.connection.request(
            "PUT",
            f"{place}{separator}digest={digest}",
            self._scope(write=True),
            f"{self.ref} {digest}",
            ok=(201,),
            data=content,
            headers={"Content-Type": "application/octet-stream"},
        )

    def referrers(self, digest: str) -> tuple[Descriptor, ...] | None:
        """What is attached to `digest`; None where the registry does not speak of referrers."""
        unknown = (400, 404, 405, 501)  # how registries without that part of the protocol have been seen to say so
        answer = self._ask(
            "GET", f"referrers/{digest}", subject=digest, headers={"Accept": OCI_INDEX}, ok=(200, *unknown)
        )
        if answer.status_code in unknown or not answer.headers.get("Content-Type", "").startswith(OCI_INDEX):
            return None
        return descriptors(document(answer.content, f"{self.ref}: the list of referrers of {digest}"), "manifests")

    def _scope(self, write: bool) -> str:
        return f"repository:{self.name}:{'pull,push' if write else 'pull'}"

    def _ask(self, method: str, path: str, subject: str, write: bool = False, **options: Any) -> requests.Response:
        joint = "@" if subject.startswith("sha256:") else ":"
        return self.connection.request(
            method, f"/v2/{self.name}/{path}", self._scope(write), f"{self.ref}{joint}{subject}", **options
        )
