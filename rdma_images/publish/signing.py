"""Sign one image in a registry, and check the signatures of the same signer there."""

from collections.abc import Callable, Sequence
from functools import partial

from rdma_images.core.progress import Progress
from rdma_images.publish import statement
from rdma_images.publish.attach import Artifact, read_content
from rdma_images.publish.cosign import Cosign
from rdma_images.publish.destination import Destination
from rdma_images.publish.keys import Signer, key_label
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Descriptor, Repository, canonical

Retry = Callable[[Callable[[], None]], None]


class ImageSigner:
    """Sign an image and its attachments that were made here, and check its signatures.

    It trusts what the same signer signed before. A keyless signer is known by the identity of its CI job; where that
    is unknown, it trusts nothing but what was made here.
    """

    def __init__(
        self, signer: Signer, destination: Destination, repository: Repository, digest: str, progress: Progress
    ) -> None:
        self._signer, self._destination, self._repository, self._progress = signer, destination, repository, progress
        self._ref = f"{repository.ref}@{digest}"
        self._cosign = Cosign(destination.connection, progress)

    def is_trusted(self, entry: Descriptor, artifact: Artifact) -> bool:
        """Return whether the same signer, perhaps on another machine, signed `entry`."""
        try:
            content = read_content(self._repository, entry.digest)
        except registry_errors.MalformedError:
            return False
        with self._cosign.trust(self._signer) as trust:
            return trust is not None and self._cosign.has_attested(self._ref, trust, artifact.predicate_type, content)

    def has_signed(self, artifacts: Sequence[Artifact]) -> bool:
        """Return whether the registry has the signer's signatures of image and artifacts."""
        with self._cosign.trust(self._signer) as trust:
            return (
                trust is not None
                and self._cosign.has_signed(self._ref, trust)
                and all(
                    self._cosign.has_attested(self._ref, trust, artifact.predicate_type, artifact.content)
                    for artifact in artifacts
                )
            )

    def sign(self, artifacts: Sequence[Artifact], retry: Retry) -> None:
        """Sign the image, and each of `artifacts` as a statement on it."""
        self._progress(f"{self._destination.name}: signing {self._ref} with {key_label(self._signer.key)}")
        retry(partial(self._cosign.sign, self._ref, self._signer))
        self.attest(artifacts, retry)

    def attest(self, artifacts: Sequence[Artifact], retry: Retry) -> None:
        """Sign each of `artifacts` as a statement on the image, and not the image itself."""
        for artifact in artifacts:
            predicate = canonical(statement.parse_predicate(artifact.content))
            retry(partial(self._cosign.attest, self._ref, self._signer, artifact.predicate_type, predicate))
