"""Bootstrap Debian root file systems: equal bytes for an equal state of the archive."""

import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rdma_images.core import atomic, disk_space, locking
from rdma_images.core.errors import RdmaImagesError, first_line
from rdma_images.core.paths import COMMAND, state_folder
from rdma_images.core.progress import Progress, silent
from rdma_images.engine import platforms
from rdma_images.engine.debian import debian_packages, host_apt


@dataclass(frozen=True)
class Suite:
    """A suite of Debian, and mmdebstrap's options for it alone."""

    codename: str
    options: tuple[str, ...] = ()


SUITES = {
    # Without usr-is-merged, bookworm takes usrmerge in its place, and with that 50 MB of perl that nothing uses.
    "debian12": Suite("bookworm", ("--include=usr-is-merged", "--hook-dir={hooks}/merged-usr")),
    "debian13": Suite("trixie"),
}

# mmdebstrap of one suite makes every suite, so that its version is not another input of the bytes.
TOOL_SUITE = "trixie"
NO_BOOTSTRAP_FIX = f"run as root on Debian, or lock the image's digest to pull it: `{COMMAND} lock`"
DISK_SPACE = disk_space.GB  # the tree while it is made, and its tar: 0.25 GB together

# What mmdebstrap uses of perl's modules, by the packages that bring them.
PERL_MODULES = ("-MPod::Usage", "-MDigest::SHA")

# Without the devices of /dev: every engine mounts its own there, and one without root, rootless Docker, can make none.
OPTIONS = ("--variant=apt", "--include=ca-certificates", "--format=tar", "--skip=cleanup/apt", "--skip=output/dev")

# 1980-01-01, as in wheels' layers. Not the archive's day: BuildKit takes a COPY from its cache where the files have the
# same content, whatever their times, so that one engine would have another day's times than the next.
EPOCH = 315532800

# Documentation is most of what an image never opens; licences stay, as the licences ask for.
DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
)

# Run by mmdebstrap with the new root as $1, before it removes its own traces. WORK is the folder of this bootstrap.
HOOKS = (
    # Which signed release files it really used.
    'cd "$1"/var/lib/apt/lists && cat *_InRelease | sha256sum > "$WORK/archive"',
    # What mmdebstrap took from the host so that its apt works in there.
    'cd "$1"/etc && rm -f resolv.conf hostname apt/apt.conf.d/99mmdebstrap apt/sources.list apt/sources.list.d/*',
    # Without fstab no earlier base has equal content, so an engine's cache cannot bring back its times.
    'rm -f "$1"/etc/fstab',
    'cp "$WORK/default.sources" "$1"/etc/apt/sources.list.d/debian.sources',
    # apt gives these folders to its unprivileged user where that one can reach them: depends on where the work is done.
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*',
)


@dataclass(frozen=True)
class BootstrapRecord:
    """The record of a bootstrapped base, written beside its tar."""

    name: str  # "debian13"; of a foreign platform "debian13-arm64"
    suite: str
    archive: str  # digest of the signed release files it was made from
    recipe: str  # digest of the options and hooks given to mmdebstrap
    mmdebstrap: str  # version
    tar: str  # the tar's file name


def is_possible(name: str, platform: str) -> bool:
    """Return whether this user can make the base from Debian's archive on this host."""
    return obstacle(name, platform) is None


def obstacle(name: str, platform: str) -> str | None:
    """Return why this user cannot bootstrap the base here; None where they can.

    Nothing is fetched for the answer.
    """
    if name not in SUITES:
        return f"no base {name!r} can be bootstrapped"
    if platforms.is_foreign(platform) and not platforms.has_emulator(platform):
        return f"this machine does not run programs of {platform}"
    try:
        host_apt.host_archives()
    except RdmaImagesError as error:
        return first_line(error)
    return namespace_obstacle()


