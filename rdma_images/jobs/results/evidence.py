"""Attach what jobs measured to the image that they ran: one statement with the last result of each job."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.facts import facts_file
from rdma_images.facts.instances import Instances
from rdma_images.jobs.results import run_folder
from rdma_images.jobs.results.result import Result
from rdma_images.publish import statement
from rdma_images.publish.attach import (
    FORM,
    Artifact,
    Attachment,
    IsTrusted,
    attach,
    newest_first,
    read_content,
    trust_all,
)
from rdma_images.publish.destination import Destination, open_destination
from rdma_images.publish.keys import Trust
from rdma_images.publish.publisher import Publisher
from rdma_images.publish.verify import open_verifier
from rdma_images.registry import registries, registry_errors
from rdma_images.registry.client import Manifest, Repository, canonical, sha256_digest
from rdma_images.registry.reference import parse_reference

TITLE = "job-results.json"


def publish(result: Result, image: str, publisher: Publisher) -> Attachment:
    """Attach a result to the image "host/repository@sha256:…", signed by the publisher.

    Results of other jobs that are attached, and that the same signer signed, go with it: there is one statement. Where
    `image` is an index, the image of the nodes' architecture gets the same, so that it is found from both.

    Raises:
        RefusedError: The result is not good, or is of another image.
        PublishError: The registry refuses.
    """
    if result.exit_code:
        raise RefusedError(
            f"{result.job}: {result.sentence}\nonly a result with exit code 0 is attached: run the job again"
        )
    destination, repository = _open(image)
    manifest = repository.manifest(parse_reference(image).selector)
    if manifest.digest != result.digest:
        raise RefusedError(
            f"{result.job} ran {result.digest}, and {image} is {manifest.digest}\nname the image that it ran"
        )
    attached = _publish(result, manifest, destination, repository, publisher)
    for member in _node_images(result, manifest, repository) if manifest.members() else ():
        _publish(result, member, destination, repository, publisher)
    return attached


def _node_images(result: Result, index: Manifest, repository: Repository) -> Iterator[Manifest]:
    """Yield what the nodes of the job ran of an index: the image of their architecture."""
    try:
        architecture = facts_file.read(Instances).find(result.instance).architecture
    except RefusedError:  # a type that no fact knows
        return
    for member in index.members():
        if member.platform.get("architecture") == architecture:
            yield repository.manifest(member.digest)


def _publish(
    result: Result, manifest: Manifest, destination: Destination, repository: Repository, publisher: Publisher
) -> Attachment:
    """Attach the result to one manifest, beside those of other jobs."""
    signing = publisher.signing(destination, repository, manifest.digest)
    earlier_results = _newest_results(repository, manifest.digest, signing.is_trusted if signing else trust_all)
    other_results = [earlier for earlier in earlier_results if _key(earlier) != _key(result)]
    image_result = replace(result, digest=manifest.digest)
    artifact = _artifact(repository.name, manifest.digest, [*other_results, image_result])
    (attached,) = publisher.retry(lambda: attach([artifact], manifest.descriptor, repository))
    if signing:
        signing.attest([artifact], publisher.retry)
    return attached


def _key(result: Result) -> tuple[str, str, int | None]:
    """Return what two results must have alike for the later to replace the earlier."""
    return result.job, result.instance, result.nodes


def fetch(image: str, trust: Trust | None = None) -> tuple[Result, ...]:
    """Return the job results that are attached to an image, or to the images of an index.

    Raises RefusedError for none.

    Args:
        trust: Whose signature each result must have; None also takes unsigned ones.
    """
    _, repository = _open(image)
    manifest = repository.manifest(parse_reference(image).selector)
    verifier = open_verifier(repository, trust)
    ref = f"{repository.ref}@{manifest.digest}"

    def newest(digest: str) -> tuple[Result, ...]:
        image_ref = f"{repository.ref}@{digest}"
        return _newest_results(
            repository,
            digest,
            lambda _, artifact: (
                verifier is None or verifier.has_attested(image_ref, statement.RESULTS, artifact.content)
            ),
        )

    results = [
        *newest(manifest.digest),
        *(result for member in manifest.members() for result in newest(member.digest)),
    ]
    newest_by_job = tuple({_key(result): result for result in reversed(results)}.values())[::-1]
    if not newest_by_job:
        signed = f" signed by {trust}" if trust else ""
        raise RefusedError(f"{ref} has no job results{signed}\n{COMMAND} job.run RUN --attach adds those of a run")
    return newest_by_job


def fetch_by_reference(text: str, trust: Trust | None = None) -> Result:
    """Return the result that is attached to "host/repository@sha256:…[#job]".

    Raises:
        RefusedError: There is none, or there are several and none is named.
    """
    image, _, job = text.partition("#")
    attached = fetch(image, trust)
    results = [result for result in attached if job in ("", result.job)]
    if len(results) != 1:
        jobs = ", ".join(result.job for result in attached)
        raise RefusedError(f"{text}: {len(results)} results\nname one of its jobs after #: {jobs}")
    return results[0]


def is_reference(text: str) -> bool:
    """Return whether the text names an image by digest, and so no file."""
    return "@sha256:" in text


def _open(image: str) -> tuple[Destination, Repository]:
    reference = parse_reference(image)
    destination = open_destination(reference.host, registries.load_if_present().for_host(reference.host))
    return destination, Repository(destination.connection, reference.repository)


def _newest_results(repository: Repository, digest: str, is_trusted: IsTrusted) -> tuple[Result, ...]:
    """Return the results of the newest trusted attachment that can be read."""
    entries = [entry for entry in newest_first(repository, digest) if entry.annotations.get(FORM) == statement.RESULTS]
    for entry in entries:
        try:
            content = read_content(repository, entry.digest)
            encoded = statement.parse_predicate(content)["results"]
            results = tuple(run_folder.RESULT.decode(result) for result in encoded)
        except (registry_errors.MalformedError, ValueError, KeyError, TypeError):
            continue  # anybody with push access can have attached it
        artifact = Artifact(statement.IN_TOTO, TITLE, content, "", statement.RESULTS)
        if all(result.digest == digest for result in results) and is_trusted(entry, artifact):
            return results
    return ()


def _artifact(name: str, digest: str, results: list[Result]) -> Artifact:
    predicate = {"results": [run_folder.RESULT.encode(result) for result in results]}
    content = statement.statement(name, digest, statement.RESULTS, predicate)
    created = datetime.now(UTC).isoformat(timespec="microseconds")
    return Artifact(statement.IN_TOTO, TITLE, content, created, statement.RESULTS, sha256_digest(canonical(predicate)))
