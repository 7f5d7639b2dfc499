"""The attachments of a scan: the vulnerabilities in in-toto's form, and the exceptions as OpenVEX.

Sources: in-toto/attestation, spec/predicates/vuln.md (0.2); openvex/spec, OPENVEX-SPEC.md (0.2.0).
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from packageurl import PackageURL

from rdma_images.scan.decisions import Decision
from rdma_images.scan.scan_result import Scan, Vulnerability

VULNERABILITIES = "https://in-toto.io/attestation/vulns/v0.2"
OPENVEX = "https://openvex.dev/ns/v0.2.0"


def vulnerability_predicate(scan: Scan, decisions: Sequence[Decision]) -> dict[str, Any]:
    """Return the predicate on a scan: vulnerabilities with the policy's decisions."""
    results = [
        {
            "id": vulnerability.id,
            "severity": [{"method": "scanner", "score": vulnerability.severity}],
            "annotations": [
                {
                    "package": vulnerability.package,
                    "installed": vulnerability.installed,
                    "fixedIn": vulnerability.fixed_in,
                    "outcome": decision.outcome,
                    "why": decision.why,
                }
            ],
        }
        for decision in decisions
        for vulnerability in (decision.vulnerability,)
    ]
    name, _, version = scan.scanner.partition(" ")
    database = {"db": {"lastUpdate": scan.database}} if scan.database else {}
    return {
        "scanner": {"uri": f"urn:scanner:{quote(name)}", "version": version, **database, "result": results},
        "metadata": {"scanStartedOn": scan.finished, "scanFinishedOn": scan.finished},
    }


def openvex(name: str, digest: str, scan: Scan, decisions: Sequence[Decision]) -> dict[str, Any] | None:
    """Return the policy's statements as OpenVEX; None where none is about the image.

    What cannot be exploited is "not_affected" with its justification; an exception is "affected", and its reason and
    end are the action that OpenVEX asks for.
    """
    statements = [
        _statement(name, digest, decision) for decision in decisions if decision.outcome in ("not affected", "accepted")
    ]
    if not statements:
        return None
    return {
        "@context": OPENVEX,
        "@id": f"urn:rdma-images:vex:{digest}",
        "author": "rdma-images",
        "timestamp": scan.finished,
        "version": 1,
        "statements": statements,
    }


def _statement(name: str, digest: str, decision: Decision) -> dict[str, Any]:
    """Return a decision as a statement of OpenVEX about the image `name` with `digest`."""
    vulnerability = decision.vulnerability
    product = PackageURL("oci", None, name, digest).to_string()
    body: dict[str, Any] = {
        "vulnerability": {
            "name": vulnerability.id,
            **({"aliases": [*vulnerability.aliases]} if vulnerability.aliases else {}),
        },
        "products": [{"@id": product, "subcomponents": [{"@id": _purl(vulnerability)}]}],
    }
    if decision.outcome == "accepted":
        return body | {"status": "affected", "action_statement": f"accepted {decision.why}"}
    justification, _, impact = decision.why.partition(": ")
    return body | {"status": "not_affected", "justification": justification, "impact_statement": impact}


def _purl(vulnerability: Vulnerability) -> str:
    kind = {"debian": "deb", "ubuntu": "deb", "python-pkg": "pypi", "python": "pypi"}.get(
        vulnerability.ecosystem, vulnerability.ecosystem
    )
    namespace = "debian" if kind == "deb" else None
    return PackageURL(kind or "generic", namespace, vulnerability.package, vulnerability.installed or None).to_string()
