"""Write in-toto statements: provenance of a build, and the validation report."""

from collections.abc import Sequence
from typing import Any

from rdma_images.core.image import BuildRecord, Image
from rdma_images.core.plain import decode_json
from rdma_images.core.source import Source
from rdma_images.inspection.report import OUTCOMES, Report, encode_report, shown_outcome
from rdma_images.publish.report_versions import is_commit
from rdma_images.registry.client import canonical

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
# No address: it names a form, documented in docs/reference/publishing.md, and leads nowhere.
REPORT = "urn:rdma-images:validation-report:1"
# The validation of an image that was built elsewhere, in place of a provenance, in in-toto's own form.
# Source: in-toto/attestation, spec/predicates/test-result.md.
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
# Results of jobs that ran the image: {"results": […]}, the last result.json of each job.
RESULTS = "urn:rdma-images:job-results:1"
IN_TOTO = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:rdma-images:build:1"


def in_toto_statement(name: str, digest: str, predicate_type: str, predicate: dict[str, Any]) -> bytes:
    """Return a statement on the image `digest`; `name` is the image's name in it."""
    algorithm, _, value = digest.partition(":")
    return canonical(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {algorithm: value}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def provenance(
    image: Image, build: BuildRecord, revision: dict[str, str], pinned: Sequence[Source] = ()
) -> dict[str, Any]:
    """Return the SLSA provenance 1.0 of a build.

    `revision` has the address and commit of the sources, as far as they are known; `pinned` are the downloads, bases
    and archives of the build, with what pins each.
    """
    parameters = {"target": image.target, "platform": image.platform, "axes": dict(sorted(image.axes.items()))}
    dependencies = [
        {"name": component.name, "annotations": {"version": component.version, "decided-by": component.decided_by}}
        for component in sorted(image.components.values(), key=lambda component: component.name)
    ]
    dependencies += [dependency(source) for source in pinned]
    dependencies += [{"name": name, "digest": {"sha256": value}} for name, value in build.files.items()]
    if image.onto:
        algorithm, _, value = image.onto.base.digest.partition(":")
        name = image.onto.base.ref.partition("@")[0]
        dependencies.append({"name": "base-image", "uri": name, "digest": {algorithm: value}})
    source = {"uri": revision["repository"]} if revision.get("repository") else {}
    revision_label = revision.get("commit", "")
    commit = revision_label.removesuffix("-dirty")
    if is_commit(commit):
        dependencies.insert(0, {"name": "rdma-images", **source, "digest": {"gitCommit": commit}})
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": parameters,
            "internalParameters": {"inputs": build.inputs, "clean": is_commit(revision_label)},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": "urn:rdma-images:builder", "version": build.builder},
            "metadata": {"invocationId": build.inputs, "finishedOn": build.finished},
        },
    }


def dependency(source: Source) -> dict[str, Any]:
    """Return a source as a dependency, with its digest or the signature that its archive has."""
    algorithm, _, value = source.pin.partition(":")
    # An archive's address is left out: it comes from this machine's apt, and may be inside a company.
    address = {"uri": source.upstream} if source.upstream and source.kind != "apt" else {}
    pin = {"digest": {algorithm: value}} if algorithm in ("sha256", "sha512") else {"annotations": {"pin": source.pin}}
    return {"name": source.id, **address, **pin}


def test_result(report: Report) -> dict[str, Any]:
    """Return which checks passed, as a predicate that is silent on the build."""
    names: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    for check in report.checks:
        names[shown_outcome(check)].append(check.id)
    algorithm, _, value = report.suite.partition(":")
    return {
        "result": "FAILED" if names["failed"] else "WARNED" if names["warned"] else "PASSED",
        "configuration": [{"name": "rdma-images validators", "digest": {algorithm: value}}],
        "passedTests": names["passed"] + names["noted"],
        "warnedTests": names["warned"],
        "failedTests": names["failed"],
    }


def report_predicate(report: Report, allowed_failed: tuple[str, ...]) -> dict[str, Any]:
    """Return the validation report as a predicate, with the allowed failures."""
    return {"passed": report.passed, "allowedFailed": list(allowed_failed), "report": encode_report(report)}


def parse_predicate(content: bytes) -> dict[str, Any]:
    """Return a statement's predicate; for any other document, all of it."""
    body: dict[str, Any] = decode_json(content)
    return body["predicate"] if "predicateType" in body else body
