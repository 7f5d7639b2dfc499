"""Unpack Debian packages of any suite into folders: verified by apt, not installed."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core import disk_space, locking
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import state_folder
from rdma_images.core.progress import Progress, silent
from rdma_images.engine.debian import host_apt

MANIFEST = ".packages.json"
# Bytes for apt's lists of one suite (sid: 119 MB). apt keeps the old lists until the new ones are complete, and
# apt-get 2.6 hangs on a full disk.
LISTS_SPACE = 150 * 10**6
FULL_DISK = "No space left on device"  # in apt's and tar's words; ENOSPC, errno(3)


@dataclass(frozen=True)
class Apt:
    """A private apt under `folder`, with the host's keyring and network settings."""

    suite: str
    folder: Path

    @property
    def sources(self) -> Path:
        """Return the file that names the archives."""
        return self.folder / "sources.list.d" / "debian.sources"

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """Return an apt program's output. Raises RdmaImagesError with apt's own errors."""
        environ = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        pipe = subprocess.PIPE
        running = subprocess.Popen(
            arguments, cwd=cwd or self.folder, env=environ, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        try:
            output, errors = running.communicate()
        except BaseException:
            # apt's methods are processes of their own, and would write on. This waits for all that hold the pipes.
            with contextlib.suppress(ProcessLookupError):  # all had ended by themselves
                os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            raise
        if running.returncode:
            # The first error is the cause, the others follow from it.
            lines = [line for line in errors.splitlines() if line.strip()] or ["it says nothing"]
            complaints = [line[3:] for line in lines if line.startswith("E: ")] or lines
            full = next((line for line in complaints if FULL_DISK in line), "")
            fix = "free disk space there" if full else "correct this host's apt sources or network settings"
            raise RdmaImagesError(
                f"{' '.join(arguments[:2])} for Debian {self.suite} failed: {full or complaints[0]}\n"
                f"{fix}; apt's files are in {self.folder}"
            )
        return output

    def releases(self) -> list[Path]:
        """Return the signed release files of the lists at hand."""
        return sorted((self.folder / "lists").glob("*_InRelease"))

    def state(self) -> str:
        """Return the state of the archive: a digest over its signed release files."""
        return digest(b"".join(release.read_bytes() for release in self.releases()))


def digest(content: bytes) -> str:
    """Return the sha256 of the content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def updated_apt(suite: str, folder: Path) -> Apt:
    """Return a private apt for `suite` in `folder`, its lists updated and verified.

    It reads the host's archives. Raises RdmaImagesError where an archive is unreachable or
    fails verification.
    """
    disk_space.require_free_space(LISTS_SPACE, f"reading the package lists of Debian {suite}", folder)
    private = Apt(suite, folder)
    for name in ("lists/partial", "cache/archives/partial", "sources.list.d", "none"):
        (private.folder / name).mkdir(parents=True, exist_ok=True)
    private.sources.write_text(host_apt.host_archives().sources(suite), encoding="utf-8")
    (private.folder / "status").touch()
    (private.folder / "apt.conf").write_text(_configuration(private.folder), encoding="utf-8")
    private.run("apt-get", "update", "--error-on=any", "-q")
    return private


def fetch(packages: Sequence[str], suite: str, folder: Path, progress: Progress = silent) -> Path:
    """Download and unpack packages, without dependencies; return their `folder`.

    A folder that exists is used again. It is complete or missing: everything is downloaded and unpacked
    beside `folder`, which it then becomes. Raises RdmaImagesError where the archive does not answer, has no such
    package, or apt cannot verify it.
    """
    if fetched_packages(folder).keys() == set(packages):
        return folder
    with locking.hold(f"apt-{suite}", f"fetching {', '.join(packages)}", progress):
        if fetched_packages(folder).keys() == set(packages):
            return folder
        progress(f"fetching {', '.join(packages)} of Debian {suite}")
        private = updated_apt(suite, cache_path("apt", suite))
        temporary = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            versions = _unpack(private, packages, temporary)
            (temporary / MANIFEST).write_text(json.dumps(versions, indent=1), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
        finally:
            if temporary.exists():
                shutil.rmtree(temporary)
    return folder


def cache_path(*parts: str) -> Path:
    """Return a path below the state folder's cache of Debian's archive."""
    return state_folder().joinpath("debian", *parts)


def fetched_packages(folder: Path) -> dict[str, str]:
    """Return the versions of the packages that `fetch` unpacked into `folder`, by name."""
    try:
        versions: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return versions


def _unpack(private: Apt, packages: Sequence[str], folder: Path) -> dict[str, str]:
    """Download and unpack packages; return their versions by name."""
    debs = folder / ".debs"
    debs.mkdir(parents=True)
    private.run("apt-get", "download", "-q", *packages, cwd=debs)
    versions = {}
    for deb in sorted(debs.glob("*.deb")):
        name, version = private.run("dpkg-deb", "--show", "--showformat=${Package} ${Version}", str(deb)).split()
        private.run("dpkg-deb", "--extract", str(deb), str(folder))
        versions[name] = version
    shutil.rmtree(debs)
    return versions


def _configuration(folder: Path) -> str:
    """Return apt.conf, which is read first and turns off the host's configuration."""
    directories = {
        "State": folder,
        "State::lists": folder / "lists",
        "State::status": folder / "status",
        "Cache": folder / "cache",
        "Etc::sourcelist": "/dev/null",
        "Etc::sourceparts": folder / "sources.list.d",
        "Etc::main": "/dev/null",
        "Etc::parts": folder / "none",
        "Etc::preferences": "/dev/null",
        "Etc::preferencesparts": folder / "none",
        # Names and passwords for the archive, where the host has any.
        "Etc::netrc": "/etc/apt/auth.conf",
        "Etc::netrcparts": "/etc/apt/auth.conf.d",
    }
    lines = [f'Dir::{name} "{value}";\n' for name, value in directories.items()]
    # apt's unprivileged user could not enter a state folder in somebody's home.
    lines.append('APT::Sandbox::User "root";\nAcquire::Retries "3";\n')
    return "".join(lines) + host_apt.acquire_settings()
