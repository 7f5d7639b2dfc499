"""Whether a file was signed by a key that is pinned by its fingerprint."""

from pathlib import Path

from pysequoia import Cert, Sig, verify

from rdma_images.errors import RdmaImagesError


class SignatureError(RdmaImagesError):
    """A signature that does not hold, or a key that is not the pinned one."""


def check(file: Path, signature: Path, key: Path, fingerprint: str, name: str) -> None:
    """Raise SignatureError unless `signature` (detached) over `file` was made by the key with `fingerprint`.

    `key` holds the certificate (armoured or not), `name` is what the error calls the file. A subkey of the pinned
    certificate may sign. OpenPGP is Sequoia's, with its policy on weak algorithms.
    """
    pinned = normal(fingerprint)
    certificates = _certificates(key, name)
    trusted = [certificate for certificate in certificates if normal(certificate.fingerprint) == pinned]
    if not trusted:
        found = ", ".join(spaced(certificate.fingerprint) for certificate in certificates)
        raise SignatureError(f"{name}: the key beside it is {found}, but {spaced(pinned)} is pinned: do not trust it")
    try:
        made = Sig.from_bytes(signature.read_bytes())
    except RuntimeError as error:
        raise SignatureError(f"{name}: {signature.name} is no OpenPGP signature: {_first_line(error)}") from None
    try:
        result = verify(file=str(file), store=lambda _: trusted, signature=made)
        signers = {normal(valid.certificate) for valid in result.valid_sigs}
    except RuntimeError as error:
        signers, reason = set(), _first_line(error)
    else:
        reason = "no valid signature"
    if pinned not in signers:
        user = ", ".join(str(user) for user in trusted[0].user_ids) or "without a name"
        raise SignatureError(
            f"{name}: its signature, made by key {_issuer(made)}, does not hold for the pinned key {spaced(pinned)} "
            f"({user}): {reason}. The file was changed, or someone else signed it: do not use it"
        )


def normal(fingerprint: str) -> str:
    """A fingerprint without blanks, in upper case."""
    return "".join(fingerprint.split()).upper()


def spaced(fingerprint: str) -> str:
    """A fingerprint as people read it, in groups of four."""
    text = normal(fingerprint)
    return " ".join(text[n : n + 4] for n in range(0, len(text), 4))


def fingerprints(key: Path, name: str) -> tuple[str, ...]:
    """The fingerprints of the certificates in a key file. Raises SignatureError when there is none."""
    return tuple(normal(certificate.fingerprint) for certificate in _certificates(key, name))


def _certificates(key: Path, name: str) -> list[Cert]:
    try:
        found = Cert.split_bytes(key.read_bytes())
    except RuntimeError as error:
        raise SignatureError(f"{name}: {key.name} is no OpenPGP key: {_first_line(error)}") from None
    if not found:
        raise SignatureError(f"{name}: {key.name} has no OpenPGP key")
    return found


def _issuer(signature: Sig) -> str:
    """Who says to have made a signature: a fingerprint, in old signatures only a key's id."""
    issuer = signature.issuer_fingerprint or signature.issuer_key_id
    return spaced(str(issuer)) if issuer else "unknown"


def _first_line(error: Exception) -> str:
    """Sequoia's sentence without the stack of its own functions below it."""
    return str(error).splitlines()[0].rstrip(".")
