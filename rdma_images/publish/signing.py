"""One signer and one image in a registry: what the signer has signed, and what it signs."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from rdma_images.core.progress import Progress
from rdma_images.publish import cosign, statement, verify
from rdma_images.publish.attach import Artifact, content_of
from rdma_images.publish.cosign import Cosign
from rdma_images.publish.destination import Destination
from rdma_images.publish.keys import Signer, name_of
from rdma_images.registry import faults
from rdma_images.registry.client import Descriptor, Manifest, Repository

Retry = Callable[[Callable[[], None]], None]


class ImageSigner:
    """Signs one image, and what was made here of its attachments: anybody with push access can have attached the rest.

    It trusts what the same signer signed before. A keyless signer is known by the identity of its CI job; where that
    is unknown, it trusts nothing but what was made here.
    """

    def __init__(self, signer: Signer, place: Destination, repository: Repository, digest: str, say: Progress) -> None:
        self._signer, self._place, self._repository, self._say = signer, place, repository, say
        self._ref = f"{repository.ref}@{digest}"

    def is_trusted(self, entry: Descriptor, artifact: Artifact) -> bool:
        """Whether the same signer signed the attachment `entry`: another machine with the same key wrote it."""
        try:
            content = content_of(self._repository, entry.digest)
        except faults.MalformedError:
            return False
        with self._cosign.trust(self._signer) as trust:
            return trust is not None and self._cosign.attested(self._ref, trust, artifact.form, content)

    def has_signed(self, files: Sequence[Artifact]) -> bool:
        """Whether the same signer has signed the image and all of `files`, by what the registry has."""
        with self._cosign.trust(self._signer) as trust:
            return (
                trust is not None
                and self._cosign.verified(self._ref, trust)
                and all(self._cosign.attested(self._ref, trust, file.form, file.content) for file in files)
            )

    def problems(self, manifest: Manifest, tag: str) -> tuple[str, ...]:
        """The failed checks of the image under `tag`, where the same signer must have signed all of it."""
        with self._cosign.trust(self._signer) as trust:
            if trust is None:
                return ("outside of GitHub Actions a keyless signer has no identity to compare with",)
            found = verify.image(self._repository, manifest, tag, verify.Verifier(self._cosign, trust))
        return tuple(f"{one.what}: {one.detail}" for one in found.findings if one.holds is False)

    def sign(self, files: Sequence[Artifact], retry: Retry) -> None:
        """Sign the image, and each of `files` as a statement on it."""
        self._say(f"{self._place.name}: signing {self._ref} with {name_of(self._signer.key)}")
        retry(partial(self._cosign.sign, self._ref, self._signer))
        self.attest(files, retry)

    def attest(self, files: Sequence[Artifact], retry: Retry) -> None:
        """Sign each of `files` as a statement on the image, and not the image itself."""
        for file in files:
            said = statement.canonical_predicate(file.content)
            retry(partial(self._cosign.attest, self._ref, self._signer, file.form, said))

    @cached_property
    def _cosign(self) -> Cosign:
        return Cosign(cosign.program(self._say), self._place.kind.host, self._place.connection.login())
