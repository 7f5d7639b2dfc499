"""Read from and write to one repository of a registry: manifests, blobs, tags, referrers."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import requests
from pydantic import TypeAdapter, ValidationError

from rdma_images.core import files
from rdma_images.registry import registry_errors
from rdma_images.registry.connection import Connection, parse_document

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFESTS = ", ".join((OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX))
EMPTY, EMPTY_TYPE = b"{}", "application/vnd.oci.empty.v1+json"
TITLE = "org.opencontainers.image.title"  # the annotation with the name of an artifact's file
MAX_PARALLEL_REQUESTS = 8  # at once
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
        """Return the descriptor as the image specification writes it."""
        body: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        optional = {"annotations": self.annotations, "artifactType": self.artifact_type, "platform": self.platform}
        return body | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_json(cls, body: Any) -> "Descriptor":
        """Return the descriptor in untrusted JSON. Raises MalformedError."""
        fields = body if isinstance(body, dict) else {}
        try:
            descriptor = _FORM.validate_python(
                {
                    "media_type": fields.get("mediaType") or "",
                    "digest": fields.get("digest"),
                    "size": fields.get("size") or 0,
                    "annotations": fields.get("annotations") or {},
                    "artifact_type": fields.get("artifactType") or "",
                    "platform": fields.get("platform") or {},
                }
            )
        except ValidationError as error:
            field_path = ".".join(map(str, error.errors()[0]["loc"]))
            raise registry_errors.MalformedError(
                f"a descriptor has no good {field_path}: {json.dumps(body)[:120]}\n{DAMAGED}"
            ) from None
        if not _DIGEST.fullmatch(descriptor.digest):
            raise registry_errors.MalformedError(f"{descriptor.digest[:80]!r} is not a digest\n{DAMAGED}")
        return descriptor


DAMAGED = "have it deleted in the registry, and publish again"
_FORM: TypeAdapter[Descriptor] = TypeAdapter(Descriptor)


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index as a registry holds it: its bytes and their content."""

    media_type: str
    raw: bytes

    @property
    def digest(self) -> str:
        """Return the digest, computed from the bytes, so that no header has to be trusted."""
        return sha256_digest(self.raw)

    @property
    def body(self) -> dict[str, Any]:
        """Return the bytes as JSON. Raises MalformedError where they cannot be parsed."""
        return parse_document(self.raw, f"the manifest {self.digest}")

    @property
    def descriptor(self) -> Descriptor:
        """Return the descriptor that points to it."""
        artifact_type = str(self.body.get("artifactType") or "")
        return Descriptor(self.media_type, self.digest, len(self.raw), artifact_type=artifact_type)

    @property
    def is_index(self) -> bool:
        """Return whether it is an index over manifests."""
        return self.media_type in (OCI_INDEX, DOCKER_INDEX)

    def layers(self) -> tuple[Descriptor, ...]:
        """Return the layers of an image's or artifact's manifest; an index has none."""
        return descriptors(self.body, "layers")

    def members(self) -> tuple[Descriptor, ...]:
        """Return the descriptors in an index; an image's manifest has none."""
        return descriptors(self.body, "manifests")


def artifact_manifest(file: Descriptor, **fields: Any) -> Manifest:
    """Return the manifest of an artifact with one file.

    Its config is EMPTY, which the repository must have, too. Source: OCI image specification 1.1, "Guidelines for
    Artifact Usage".
    """
    body = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": file.media_type,
        "config": Descriptor(EMPTY_TYPE, sha256_digest(EMPTY), len(EMPTY)).as_json(),
        "layers": [file.as_json()],
        **fields,
    }
    return Manifest(OCI_MANIFEST, canonical(body))


def index_manifest(entries: Iterable[Descriptor]) -> Manifest:
    """Return an index over manifests."""
    listed = [entry.as_json() for entry in entries]
    return Manifest(OCI_INDEX, canonical({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}))


def descriptors(body: dict[str, Any], name: str) -> tuple[Descriptor, ...]:
    """Return the descriptors in the field `name` of a manifest. Raises MalformedError."""
    listed = body.get(name) or []
    if not isinstance(listed, list):
        raise registry_errors.MalformedError(f"{name} is not a list, but {json.dumps(listed)[:80]}\n{DAMAGED}")
    return tuple(map(Descriptor.from_json, listed))


