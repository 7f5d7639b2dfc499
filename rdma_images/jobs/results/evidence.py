"""Attach what jobs measured to the image that they ran: one statement with the last result of each job."""

from datetime import UTC, datetime

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.results import run_files
from rdma_images.jobs.results.result import Result
from rdma_images.publish import statement
from rdma_images.publish.attach import (
    PREDICATE_TYPE,
    Artifact,
    Attachment,
    IsTrusted,
    attach,
    read_content,
    sorted_attachments,
    trust_all,
)
from rdma_images.publish.destination import open_destination
from rdma_images.publish.publisher import Publisher
from rdma_images.registry import registries, registry_errors
from rdma_images.registry.client import Repository, canonical, sha256_digest
from rdma_images.registry.reference import parse_reference

TITLE = "job-results.json"


def attach_result(result: Result, image: str, publisher: Publisher) -> Attachment:
    """Attach a result to the image "host/repository@sha256:…", signed by the publisher.

    Results of other jobs that are attached, and that the same signer signed, go with it: there is one statement.

    Raises:
        RefusedError: The result is not good, or is of another image.
        RegistryError: The registry refuses.
    """
    if result.exit_code:
        raise RefusedError(
            f"{result.job}: {result.sentence}\nonly a result with exit code 0 is attached: run the job again"
        )
    reference = parse_reference(image)
    destination = open_destination(reference.host, registries.load_if_present().for_host(reference.host))
    repository = Repository(destination.connection, reference.repository)
    manifest = repository.manifest(reference.selector)
    if manifest.digest != result.digest:
        raise RefusedError(
            f"{result.job} ran {result.digest}, and {image} is {manifest.digest}\nname the image that it ran"
        )
    signing = publisher.signing(destination, repository, manifest.digest)
    attached_results = newest_results(repository, manifest.digest, signing.is_trusted if signing else trust_all)
    others = [attached for attached in attached_results if _job(attached) != _job(result)]
    artifact = _artifact(repository.name, manifest.digest, [*others, result])
    (attached,) = publisher.retry(lambda: attach([artifact], manifest.descriptor, repository))
    if signing:
        signing.attest([artifact], publisher.retry)
    return attached


def _job(result: Result) -> tuple[str, str, int | None]:
    """Return the key of a result: of two results with one key the later replaces the earlier."""
    return result.job, result.instance, result.nodes


def newest_results(repository: Repository, digest: str, is_trusted: IsTrusted) -> tuple[Result, ...]:
    """Return the results of the newest trusted attachment that can be read."""
    entries = [
        entry
        for entry in sorted_attachments(repository, digest)
        if entry.annotations.get(PREDICATE_TYPE) == statement.RESULTS
    ]
    for entry in entries:
        try:
            content = read_content(repository, entry.digest)
            encoded = statement.parse_predicate(content)["results"]
            results = tuple(run_files.RESULT.decode(result) for result in encoded)
        except (registry_errors.MalformedError, ValueError, KeyError, TypeError):
            continue  # anybody with push access can have attached it
        artifact = Artifact(statement.IN_TOTO, TITLE, content, "", statement.RESULTS)
        if all(result.digest == digest for result in results) and is_trusted(entry, artifact):
            return results
    return ()


def _artifact(name: str, digest: str, results: list[Result]) -> Artifact:
    predicate = {"results": [run_files.RESULT.encode(result) for result in results]}
    content = statement.in_toto_statement(name, digest, statement.RESULTS, predicate)
    created = datetime.now(UTC).isoformat(timespec="microseconds")
    return Artifact(statement.IN_TOTO, TITLE, content, created, statement.RESULTS, sha256_digest(canonical(predicate)))
