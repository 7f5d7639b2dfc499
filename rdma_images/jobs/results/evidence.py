"""What jobs measured, attached to the image that they ran: one statement with the last result of each job."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import Progress, silent
from rdma_images.facts import table
from rdma_images.facts.instances import Instances
from rdma_images.jobs.results import run_folder
from rdma_images.jobs.results.result import Result
from rdma_images.publish import statement
from rdma_images.publish.attach import (
    CREATED,
    FORM,
    Artifact,
    Attachment,
    IsTrusted,
    attach,
    attachments,
    content_of,
    trust_all,
)
from rdma_images.publish.destination import Destination, open_destination
from rdma_images.publish.keys import Trust
from rdma_images.publish.send import Publisher
from rdma_images.publish.signing import ImageSigner
from rdma_images.publish.verify import open_verifier
from rdma_images.registry import faults, registries
from rdma_images.registry.client import Manifest, Repository, canonical, digest_of
from rdma_images.registry.reference import parse_reference

TITLE = "job-results.json"


def publish(result: Result, image: str, publisher: Publisher) -> Attachment:
    """Attach a result to `image`, "host/repository@sha256:…", signed where `publisher` has a signer.

    Results of other jobs that are attached, and that the same signer signed, go with it: there is one statement. Where
    `image` is an index, the image of the nodes' architecture gets the same, so that it is found from both.
    Raises RefusedError for a result that is not good or is of another image, a PublishError where the registry refuses.
    """
    if result.exit_code:
        raise RefusedError(
            f"{result.job}: {result.sentence}\nonly a result with exit code 0 is attached: run the job again"
        )
    place, repository = _open(image)
    manifest = repository.manifest(parse_reference(image).selector)
    if manifest.digest != result.digest:
        raise RefusedError(
            f"{result.job} ran {result.digest}, and {image} is {manifest.digest}\nname the image that it ran"
        )
    attached = _publish(result, manifest, place, repository, publisher)
    for one in _run(result, manifest, repository) if manifest.members() else ():
        _publish(result, one, place, repository, publisher)
    return attached


def _run(result: Result, index: Manifest, repository: Repository) -> Iterator[Manifest]:
    """What the nodes of the job ran of an index: the image of their architecture."""
    try:
        architecture = table.read("instances.yaml", Instances).find(result.instance).architecture
    except RefusedError:  # a type that no fact knows
        return
    for one in index.members():
        if one.platform.get("architecture") == architecture:
            yield repository.manifest(one.digest)


def _publish(
    result: Result, manifest: Manifest, place: Destination, repository: Repository, publisher: Publisher
) -> Attachment:
    """Attach the result to one manifest, beside those of other jobs."""
    signing = (
        ImageSigner(publisher.signer, place, repository, manifest.digest, publisher.watcher.line)
        if publisher.signer
        else None
    )
    others = _newest(repository, manifest.digest, signing.is_trusted if signing else trust_all)
    kept = [one for one in others if _key(one) != _key(result)]
    here = replace(result, digest=manifest.digest)
    artifact = _artifact(repository.name, manifest.digest, [*kept, here])
    (attached,) = publisher.retry(lambda: attach([artifact], manifest.descriptor, repository))
    if signing:
        signing.attest([artifact], publisher.retry)
    return attached


def _key(result: Result) -> tuple[str, str, int | None]:
    """What two results must have alike for the later to replace the earlier."""
    return result.job, result.instance, result.nodes


def fetch(image: str, trust: Trust | None = None, say: Progress = silent) -> tuple[Result, ...]:
    """The results that are attached to `image`, or to an image of that index; with `trust`, those that it signed.

    Raises RefusedError for none.
    """
    _, repository = _open(image)
    manifest = repository.manifest(parse_reference(image).selector)
    verifier = open_verifier(repository, trust, say)
    ref = f"{repository.ref}@{manifest.digest}"

    def newest(digest: str) -> tuple[Result, ...]:
        of = f"{repository.ref}@{digest}"
        return _newest(
            repository, digest, lambda _, one: verifier is None or verifier.attested(of, statement.RESULTS, one.content)
        )

    every = [*newest(manifest.digest), *(one for member in manifest.members() for one in newest(member.digest))]
    found = tuple({_key(one): one for one in reversed(every)}.values())[::-1]
    if not found:
        signed = f" signed by {trust}" if trust else ""
        raise RefusedError(f"{ref} has no job results{signed}\n{COMMAND} job.attach adds those of a run")
    return found


def one(text: str, trust: Trust | None = None, say: Progress = silent) -> Result:
    """The result that "host/repository@sha256:…" has, or of several that of "…#job". Raises RefusedError for others."""
    image, _, job = text.partition("#")
    found = [result for result in fetch(image, trust, say) if job in ("", result.job)]
    if len(found) != 1:
        known = ", ".join(result.job for result in fetch(image, trust, say))
        raise RefusedError(f"{text}: {len(found)} results\nname one of its jobs after #: {known}")
    return found[0]


def is_reference(text: str) -> bool:
    """Whether the text names an image by digest, and so no file."""
    return "@sha256:" in text


def _open(image: str) -> tuple[Destination, Repository]:
    asked = parse_reference(image)
    place = open_destination(asked.host, registries.load_if_present().of_host(asked.host))
    return place, Repository(place.connection, asked.repository)


def _newest(repository: Repository, digest: str, is_trusted: IsTrusted) -> tuple[Result, ...]:
    """The results of the newest trusted attachment that can be read."""
    ours = [one for one in attachments(repository, digest) if one.annotations.get(FORM) == statement.RESULTS]
    for entry in sorted(ours, key=lambda one: one.annotations.get(CREATED, ""), reverse=True):
        try:
            content = content_of(repository, entry.digest)
            said = statement.predicate(content)["results"]
            results = tuple(run_folder.RESULT.decode(one) for one in said)
        except (faults.MalformedError, ValueError, KeyError, TypeError):
            continue  # anybody with push access can have attached it
        artifact = Artifact(statement.IN_TOTO, TITLE, content, "", statement.RESULTS)
        if all(one.digest == digest for one in results) and is_trusted(entry, artifact):
            return results
    return ()


def _artifact(name: str, digest: str, results: list[Result]) -> Artifact:
    said = {"results": [run_folder.RESULT.encode(one) for one in results]}
    content = statement.statement(name, digest, statement.RESULTS, said)
    made = datetime.now(UTC).isoformat(timespec="microseconds")
    return Artifact(statement.IN_TOTO, TITLE, content, made, statement.RESULTS, digest_of(canonical(said)))
