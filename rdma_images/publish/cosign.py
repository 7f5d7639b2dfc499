"""cosign: signatures and signed statements, made and looked at.

cosign is found on the PATH; where it is not, Debian's package is unpacked into the state folder. From 2.4 on to 3, each
version reads what the others wrote here: signatures are kept as cosign 2 keeps them.
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
from rdma_images.core.progress import Progress, silent
from rdma_images.debian import unpacked
from rdma_images.publish import statement
from rdma_images.publish.keys import KEYLESS, Signer, Trust, own_identity
from rdma_images.registry import faults
from rdma_images.registry.credentials import Login
from rdma_images.registry.registries import is_loopback

_SUITE = "trixie"  # the first of Debian with cosign, 2.5; needs libc 2.34
_INSTALL = (
    "install cosign 2.4 or later, as a package (Debian 13 has 2.5) or from the releases of sigstore/cosign; "
    "on Debian it is fetched where there is none on the PATH"
)
_HELPER = "rdma-images"
_LIMIT = 180  # seconds for one call
# Where the helper below finds the login: the environment of that one child process.
_VARIABLE = "RDMA_IMAGES_LOGIN"


@dataclass(frozen=True)
class Program:
    """cosign itself. `bundles`: it can keep signatures as Sigstore bundles (2.6 on), and does by itself from 3 on."""

    path: Path
    bundles: bool

    def arguments(self, verb: str) -> list[str]:
        """What keeps it to signatures that every version reads, and to services that are named.

        Once an image has a bundle, whoever made it, cosign 3 looks at bundles alone unless a switch forbids it.
        """
        if not self.bundles or verb == "public-key":
            return []
        # A signing configuration would come from Sigstore's servers, and it excludes --tlog-upload=false.
        return ["--new-bundle-format=false", *(["--use-signing-config=false"] if verb in ("sign", "attest") else [])]


class Cosign:
    """cosign for one registry, whose login it is handed without a file."""

    def __init__(self, program: Program, host: str, login: Login | None) -> None:
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
            what = ["--replace", "--type", predicate_type, "--predicate", file.name]
            self._run("attest", *self._loopback, *signer.arguments(), *what, ref)

    @contextmanager
    def trust(self, signer: Signer) -> Iterator[Trust | None]:
        """The trust that covers `signer` itself; None for a keyless one whose identity is unknown."""
        if signer.key == KEYLESS:
            yield own_identity()
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pub", encoding="utf-8") as file:
            file.write(self._run("public-key", "--key", signer.key))
            file.flush()
            yield Trust(key=file.name)

    def verified(self, ref: str, trust: Trust) -> bool:
        """Whether `ref` carries a signature that `trust` made. Raises PublishError where cosign fails."""
        return self._ask("verify", *trust.arguments(), ref) is not None

    def statements(self, ref: str, trust: Trust, predicate_type: str) -> list[dict[str, Any]]:
        """The statements of one type on `ref` that `trust` signed."""
        output = self._ask("verify-attestation", *trust.arguments(), "--type", predicate_type, ref)
        return [] if output is None else list(_payloads(output))

    def attested(self, ref: str, trust: Trust, predicate_type: str, content: bytes) -> bool:
        """Whether `trust` signed on `ref` just what `content` says, an attachment that anybody may have written."""
        try:
            said = statement.predicate(content)
        except (ValueError, KeyError, TypeError):
            return False
        return said in [one["predicate"] for one in self.statements(ref, trust, predicate_type)]

    def _ask(self, verb: str, *arguments: str) -> str | None:
        """Standard output, or None where cosign found no signature that counts."""
        try:
            return self._run(verb, *self._loopback, *arguments)
        except _NothingFound:
            return None

    def _run(self, verb: str, *arguments: str) -> str:
        with environment(self._host, self._login) as environ:
            command = [str(self.program.path), verb, *self.program.arguments(verb), *arguments]
            try:
                done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_LIMIT, check=False)
            except subprocess.TimeoutExpired:
                raise faults.BusyError(
                    f"cosign {verb} for {arguments[-1]} took more than {_LIMIT} s\ncheck the connection to the registry"
                ) from None
        if done.returncode == 0:
            return done.stdout
        secrets = self._login.secrets() if self._login else ()
        raise _fault(verb, arguments[-1], faults.masked(done.stderr, secrets))


class _NothingFound(faults.PublishError):
    """cosign did its work, and there is no signature that counts."""


def _fault(verb: str, ref: str, output: str) -> faults.PublishError:
    """cosign's complaint as a sentence: its line with the error, or what it said at all but warnings."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    others = [line for line in lines if line and not line.startswith(("main.go", "WARNING", "Flag --"))]
    said = next(iter(errors + others), "no reason given")
    lowered = output.lower()
    if verb.startswith("verify") and re.search(
        r"no (matching )?(signatures|attestations)|none of the attestations", lowered
    ):
        return _NothingFound(f"{ref}: {said}")
    if "decrypt" in lowered or "password" in lowered:
        return faults.UnauthorizedError(f"cosign cannot open the key ({said})\nset COSIGN_PASSWORD")
    if re.search(r"\b(50[0234]|429)\b|connection refused|connection reset|eof", lowered):
        return faults.BusyError(
            f"cosign {verb} for {ref} was cut off: {said}\ntry again, and check the connection to the registry"
        )
    return faults.PublishError(
        f"cosign {verb} for {ref} failed: {said}\ncheck the key, the identity and the right to push"
    )


