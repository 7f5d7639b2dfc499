"""Keys and identities: who signs, and which signer is trusted."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RefusedError

KEYLESS = "keyless"
_GITHUB = "https://token.actions.githubusercontent.com"  # who vouches for the identity of a job there
# A key that is not a file: a key service's awskms://…, a token's pkcs11:….
_REFERENCE = re.compile(r"[a-z0-9]+:")


@dataclass(frozen=True)
class Signer:
    """A signer: a key file, a key service's reference (awskms://…, gcpkms://…), or KEYLESS.

    The password of a key file is read by cosign itself, from COSIGN_PASSWORD.
    """

    key: str

    def arguments(self) -> list[str]:
        """Return the options of `cosign sign` and `attest`; keys stay out of the public log."""
        if self.key == KEYLESS:
            return ["--yes"]
        return ["--yes", "--key", self.key, "--tlog-upload=false"]


def parse_signer(key: str) -> Signer | None:
    """Return the signer of `--sign`, None if empty. Raises RefusedError for a missing file."""
    if key and key != KEYLESS:
        _require_key_file("--sign", key)
    return Signer(key) if key else None


@dataclass(frozen=True)
class Trust:
    """The trusted signer: the holder of a key, or a keyless identity and its issuer."""

    key: str | None = None
    identity: str | None = None  # a regular expression, in Go's syntax
    issuer: str | None = None

    def arguments(self) -> list[str]:
        """Return the options of `cosign verify`, which needs no network for a key."""
        if self.key is not None:
            return ["--key", self.key, "--insecure-ignore-tlog"]
        return ["--certificate-identity-regexp", self.identity or "", "--certificate-oidc-issuer", self.issuer or ""]

    def __str__(self) -> str:
        return f"the key {self.key}" if self.key else f"{self.identity} ({self.issuer})"


def parse_trust(key: str, identity: str, issuer: str) -> Trust | None:
    """Return the trusted signer that the options name; None without options.

    Raises RefusedError for half an identity, and for a file that is not there.
    """
    if key and (identity or issuer):
        raise RefusedError("--key and --identity exclude each other\nname the one that must have signed")
    if bool(identity) != bool(issuer):
        raise RefusedError("--identity and --issuer belong together\ngive both")
    if key:
        _require_key_file("--key", key)
    return Trust(key or None, identity or None, issuer or None) if key or identity else None


def _require_key_file(option: str, key: str) -> None:
    """Raise RefusedError for a missing key file, before any registry is asked."""
    if _REFERENCE.match(key):
        return
    if files.exists(Path(key)):
        with files.raising_file_error(key), Path(key).open("rb"):
            return
    else:
        raise RefusedError(f"{option} {key}: no such file\nname a key file, or a key service's reference (awskms://…)")


def ci_identity(environ: Mapping[str, str] = os.environ) -> Trust | None:
    """Return the keyless identity of this GitHub job: its workflow at this ref.

    The variables are GitHub's default ones; the name in the certificate is the workflow's address at its ref
    (docs.sigstore.dev/fulcio/oidc-in-fulcio).

    None outside of such a job.
    """
    variables = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_REF")
    server, repository, ref = (re.escape(environ.get(name, "")) for name in variables)
    if environ.get("GITHUB_ACTIONS") != "true" or not (server and repository and ref):
        return None
    identity = rf"^{server}/{repository}/\.github/workflows/[^@]+@{ref}$"
    return Trust(identity=identity, issuer=_GITHUB)


def key_label(key: str) -> str:
    """Return a key's name in publications: its reference, or its file without folder."""
    return key if "://" in key or key == KEYLESS else Path(key).name
