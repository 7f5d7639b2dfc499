"""One signer's signatures on one image in one registry: what is believed for them, and what they are put on."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from rdma_images.engine import Progress
from rdma_images.publish import cosign, faults, statement, verify
from rdma_images.publish.attach import Artifact, content_of
from rdma_images.publish.client import Descriptor, Manifest, Repository
from rdma_images.publish.cosign import Cosign
from rdma_images.publish.destination import Destination
from rdma_images.publish.keys import Signer, name_of

Persist = Callable[[Callable[[], None]], None]


class Seal:
    """A signer before one image. Only what was made here is signed: whoever may push could have attached the rest.

    What the same signer signed before is believed. A keyless one is known by the identity of its CI job; where that is
    not known, it believes its own word alone.
    """

    def __init__(self, signer: Signer, place: Destination, repository: Repository, digest: str, say: Progress) -> None:
        self._signer, self._place, self._repository, self._say = signer, place, repository, say
        self._ref = f"{repository.ref}@{digest}"

    def believes(self, entry: Descriptor, artifact: Artifact) -> bool:
        """Whether the same signer signed the attachment `entry`: then another machine of ours wrote it."""
        try:
            content = content_of(self._repository, entry.digest)
        except faults.MalformedError:
            return False
        with self._cosign.trust(self._signer) as trust:
            return trust is not None and self._cosign.attested(self._ref, trust, artifact.form, content)

    def is_on(self, files: Sequence[Artifact]) -> bool:
        """Whether the same signer has signed the image and all of `files`, by what the registry has."""
        with self._cosign.trust(self._signer) as trust:
            return (
                trust is not None
                and self._cosign.verified(self._ref, trust)
                and all(self._cosign.attested(self._ref, trust, file.form, file.content) for file in files)
            )

    def doubts(self, manifest: Manifest, tag: str) -> tuple[str, ...]:
        """What does not hold of the image, found under `tag`, when the same signer has to have signed all of it."""
        with self._cosign.trust(self._signer) as trust:
            if trust is None:
                return ("a keyless signer outside of a CI job that it knows has no identity to hold it against",)
            found = verify.image(self._repository, manifest, tag, verify.Witness(self._cosign, trust))
        return tuple(f"{one.what}: {one.detail}" for one in found.findings if one.holds is False)

    def put(self, files: Sequence[Artifact], persist: Persist) -> None:
        """Sign the image, and each of `files` as a statement on it."""
        self._say(f"{self._place.name}: signing {self._ref} with {name_of(self._signer.key)}")
        persist(partial(self._cosign.sign, self._ref, self._signer))
        for file in files:
            said = statement.canonical_predicate(file.content)
            persist(partial(self._cosign.attest, self._ref, self._signer, file.form, said))

    @cached_property
    def _cosign(self) -> Cosign:
        return Cosign(cosign.program(self._say), self._place.kind.host, self._place.connection.login())