def _payloads(output: str) -> Iterator[dict[str, Any]]:
    """The statements in cosign's envelopes, one JSON object a line."""
    for line in output.splitlines():
        if line.strip():
            yield json.loads(base64.b64decode(json.loads(line)["payload"]))


@contextmanager
def environment(host: str, login: Login | None) -> Iterator[Mapping[str, str]]:
    """The environment of a cosign process.

    cosign takes logins from docker's config only. The config made here names a credential helper, and the helper
    prints what the environment of this one process holds: no secret reaches a disk or a command line.
    """
    with tempfile.TemporaryDirectory(prefix="rdma-images-cosign-") as name:
        folder = Path(name)
        config = {"credHelpers": {host: _HELPER}} if login is not None else {}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        environ = {**os.environ, "DOCKER_CONFIG": name, "COSIGN_PASSWORD": os.environ.get("COSIGN_PASSWORD", "")}
        if login is not None:
            helper = folder / f"docker-credential-{_HELPER}"
            helper.write_text(f'#!/bin/sh\nprintf %s "${_VARIABLE}"\n', encoding="utf-8")
            helper.chmod(0o700)
            environ["PATH"] = f"{name}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
            environ[_VARIABLE] = json.dumps({"ServerURL": host, **_pair(login)})
        yield environ


def _pair(login: Login) -> dict[str, str]:
    """A login as a credential helper answers it."""
    if login.identity_token:
        return {"Username": "<token>", "Secret": login.identity_token}
    if login.bearer:
        raise RefusedError("cosign takes no bearer token\nname username and password, or identity-token instead")
    return {"Username": login.username, "Secret": login.password}


def program(progress: Progress = silent) -> Program:
    """cosign itself. Raises RdmaImagesError with what to install where there is none, or one before 2.4."""
    if found := shutil.which("cosign"):
        path = Path(found)
    elif sys.platform == "linux" and shutil.which("apt-get"):
        path = unpacked.fetch(["cosign"], _SUITE, state_folder() / "cosign", progress) / "usr" / "bin" / "cosign"
    else:
        raise RdmaImagesError(f"there is no cosign on the PATH\n{_INSTALL}")
    return _looked_at(path)


@functools.cache
def _looked_at(path: Path) -> Program:
    """What the cosign at `path` can do, by its own help: distributions build it without the number of its version."""
    # Of cosign 2.4 and 2.6, by the documentation of its tags v2.3.0 to v3.1.2.
    if "--trusted-root" not in _said(path, "verify-blob", "--help"):
        version = re.search(r"GitVersion:\s*(\S+)", _said(path, "version"))
        said = version[1] if version else "it says none"
        raise RdmaImagesError(f"{path} is older than cosign 2.4, or no cosign at all (its version: {said})\n{_INSTALL}")
    return Program(path, "--use-signing-config" in _said(path, "sign", "--help"))


def _said(path: Path, *arguments: str) -> str:
    """What a program prints for `arguments`, on either output. Raises RdmaImagesError where it does not run."""
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RdmaImagesError(f"{path} does not run: {error}\n{_INSTALL}") from None
    return done.stdout + done.stderr
