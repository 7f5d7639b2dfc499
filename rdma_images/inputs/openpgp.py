"""The check that a file was signed by a key that is pinned by its fingerprint."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from pysequoia import Cert, Sig, verify

from rdma_images.core.errors import first_line
from rdma_images.inputs.download import ChecksumError


class SignatureError(ChecksumError):
    """A signature that is not valid, or a key that is not the pinned one."""


_WRONG_COMPANION = "do not use the file: its server or mirror must have the vendor's key and signature beside it"


def check(file: Path, signature: Path, key: Path, fingerprint: str, name: str) -> None:
    """Raise SignatureError unless the pinned key made the detached `signature` of `file`.

    `key` holds the certificate (armoured or not), `name` is what the error calls the file. A subkey of the pinned
    certificate may sign. GnuPG's gpgv verifies where it is installed, else Sequoia.
    """
    pinned = normalize(fingerprint)
    certificates = _certificates(key, name)
    trusted = next((candidate for candidate in certificates if normalize(candidate.fingerprint) == pinned), None)
    if trusted is None:
        fingerprints = ", ".join(group_digits(certificate.fingerprint) for certificate in certificates)
        raise SignatureError(
            f"{name}: the key beside it is {fingerprints}, but {group_digits(pinned)} is pinned\ndo not trust the file"
        )
    try:
        Sig.from_bytes(signature.read_bytes())
    except RuntimeError as error:
        raise SignatureError(
            f"{name}: {signature.name} is no OpenPGP signature: {first_line(error).rstrip('.')}\n{_WRONG_COMPANION}"
        ) from None
    # Sequoia refuses a key whose user id is bound with SHA-1, as GnuPG made them for many years. Here the pinned
    # fingerprint identifies the key, and only the signature over the file counts: GnuPG, where there is one, checks it.
    verifies = _gpgv if shutil.which("gpgv") else _sequoia
    if reason := verifies(file, signature, trusted):
        raise SignatureError(
            f"{name}: its signature is not valid for the pinned key {group_digits(pinned)}: {reason}\n"
            "do not use the file: it was changed, or signed with another key"
        )


def _gpgv(file: Path, signature: Path, trusted: Cert) -> str:
    """Return why GnuPG, knowing only the trusted key, rejects a signature; "" if it accepts."""
    with tempfile.TemporaryDirectory() as home:
        ring = Path(home) / "trusted.gpg"
        ring.write_bytes(bytes(trusted))
        command = ["gpgv", "--homedir", home, "--status-fd", "1", "--keyring", str(ring), str(signature), str(file)]
        process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    words = [line.split()[1:] for line in process.stdout.splitlines() if line.startswith("[GNUPG:] ")]
    # VALIDSIG ends with the fingerprint of the certificate; GOODSIG says that the key is neither expired nor revoked.
    signers = {normalize(word[-1]) for word in words if word[0] == "VALIDSIG"}
    good = any(word[0] == "GOODSIG" for word in words)
    if process.returncode == 0 and good and normalize(trusted.fingerprint) in signers:
        return ""
    complaints = process.stderr.strip().splitlines()
    return complaints[-1].removeprefix("gpgv: ") if complaints else "no valid signature"


def _sequoia(file: Path, signature: Path, trusted: Cert) -> str:
    """Return why Sequoia does not accept a signature; "" when it does."""
    try:
        result = verify(file=str(file), store=lambda _: [trusted], signature=Sig.from_bytes(signature.read_bytes()))
    except RuntimeError as error:
        return f"{first_line(error).rstrip('.')} (by Sequoia; where gpgv is installed, GnuPG verifies)"
    signers = {normalize(valid.certificate) for valid in result.valid_sigs}
    return "" if normalize(trusted.fingerprint) in signers else "no valid signature"


def normalize(fingerprint: str) -> str:
    """Return a fingerprint without blanks, in upper case."""
    return "".join(fingerprint.split()).upper()


def group_digits(fingerprint: str) -> str:
    """Return a fingerprint as people read it, in groups of four."""
    text = normalize(fingerprint)
    return " ".join(text[n : n + 4] for n in range(0, len(text), 4))


def _certificates(key: Path, name: str) -> list[Cert]:
    try:
        blocks = Cert.split_bytes(key.read_bytes())
    except RuntimeError as error:
        raise SignatureError(
            f"{name}: {key.name} is no OpenPGP key: {first_line(error).rstrip('.')}\n{_WRONG_COMPANION}"
        ) from None
    if not blocks:
        raise SignatureError(f"{name}: {key.name} has no OpenPGP key\n{_WRONG_COMPANION}")
    return blocks