def labels_in(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels in an image's config."""
    inner = config.get("config")
    labels = inner.get("Labels") if isinstance(inner, Mapping) else None
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, Mapping) else {}


def config_diff_ids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the diff ids in an image's config, lowest first."""
    root = config.get("rootfs")
    listed = root.get("diff_ids") if isinstance(root, Mapping) else None
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


def sha256_digest(raw: bytes) -> str:
    """Return the digest by which a registry knows these bytes."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def canonical(body: Any) -> bytes:
    """Return `body` as JSON whose bytes depend on nothing but its content."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Repository:
    """One repository of a registry."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.ref = f"{connection.host}/{name}"

    def find_digest(self, reference: str) -> str | None:
        """Return the digest that a tag or digest leads to; None where it is missing."""
        try:
            response = self._request("HEAD", f"manifests/{reference}", headers={"Accept": MANIFESTS}, subject=reference)
        except registry_errors.MissingError:
            return None
        # A registry may leave the header out; then the bytes tell.
        return response.headers.get("Docker-Content-Digest") or self.manifest(reference).digest

    def manifest(self, reference: str) -> Manifest:
        """Return a manifest, checked against a requested digest. Raises ConflictError."""
        response = self._request("GET", f"manifests/{reference}", headers={"Accept": MANIFESTS}, subject=reference)
        manifest = Manifest(response.headers.get("Content-Type", "").partition(";")[0], response.content)
        if reference.startswith("sha256:") and manifest.digest != reference:
            raise registry_errors.ConflictError(
                f"{self.ref}: the registry sent {manifest.digest} when asked for {reference}\n{DAMAGED}"
            )
        parse_document(manifest.raw, f"what {self.connection.host} has for {self.name}:{reference}")
        return manifest

    def config(self, manifest: Manifest) -> dict[str, Any]:
        """Return an image's config: labels, diff ids, time. Raises MalformedError."""
        if "config" not in manifest.body:
            raise registry_errors.MalformedError(
                f"{self.ref}@{manifest.digest} is not an image: it names no config\nname an image, not an attachment"
            )
        digest = Descriptor.from_json(manifest.body["config"]).digest
        return parse_document(self.blob(digest), f"{self.ref}: the config {digest}")

    def put_manifest(self, reference: str, manifest: Manifest) -> requests.Response:
        """Store a manifest under a tag or its digest, and return the registry's response."""
        return self._request(
            "PUT",
            f"manifests/{reference}",
            data=manifest.raw,
            headers={"Content-Type": manifest.media_type},
            subject=reference,
            ok=(201,),
            write=True,
        )

    def has_blob(self, digest: str, size: int) -> bool:
        """Return whether a blob is present. Raises ConflictError for another size."""
        try:
            # Uncompressed: a proxy that compresses on the way would change the length.
            headers = {"Accept-Encoding": "identity"}
            response = self._request("HEAD", f"blobs/{digest}", subject=digest, headers=headers, allow_redirects=True)
        except registry_errors.MissingError:
            return False
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length) != size:  # the specification only asks registries to tell it
            raise registry_errors.ConflictError(
                f"{self.ref}: of {digest}, which has {size} bytes, the registry holds {length}: what it stores is "
                f"damaged\n{DAMAGED}"
            )
        return True

    def present_blobs(self, sizes: Mapping[str, int]) -> set[str]:
        """Return which of the blobs (digest -> size) are present. Raises as `has_blob`."""
        if not sizes:
            return set()
        # One question first: where it may not be asked, seven more at once would each fetch fresh credentials.
        first_blob, *other_blobs = sizes.items()
        answers = [self.has_blob(*first_blob)]
        with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS) as pool:
            answers += pool.map(lambda blob: self.has_blob(*blob), other_blobs)
        return {digest for digest, present in zip(sizes, answers, strict=True) if present}

    def blob(self, digest: str) -> bytes:
        """Return a small blob, checked against its digest. Raises ConflictError."""
        raw = self._request("GET", f"blobs/{digest}", subject=digest).content
        if sha256_digest(raw) != digest:
            raise registry_errors.ConflictError(f"{self.ref}: the registry sent other bytes than {digest}\n{DAMAGED}")
        return raw

    def save_blob(self, digest: str, file: Path) -> None:
        """Write a blob to a file, checked by its digest. Raises ConflictError for other bytes."""
        checksum, headers = hashlib.sha256(), {"Accept-Encoding": "identity"}
        with (
            self._request("GET", f"blobs/{digest}", digest, headers=headers, stream=True) as response,
            files.raising_file_error(file),
            file.open("wb") as target,
        ):
            try:
                for chunk in response.iter_content(CHUNK):
                    checksum.update(chunk)
                    target.write(chunk)
            except requests.RequestException as error:
                raise registry_errors.transport_error(self.connection.host, error) from None
        if f"sha256:{checksum.hexdigest()}" != digest:
            raise registry_errors.ConflictError(f"{self.ref}: the registry sent other bytes than {digest}\n{DAMAGED}")

    def put_blob(self, raw: bytes) -> str:
        """Store a small blob and return its digest; nothing is sent when the registry has it."""
        digest = sha256_digest(raw)
        if self.has_blob(digest, len(raw)):
            return digest
        self._upload(digest, raw)
        return digest

    def put_file(self, digest: str, file: Path) -> None:
        """Store a file as the blob `digest`; nothing is sent if it is present."""
        with files.raising_file_error(file), file.open("rb") as content:
            if not self.has_blob(digest, file.stat().st_size):
                self._upload(digest, content)

    def mount(self, digest: str, source: "Repository") -> bool:
        """Mount a blob from `source`, in the same registry; return whether it was.

        Nothing is sent either way.
        """
        response = self.connection.request(
            "POST",
            f"/v2/{self.name}/blobs/uploads/",
            f"{self._scope(write=True)} {source._scope(write=False)}",
            f"{self.ref}@{digest}",
            ok=(201, 202),
            params={"mount": digest, "from": source.name},
        )
        return response.status_code == 201

    def _location(self, response: requests.Response) -> str:
        location = response.headers.get("Location", "")
        try:
            return str(requests.compat.urljoin(f"{self.connection.base}/v2/", location))
        except ValueError:
            raise registry_errors.MalformedError(
                f"{self.ref}: the registry names {location[:80]!r} as the address of an upload\nlook into its log"
            ) from None

    def _upload(self, digest: str, content: bytes | IO[bytes]) -> None:
        """Send the blob `digest`, present or not."""
        response = self._request("POST", "blobs/uploads/", subject=digest, ok=(202,), write=True)
        address = self._location(response)
        self.connection.request(
            "PUT",
            f"{address}{'&' if '?' in address else '?'}digest={digest}",
            self._scope(write=True),
            f"{self.ref} {digest}",
            ok=(201,),
            data=content,
            headers={"Content-Type": "application/octet-stream"},
        )

    def referrers(self, digest: str) -> tuple[Descriptor, ...] | None:
        """Return the attachments of `digest`; None without the referrers API."""
        unsupported = (400, 404, 405, 501)  # how registries without that part of the protocol have been seen to say so
        response = self._request(
            "GET", f"referrers/{digest}", subject=digest, headers={"Accept": OCI_INDEX}, ok=(200, *unsupported)
        )
        if response.status_code in unsupported or not response.headers.get("Content-Type", "").startswith(OCI_INDEX):
            return None
        return descriptors(
            parse_document(response.content, f"{self.ref}: the list of referrers of {digest}"), "manifests"
        )

    def _scope(self, write: bool) -> str:
        return f"repository:{self.name}:{'pull,push' if write else 'pull'}"

    def _request(self, method: str, path: str, subject: str, write: bool = False, **options: Any) -> requests.Response:
        joint = "@" if subject.startswith("sha256:") else ":"
        return self.connection.request(
            method, f"/v2/{self.name}/{path}", self._scope(write), f"{self.ref}{joint}{subject}", **options
        )
