"""Check attached Sigstore bundles offline, with sigstore-python.

A bundle brings the certificate of its signer, the entry of the public log and the signed statement. What they are
checked against is the trusted root: the one that sigstore-python brings along, or a file.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rdma_images.core.errors import RefusedError, first_line
from rdma_images.publish import statement
from rdma_images.publish.attach import attachments, read_content
from rdma_images.publish.keys import Trust
from rdma_images.registry import registry_errors
from rdma_images.registry.client import Descriptor, Repository

# How cosign 3 and GitHub attach what they sign, and the annotation that says what is in it.
BUNDLE = "application/vnd.dev.sigstore.bundle"
PREDICATE = "dev.sigstore.bundle.predicateType"
_IN_TOTO = "application/vnd.in-toto+json"
# Fulcio's extension with the repository whose job signed. Source: sigstore/fulcio, docs/oid-info.md.
_SOURCE_REPOSITORY = "1.3.6.1.4.1.57264.1.12"


@dataclass(frozen=True)
class SignedStatement:
    """A statement on an image, and the signer that its certificate names."""

    statement: Mapping[str, Any]
    signer: str  # as https://github.com/team/images/.github/workflows/image.yml@refs/heads/main
    source: str  # the repository whose job signed; empty where the certificate names none


@dataclass
class Bundles:
    """An image's bundles: statements of the trusted signer, and why others do not count."""

    statements: list[SignedStatement] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)  # a line for each


class BundleError(Exception):
    """A bundle does not count; the message is one line."""


def is_available() -> bool:
    """Return whether sigstore-python is installed."""
    try:
        import sigstore  # noqa: F401
    except ImportError:
        return False
    return True


def read_bundles(repository: Repository, digest: str, trust: Trust) -> Bundles:
    """Return the bundles that are attached to the image `digest`, each of them checked.

    Raises:
        RefusedError: The trusted root cannot be read.
        PublishError: The registry does not answer.
    """
    bundles = Bundles()
    check = checker(trust)
    for entry in bundle_entries(repository, digest):
        try:
            bundles.statements.append(check(read_content(repository, entry.digest), digest))
        except (BundleError, registry_errors.MalformedError) as error:
            bundles.refusals.append(f"bundle {entry.digest[:19]}: {first_line(error)}")
    return bundles


def is_attested(bundles: Bundles, form: str, content: bytes) -> bool:
    """Return whether the trusted signer signed exactly this attachment."""
    try:
        predicate = statement.parse_predicate(content)
    except (ValueError, KeyError, TypeError):
        return False
    return any(
        signed.statement["predicateType"] == form and signed.statement.get("predicate") == predicate
        for signed in bundles.statements
    )


def bundle_entries(repository: Repository, digest: str) -> list[Descriptor]:
    """Return the descriptors of the bundles that are attached to an image."""
    return [entry for entry in attachments(repository, digest) if entry.artifact_type.startswith(BUNDLE)]


def checker(trust: Trust) -> Callable[[bytes, str], SignedStatement]:
    """Return a function that checks bundles about an image, and raises BundleError.

    Raises RefusedError where the trusted root cannot be read.
    """
    from sigstore.errors import CertValidationError, Error, VerificationError
    from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
    from sigstore.verify import Verifier

    logging.getLogger("sigstore").setLevel(logging.ERROR)  # it warns that it works without a network
    try:
        if trust.root:
            root = TrustedRoot.from_file(trust.root)
        else:
            root = ClientTrustConfig.production(offline=True).trusted_root
        verifier = Verifier(trusted_root=root)
    except (Error, OSError, ValueError) as error:
        raise RefusedError(
            f"the trusted root {trust.root or 'of sigstore-python'} cannot be read: {first_line(error)}\n"
            "name a trusted_root.json of Sigstore's TUF repository, or of your own Sigstore"
        ) from None

    def check(content: bytes, digest: str) -> SignedStatement:
        signer = _SignerPolicy(trust)
        try:
            media_type, payload = verifier.verify_dsse(Bundle.from_json(content), signer)
        except CertValidationError as error:
            expired = "not valid at validation time" in str(error)
            reason = "was not valid when it signed" if expired else "does not lead to the trusted root"
            raise BundleError(f"the certificate of {signer.name or 'its signer'} {reason}") from None
        except VerificationError as error:
            raise BundleError(first_line(error)) from None
        except (Error, ValueError, TypeError, LookupError, RecursionError):
            raise BundleError("is no bundle of a keyless signature that can be read") from None
        return SignedStatement(_statement_about(digest, media_type, payload), signer.name, signer.source)

    return check


class _SignerPolicy:
    """The trusted signer as a policy of sigstore-python, with a regular expression."""

    def __init__(self, trust: Trust) -> None:
        self._identity, self._issuer = trust.identity or "", trust.issuer or ""
        self.name = ""  # of the certificate that was looked at, and its repository
        self.source = ""

    def verify(self, cert: Any) -> None:
        """Raise sigstore's VerificationError where the certificate is another signer's."""
        from cryptography import x509
        from sigstore.errors import VerificationError
        from sigstore.verify.policy import AnyOf, OIDCIssuer, OIDCIssuerV2

        alternatives = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [*alternatives.get_values_for_type(x509.UniformResourceIdentifier)]
        names += alternatives.get_values_for_type(x509.RFC822Name)
        self.name = next(iter(names), "a name of another kind")
        if not re.search(self._identity, self.name):
            raise VerificationError(f"signed by {self.name}, which is not {self._identity}")
        try:
            AnyOf([OIDCIssuerV2(self._issuer), OIDCIssuer(self._issuer)]).verify(cert)
        except VerificationError:
            raise VerificationError(
                f"signed by {self.name}, for whom another issuer vouches than {self._issuer}"
            ) from None
        self.source = _text_extension(cert, _SOURCE_REPOSITORY)


def _text_extension(cert: Any, oid: str) -> str:
    """Return the text of an extension of Fulcio's; empty where the certificate has none."""
    from cryptography import x509
    from cryptography.hazmat import asn1

    try:
        return str(asn1.decode_der(str, cert.extensions.get_extension_for_oid(x509.ObjectIdentifier(oid)).value.value))
    except (x509.ExtensionNotFound, ValueError):
        return ""


def _statement_about(digest: str, media_type: str, payload: bytes) -> Mapping[str, Any]:
    """Return the statement in an envelope. Raises BundleError for another subject."""
    try:
        body: Mapping[str, Any] = json.loads(payload)
        algorithm, _, value = digest.partition(":")
        subjects = [subject["digest"].get(algorithm) for subject in body["subject"]]
        predicate_type = body["predicateType"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BundleError("signs something else than a statement of in-toto") from None
    if media_type != _IN_TOTO or not isinstance(predicate_type, str):
        raise BundleError("signs something else than a statement of in-toto")
    if value not in subjects:
        raise BundleError(f"is about {', '.join(map(str, subjects))[:200] or 'nothing'}, and not about this image")
    return body
