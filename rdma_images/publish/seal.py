"""One signer's signatures on one image in one registry: what is believed for them, and what they are put on."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from rdma_images.engine import Progress
from rdma_images.publish import cosign, statement
from rdma_images.publish.attach import Artifact, content_of
from rdma_images.publish.client import Descriptor, Repository
from rdma_images.publish.cosign import Cosign, Signer, Trust
from rdma_images.publish.destination import Destination

Persist = Callable[[Callable[[], None]], None]


class Seal:
    """A signer before one image. Only what was made here is signed: whoever may push could have attached the rest."""

    def __init__(self, signer: Signer, place: Destination, repository: Repository, digest: str, say: Progress) -> None:
        self._signer, self._place, self._repository, self._say = signer, place, repository, say
        self._ref = f"{repository.ref}@{digest}"

    def believes(self, entry: Descriptor, artifact: Artifact) -> bool:
        """Whether the same key signed the attachment `entry`: then another machine of ours wrote it.

        A keyless signer has no key that could be asked for, and believes its own word alone.
        """
        if self._signer.key == cosign.KEYLESS:
            return False
        content = content_of(self._repository, entry.digest)
        with self._cosign.public_key(self._signer) as key:
            return self._cosign.attested(self._ref, Trust(key=key), artifact.form, content)

    def is_on(self, files: Sequence[Artifact]) -> bool:
        """Whether the same key has signed the image and all of `files`, by what the registry has."""
        if self._signer.key == cosign.KEYLESS:
            return False
        with self._cosign.public_key(self._signer) as key:
            trust = Trust(key=key)
            return self._cosign.verified(self._ref, trust) and all(
                self._cosign.attested(self._ref, trust, file.form, file.content) for file in files
            )

    def put(self, files: Sequence[Artifact], persist: Persist) -> None:
        """Sign the image, and each of `files` as a statement on it."""
        self._say(f"{self._place.name}: signing {self._ref} with {cosign.name_of(self._signer.key)}")
        persist(partial(self._cosign.sign, self._ref, self._signer))
        for file in files:
            said = statement.canonical_predicate(file.content)
            persist(partial(self._cosign.attest, self._ref, self._signer, file.form, said))

    @cached_property
    def _cosign(self) -> Cosign:
        return Cosign(cosign.program(self._say), self._place.kind.host, self._place.connection.login())