@functools.cache
def namespace_obstacle() -> str | None:
    """Return why this user gets no mount namespace; None where they do."""
    with tempfile.TemporaryFile("w+") as errors:
        try:
            trial = subprocess.Popen(
                [*namespace_command(), "true"],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            return f"unshare does not start: {error.strerror}"
        exit_code = trial.wait()
        # Refused a user namespace, util-linux 2.38 ends without its helper, which then waits forever with open pipes.
        with suppress(ProcessLookupError):
            os.killpg(trial.pid, signal.SIGKILL)
        if exit_code == 0:
            return None
        errors.seek(0)
        error_line = next(iter(errors.read().splitlines()), "unshare failed")
    if os.geteuid() == 0:
        return f"root may not make mount namespaces here ({error_line})"
    requirements = "Debian's package uidmap, a range in /etc/subuid and /etc/subgid, and user namespaces"
    return f"bootstrapping without root needs {requirements} ({error_line})"


def namespace_command() -> tuple[str, ...]:
    """Return the command that starts mmdebstrap as root in a new mount namespace.

    The mounts of a killed run end with the namespace. A user is root in a user namespace, and owns the rest of its
    users by their range in /etc/subuid; the bytes of the tar are the same.
    """
    if os.geteuid() == 0:
        return ("unshare", "--mount")
    return ("unshare", "--user", "--map-root-user", "--map-auto", "--mount")


def base_tar(name: str, progress: Progress = silent, platform: str = "") -> Path:
    """Return the tar of the root file system `name` ("debian13"), made where missing.

    The tar has the essential packages, apt and ca-certificates (nothing in the image could use TLS without them), no
    documentation, and nothing of this host. Equal packages give equal bytes: mmdebstrap sets every time to EPOCH.

    Raises:
        RdmaImagesError: It cannot be made here, or the archive is unreachable or fails verification.
    """
    label = key(name, platform)
    with locking.hold(f"base-{label}", f"bootstrapping {label}", progress):
        if existing := last_bootstrapped(name, platform):
            return cache_folder() / existing.tar
        if reason := obstacle(name, platform):
            raise RdmaImagesError(f"{label} cannot be bootstrapped: {reason}\n{NO_BOOTSTRAP_FIX}")
        folder = debian_packages.cache_path("apt", f"base-{label}")
        apt = debian_packages.updated_apt(SUITES[name].codename, folder)
        tool = debian_packages.fetch(
            ["mmdebstrap"], TOOL_SUITE, debian_packages.cache_path("packages", "mmdebstrap"), progress
        )
        disk_space.require_free_space(DISK_SPACE, f"bootstrapping {label}")
        emulated = ", emulated: this takes minutes, once" if platforms.is_foreign(platform) else ""
        progress(f"bootstrapping {label} from Debian's archive{emulated}")
        return _bootstrap(name, platform, apt, tool, progress)


def cache_folder() -> Path:
    """Return where the tars are kept."""
    return state_folder() / "bases"


def last_bootstrapped(name: str, platform: str = "") -> BootstrapRecord | None:
    """Return the base that was bootstrapped last for a platform.

    None where its tar is gone or its recipe has changed.
    """
    try:
        record = BootstrapRecord(**json.loads(_record(key(name, platform)).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return record if record.recipe == recipe_digest(name, platform) and (cache_folder() / record.tar).exists() else None


def _record(label: str) -> Path:
    """Return the file that describes a base."""
    return cache_folder() / f"{label}.json"


def key(name: str, platform: str) -> str:
    """Return a base's name in the state folder: "debian13", or "debian13-arm64"."""
    return f"{name}-{_architecture(platform)}" if platforms.is_foreign(platform) else name


def _architecture(platform: str) -> str:
    """Return Debian's name of a platform's architecture, which is Docker's, too."""
    return platform.rpartition("/")[2]


def _bootstrap(name: str, platform: str, apt: debian_packages.Apt, tool: Path, progress: Progress) -> Path:
    """Make the tar in a work folder, then move it into place and write its record."""
    label = key(name, platform)
    work = cache_folder() / f".{label}.new"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        _mmdebstrap(apt, _options(name, platform), tool, work, progress)
        archive = apt.state()
        if (work / "archive").read_text(encoding="utf-8").split()[0] != archive:
            raise RdmaImagesError(f"Debian's archive changed while {label} was made from it\nrun the command again")
        recipe = recipe_digest(name, platform)
        tar = f"{label}-{archive[:12]}-{recipe[:8]}.tar"
        (work / "root.tar").replace(cache_folder() / tar)
        record = BootstrapRecord(
            label, apt.suite, archive, recipe, debian_packages.fetched_packages(tool)["mmdebstrap"], tar
        )
        atomic.write(_record(label), json.dumps(asdict(record), indent=1))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return cache_folder() / tar


def recipe_digest(name: str, platform: str = "") -> str:
    """Return a digest of mmdebstrap's options for `name`."""
    return debian_packages.digest(
        "\n".join((*_options(name, platform), *OPTIONS, *DPKG_OPTIONS, *HOOKS, str(EPOCH))).encode()
    )


def _options(name: str, platform: str) -> tuple[str, ...]:
    """Return mmdebstrap's options for one base.

    It must not look for an emulator, whose package has another name.
    """
    if not platforms.is_foreign(platform):
        return SUITES[name].options
    return (*SUITES[name].options, f"--architectures={_architecture(platform)}", "--skip=check/qemu")


def _mmdebstrap(apt: debian_packages.Apt, options: Sequence[str], tool: Path, work: Path, progress: Progress) -> None:
    """Run mmdebstrap: write root.tar, and the digest of its release files, into `work`.

    `options` are those of one base alone.
    """
    default = _default_sources(apt.suite, progress).sources(apt.suite)
    (work / "default.sources").write_text(default, encoding="utf-8")
    (work / "network.conf").write_text(host_apt.acquire_settings(), encoding="utf-8")
    argv = [*namespace_command(), str(tool / "usr/bin/mmdebstrap"), "--mode=root", *OPTIONS, "--quiet"]
    argv += [option.format(hooks=tool / "usr/share/mmdebstrap/hooks") for option in options]
    argv += [f"--aptopt={work / 'network.conf'}", *(f"--dpkgopt={option}" for option in DPKG_OPTIONS)]
    argv += [f"--customize-hook={hook}" for hook in HOOKS]
    argv += [apt.suite, str(work / "root.tar"), str(apt.sources)]
    # mmdebstrap looks for mmtarfilter, which applies dpkg's options, on PATH; a user's PATH may lack dpkg's sbin.
    path = os.pathsep.join([str(tool / "usr/bin"), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    environment = {
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(work),
        "WORK": str(work),
        "PATH": path,
        # dpkg's defaults, and no fsync, of which there are 3,500: what is made is moved into place as one file.
        "DPKG_FORCE": "downgrade,security-mac,unsafe-io",
    }
    environment["PERL5LIB"] = _perl_library(progress)
    result = subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True)
    if result.returncode:
        complaints = [
            line for line in result.stderr.splitlines() if line.startswith("E:")
        ] or result.stderr.splitlines()[-3:]
        is_full = any(debian_packages.FULL_DISK in line for line in result.stderr.splitlines())
        fix = f"free disk space at {work}" if is_full else "make this host's apt reach the archive"
        raise RdmaImagesError(f"bootstrapping Debian {apt.suite} failed: {' '.join(complaints)}\n{fix}")


def _perl_library(progress: Progress) -> str:
    """Return PERL5LIB for mmdebstrap, with unpacked modules where the host lacks them."""
    if subprocess.run(["perl", *PERL_MODULES, "-e1"], capture_output=True).returncode == 0:
        return os.environ.get("PERL5LIB", "")
    output = subprocess.run(["perl", "-e", 'printf "%vd", $^V'], capture_output=True, text=True, check=True).stdout
    version = output.rpartition(".")[0]
    packages = [f"perl-modules-{version}", f"libperl{version}"]
    folder = debian_packages.fetch(
        packages, host_apt.host_archives().codename, debian_packages.cache_path("packages", "perl"), progress
    )
    candidates = [folder / "usr/share/perl" / version, *folder.glob(f"usr/lib/*/perl/{version}")]
    return os.pathsep.join(map(str, candidates))


def _default_sources(suite: str, progress: Progress) -> host_apt.DebianArchives:
    """Return Debian's default archives, for images, from its package apt."""
    folder = debian_packages.fetch(["apt"], suite, debian_packages.cache_path("packages", f"apt-{suite}"), progress)
    examples = folder / "usr/share/doc/apt/examples"
    texts = [path.read_text(encoding="utf-8") for path in sorted(examples.glob("*sources*"))]
    archives = [
        a for text in texts for a in (*host_apt.deb822_archives(text), *host_apt.list_archives(text.splitlines()))
    ]
    return host_apt.choose_archives(archives, suite, str(examples))
