"""The check that a file was signed by a key that is pinned by its fingerprint, with GnuPG's gpgv."""

import base64
import os
import re
import subprocess
import tempfile
from pathlib import Path

from rdma_images.core.errors import RdmaImagesError
from rdma_images.inputs.download import ChecksumError

_ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----.*?\n\r?\n(.*?)\n=", re.DOTALL)


class SignatureError(ChecksumError):
    """A signature that is not valid, or a key that is not the pinned one."""


def check(file: Path, signature: Path, key: Path, fingerprint: str, name: str) -> None:
    """Raise SignatureError unless the pinned key made the detached `signature` of `file`.

    `key` holds the certificate (armoured or not), `name` is what the error calls the file. A subkey of the pinned
    certificate may sign. Raises RdmaImagesError where gpgv is not installed.
    """
    pinned = "".join(fingerprint.split()).upper()
    certificates = key.read_bytes()
    with tempfile.TemporaryDirectory() as home:
        ring = Path(home) / "trusted.gpg"
        ring.write_bytes(b"".join(map(base64.b64decode, _ARMOUR.findall(certificates))) or certificates)
        command = ["gpgv", "--homedir", home, "--status-fd", "1", "--keyring", str(ring), str(signature), str(file)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        except FileNotFoundError:
            raise RdmaImagesError(f"{name}: gpgv, which verifies it, is not installed\napt install gpgv") from None
    words = [line.split()[1:] for line in process.stdout.splitlines() if line.startswith("[GNUPG:] ")]
    # VALIDSIG ends with the fingerprint of the certificate; GOODSIG says that the key is neither expired nor revoked.
    signer = next((word[-1] for word in words if word[0] == "VALIDSIG"), "")
    is_good = process.returncode == 0 and any(word[0] == "GOODSIG" for word in words)
    if is_good and signer == pinned:
        return
    complaints = process.stderr.strip().splitlines() or ["no valid signature"]
    reason = f"the key {signer} made it" if is_good else complaints[-1].removeprefix("gpgv: ")
    raise SignatureError(
        f"{name}: its signature is not valid for the pinned key {pinned}: {reason}\n"
        "do not use the file: it was changed, or its server or mirror has not the vendor's key and signature beside it"
    )
