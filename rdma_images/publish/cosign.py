"""Make and check signatures and signed statements with cosign.

cosign is looked up on the PATH; where it is not there, Debian's package is unpacked into the state folder. From 2.4 on
to 3, each version reads what the others wrote here: signatures are kept as cosign 2 keeps them.
"""

import base64
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.plain import decode_json
from rdma_images.core.progress import Progress, silent
from rdma_images.engine.debian import debian_packages
from rdma_images.publish import statement
from rdma_images.publish.keys import KEYLESS, Signer, Trust, ci_identity
from rdma_images.registry import registry_errors
from rdma_images.registry.connection import Connection
from rdma_images.registry.credentials import docker_environment
from rdma_images.registry.registries import is_loopback

_SUITE = "trixie"  # the first of Debian with cosign, 2.5; needs libc 2.34
_INSTALL = (
    "install cosign 2.4 or later, as a package (Debian 13 has 2.5) or from the releases of sigstore/cosign; "
    "on Debian it is fetched where there is none on the PATH"
)
_COSIGN_SECONDS = 180  # seconds for one call


@dataclass(frozen=True)
class CosignProgram:
    """The cosign program; `bundles` is whether it writes Sigstore bundles unless it is told not to (2.6 and later)."""

    path: Path
    bundles: bool

    def arguments(self, verb: str) -> list[str]:
        """Return the options for signatures in the form that every version of cosign reads."""
        if not self.bundles or verb == "public-key":
            return []
        # A signing configuration would come from Sigstore's servers, and it excludes --tlog-upload=false.
        return ["--new-bundle-format=false", *(["--use-signing-config=false"] if verb in ("sign", "attest") else [])]


class Cosign:
    """cosign for one registry; the login is passed to it in memory."""

    def __init__(self, connection: Connection, progress: Progress = silent) -> None:
        self._connection, self._progress = connection, progress
        self._loopback = ["--allow-http-registry"] if is_loopback(connection.host) else []

    @functools.cached_property
    def program(self) -> CosignProgram:
        """Return cosign, looked for when it is first needed."""
        return find_program(self._progress)

    def sign(self, ref: str, signer: Signer) -> None:
        """Sign `ref`, an image by digest."""
        self._run("sign", *self._loopback, *signer.arguments(), ref)

    def attest(self, ref: str, signer: Signer, predicate_type: str, predicate: bytes) -> None:
        """Attach a signed statement; one of the same type that is there is replaced."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(predicate)
            file.flush()
            options = ["--replace", "--type", predicate_type, "--predicate", file.name]
            self._run("attest", *self._loopback, *signer.arguments(), *options, ref)

    @contextmanager
    def trust(self, signer: Signer) -> Iterator[Trust | None]:
        """Yield the trust in `signer` itself; None for a keyless one of unknown identity."""
        if signer.key == KEYLESS:
            yield ci_identity()
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pub", encoding="utf-8") as file:
            file.write(self._run("public-key", "--key", signer.key))
            file.flush()
            yield Trust(key=file.name)

    def has_signed(self, ref: str, trust: Trust) -> bool:
        """Return whether `trust` has signed `ref`. Raises RegistryError where cosign fails."""
        return self._run_or_none("verify", *trust.arguments(), ref) is not None

    def statements(self, ref: str, trust: Trust, predicate_type: str) -> list[dict[str, Any]]:
        """Return the statements of one type on `ref` that `trust` signed."""
        output = self._run_or_none("verify-attestation", *trust.arguments(), "--type", predicate_type, ref)
        try:
            return [] if output is None else list(_payloads(output))
        except (ValueError, KeyError, TypeError) as error:
            raise registry_errors.MalformedError(
                f"cosign verify-attestation answers in another form: {error!r}\n{_INSTALL}"
            ) from None

    def has_attested(self, ref: str, trust: Trust, predicate_type: str, content: bytes) -> bool:
        """Return whether `trust` signed exactly the attachment `content` on `ref`."""
        try:
            predicate = statement.parse_predicate(content)
        except (ValueError, KeyError, TypeError):
            return False
        return predicate in [signed["predicate"] for signed in self.statements(ref, trust, predicate_type)]

    def _run_or_none(self, verb: str, *arguments: str) -> str | None:
        """Return standard output, or None where cosign finds no valid signature."""
        try:
            return self._run(verb, *self._loopback, *arguments)
        except _NoSignatureError:
            return None

    def _run(self, verb: str, *arguments: str) -> str:
        command = [str(self.program.path), verb, *self.program.arguments(verb), *arguments]
        login = self._connection.login()
        with docker_environment(self._connection.host, login) as environ:
            try:
                process = subprocess.run(
                    command,
                    env={"COSIGN_PASSWORD": "", **environ},  # without it, cosign would ask for one
                    capture_output=True,
                    text=True,
                    timeout=_COSIGN_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise registry_errors.BusyError(
                    f"cosign {verb} for {arguments[-1]} took more than {_COSIGN_SECONDS} s\n"
                    "check the connection to the registry"
                ) from None
        if process.returncode == 0:
            return process.stdout
        secrets = [login.password] if login else ()
        raise cosign_error(verb, arguments[-1], registry_errors.mask_secrets(process.stderr, secrets))


class _NoSignatureError(registry_errors.RegistryError):
    """cosign found no valid signature."""


def cosign_error(verb: str, ref: str, output: str) -> registry_errors.RegistryError:
    """Return cosign's complaint as an error: its line with the error, or all but warnings."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    other_lines = [line for line in lines if line and not line.startswith(("main.go", "WARNING", "Flag --"))]
    reason = next(iter(errors + other_lines), "no reason given")
    lowered = output.lower()
    if verb.startswith("verify") and re.search(
        r"no (matching )?(signatures|attestations)|none of the attestations", lowered
    ):
        return _NoSignatureError(f"{ref}: {reason}")
    if "decrypt" in lowered or "password" in lowered:
        return registry_errors.UnauthorizedError(f"cosign cannot open the key ({reason})\nset COSIGN_PASSWORD")
    if re.search(r"\b(50[0234]|429)\b|connection refused|connection reset|eof", lowered):
        return registry_errors.BusyError(
            f"cosign {verb} for {ref} was cut off: {reason}\ntry again, and check the connection to the registry"
        )
    return registry_errors.RegistryError(
        f"cosign {verb} for {ref} failed: {reason}\ncheck the key, the identity and the right to push"
    )


