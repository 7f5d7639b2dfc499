"""The engine, progress, signer and policy that all steps of a publication share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from rdma_images.core.progress import Progress
from rdma_images.engine import Engine
from rdma_images.publish import keys, push
from rdma_images.publish.destination import Destination
from rdma_images.publish.signing import ImageSigner
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Repository

Result = TypeVar("Result")


@dataclass(frozen=True)
class Publisher:
    """The engine, progress, signer and policy of a publication.

    `engine` is called only when something is sent. With `to_stargz`, each image is published a second time, converted
    for the stargz-snapshotter.
    """

    engine: Callable[[], Engine]
    progress: Progress
    signer: keys.Signer | None = None
    push_policy: push.PushPolicy = field(default_factory=push.PushPolicy)
    to_stargz: bool = False

    def retry(self, action: Callable[[], Result]) -> Result:
        """Return the result of `action`, called again after faults that may heal."""
        return registry_errors.retry(
            action, self.push_policy.attempts, self.push_policy.first_wait, progress=self.progress
        )

    def signing(self, destination: Destination, repository: Repository, digest: str) -> ImageSigner | None:
        """Return the signer of the image `digest`; None where the publication has no signer."""
        if self.signer is None:
            return None
        return ImageSigner(self.signer, destination, repository, digest, self.progress)

    def sign_index(self, destination: Destination, repository: Repository, digest: str) -> None:
        """Sign the index `digest`, unless the signer has; do nothing without a signer."""
        image_signer = self.signing(destination, repository, digest)
        if image_signer and not self.retry(partial(image_signer.has_signed, ())):
            image_signer.sign((), self.retry)
