"""Make and check signatures and signed statements with cosign.

cosign is looked up on the PATH; where it is not there, Debian's package is unpacked into the state folder. From 2.4 on
to 3, each version reads what the others wrote here: signatures are kept as cosign 2 keeps them. What others signed with
cosign 3, as Sigstore's bundles, a cosign from 2.6 on reads, too.
"""

import base64
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.paths import state_folder
from rdma_images.core.plain import decode_json
from rdma_images.core.progress import Progress, silent
from rdma_images.engine.debian import debian_packages
from rdma_images.publish import statement
from rdma_images.publish.keys import KEYLESS, Signer, Trust, ci_identity
from rdma_images.registry import registry_errors
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import is_loopback

_SUITE = "trixie"  # the first of Debian with cosign, 2.5; needs libc 2.34
_INSTALL = (
    "install cosign 2.4 or later, as a package (Debian 13 has 2.5) or from the releases of sigstore/cosign; "
    "on Debian it is fetched where there is none on the PATH"
)
_HELPER = "rdma-images"
# The statements in a bundle that sign the image itself.
SIGNATURE_TYPES = ("https://sigstore.dev/cosign/sign/v1", "cosign container image signature")
_COSIGN_SECONDS = 180  # seconds for one call
# Where the helper below finds the login: the environment of that one child process.
_LOGIN_VARIABLE = "RDMA_IMAGES_LOGIN"


@dataclass(frozen=True)
class CosignProgram:
    """The cosign program; `bundles` is whether it writes Sigstore bundles (2.6 and later)."""

    path: Path
    bundles: bool

    def arguments(self, verb: str, in_bundles: bool = False) -> list[str]:
        """Return the options for signatures in the form of every cosign version, or in bundles.

        Once an image has a bundle, whoever made it, cosign 3 looks at bundles alone unless a switch forbids it;
        `in_bundles` makes it read bundles.
        """
        if not self.bundles or verb == "public-key":
            return []
        if in_bundles:
            return ["--new-bundle-format=true"]
        # A signing configuration would come from Sigstore's servers, and it excludes --tlog-upload=false.
        return ["--new-bundle-format=false", *(["--use-signing-config=false"] if verb in ("sign", "attest") else [])]


class Cosign:
    """cosign for one registry; the login is passed to it in memory."""

    def __init__(self, program: CosignProgram, host: str, login: Login | None) -> None:
        self.program = program
        self._login = login
        self._host = host
        self._loopback = ["--allow-http-registry"] if is_loopback(host) else []

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
        if self._run_or_none("verify", *trust.arguments(), ref) is not None:
            return True
        output = self._run_or_none("verify", *trust.arguments(), ref, in_bundles=True)
        if output is None:
            return False
        with _checked_form("verify"):
            # cosign counts every signed statement in a bundle, also one that only says what somebody attached.
            return any(claim["critical"]["type"] in SIGNATURE_TYPES for claim in decode_json(output))

    def statements(self, ref: str, trust: Trust, predicate_type: str) -> list[dict[str, Any]]:
        """Return the statements of one type on `ref` that `trust` signed."""
        arguments = (*trust.arguments(), "--type", predicate_type, ref)
        output = self._run_or_none("verify-attestation", *arguments)
        if output is None:
            output = self._run_or_none("verify-attestation", *arguments, in_bundles=True)
        with _checked_form("verify-attestation"):
            return [] if output is None else list(_payloads(output))

    def has_attested(self, ref: str, trust: Trust, predicate_type: str, content: bytes) -> bool:
        """Return whether `trust` signed exactly the attachment `content` on `ref`."""
        try:
            predicate = statement.parse_predicate(content)
        except (ValueError, KeyError, TypeError):
            return False
        return predicate in [signed["predicate"] for signed in self.statements(ref, trust, predicate_type)]

    def _run_or_none(self, verb: str, *arguments: str, in_bundles: bool = False) -> str | None:
        """Return standard output, or None where cosign finds no valid signature."""
        if in_bundles and not self.program.bundles:
            return None
        try:
            return self._run(verb, *self._loopback, *arguments, in_bundles=in_bundles)
        except _NoSignatureError:
            return None

    def _run(self, verb: str, *arguments: str, in_bundles: bool = False) -> str:
        with environment(self._host, self._login) as environ:
            command = [str(self.program.path), verb, *self.program.arguments(verb, in_bundles), *arguments]
            try:
                process = subprocess.run(
                    command, env=environ, capture_output=True, text=True, timeout=_COSIGN_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                raise registry_errors.BusyError(
                    f"cosign {verb} for {arguments[-1]} took more than {_COSIGN_SECONDS} s\n"
                    "check the connection to the registry"
                ) from None
        if process.returncode == 0:
            return process.stdout
        secrets = self._login.secrets() if self._login else ()
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
        r"no (matching )?(signatures|attestations)|no valid bundles|none of the attestations", lowered
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


@contextmanager
def _checked_form(verb: str) -> Iterator[None]:
    """Raise MalformedError where cosign's answer cannot be parsed."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise registry_errors.MalformedError(f"cosign {verb} answers in another form: {error!r}\n{_INSTALL}") from None


def _payloads(output: str) -> Iterator[dict[str, Any]]:
    """Yield the statements in cosign's envelopes, one JSON object a line."""
    for line in output.splitlines():
        if line.strip():
            yield decode_json(base64.b64decode(decode_json(line)["payload"]))


@contextmanager
def environment(host: str, login: Login | None, base: Mapping[str, str] = os.environ) -> Iterator[Mapping[str, str]]:
    """Yield the environment of a cosign or docker process that has a login.

    They take logins from docker's config only. The config made here names a credential helper, and the helper
    prints what the environment of this one process holds: no secret reaches a disk or a command line.

    Args:
        base: The environment that it extends; the plugins of its docker config stay.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-cosign-") as name:
        folder = Path(name)
        config: dict[str, Any] = {"credHelpers": {host: _HELPER}} if login is not None else {}
        config |= _plugin_folders(base.get("DOCKER_CONFIG", ""))
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        environ = {**base, "DOCKER_CONFIG": name, "COSIGN_PASSWORD": os.environ.get("COSIGN_PASSWORD", "")}
        if login is not None:
            helper = folder / f"docker-credential-{_HELPER}"
            helper.write_text(f'#!/bin/sh\nprintf %s "${_LOGIN_VARIABLE}"\n', encoding="utf-8")
            helper.chmod(0o700)
            environ["PATH"] = f"{name}{os.pathsep}{base.get('PATH', os.defpath)}"
            environ[_LOGIN_VARIABLE] = json.dumps({"ServerURL": host, **_helper_answer(login)})
        yield environ


def _plugin_folders(docker_config: str) -> dict[str, Any]:
    """Return the folders of docker's plugins that the config in a folder names."""
    path = Path(docker_config) / "config.json"
    configured = decode_json(path.read_bytes()) if docker_config and path.is_file() else {}
    return {key: value for key, value in configured.items() if key == "cliPluginsExtraDirs"}


def _helper_answer(login: Login) -> dict[str, str]:
    """Return a login as a credential helper answers it."""
    if login.identity_token:
        return {"Username": "<token>", "Secret": login.identity_token}
    if login.bearer:
        raise RefusedError("cosign takes no bearer token\nname username and password, or identity-token instead")
    return {"Username": login.username, "Secret": login.password}


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