def _payloads(output: str) -> Iterator[dict[str, Any]]:
    """Yield the statements in cosign's envelopes, one JSON object a line."""
    for line in output.splitlines():
        if line.strip():
            yield decode_json(base64.b64decode(decode_json(line)["payload"]))


def find_program(progress: Progress = silent) -> CosignProgram:
    """Return cosign 2.4 or later. Raises RdmaImagesError where it must be installed first."""
    if on_path := shutil.which("cosign"):
        path = Path(on_path)
    elif sys.platform == "linux" and shutil.which("apt-get"):
        path = debian_packages.fetch(["cosign"], _SUITE, state_folder() / "cosign", progress) / "usr" / "bin" / "cosign"
    else:
        raise RdmaImagesError(f"cosign is not on the PATH\n{_INSTALL}")
    return _inspect_program(path)


@functools.cache
def _inspect_program(path: Path) -> CosignProgram:
    """Return the abilities of the cosign at `path`, read from its help."""
    # Of cosign 2.4 and 2.6, by the documentation of its tags v2.3.0 to v3.1.2.
    if "--trusted-root" not in _program_output(path, "verify-blob", "--help"):
        version = re.search(r"GitVersion:\s*(\S+)", _program_output(path, "version"))
        described = version[1] if version else "it says none"
        raise RdmaImagesError(
            f"{path} is older than cosign 2.4, or no cosign at all (its version: {described})\n{_INSTALL}"
        )
    return CosignProgram(path, "--use-signing-config" in _program_output(path, "sign", "--help"))


def _program_output(path: Path, *arguments: str) -> str:
    """Return both outputs of a program. Raises RdmaImagesError where it does not run."""
    try:
        process = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=_COSIGN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RdmaImagesError(f"{path} does not run: {error}\n{_INSTALL}") from None
    return process.stdout + process.stderr
