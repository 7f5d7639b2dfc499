"""Debian, bootstrapped from its signed archive: a root file system, the same bytes for one state of the archive."""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from rdma_images.engine import debian, disk, hostapt, turn
from rdma_images.engine.model import Progress, silent
from rdma_images.errors import RdmaImagesError, RefusedError, near
from rdma_images.paths import state_folder

SUITES = {"debian12": "bookworm", "debian13": "trixie"}

# mmdebstrap of one suite makes every suite, so that its version is not another input of the bytes.
TOOL_SUITE = "trixie"
ROOM = disk.GB  # the tree while it is made, and its tar: 0.25 GB together

# Documentation is most of what an image never opens; licences stay, as the licences ask for.
DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
)


@dataclass(frozen=True)
class Base:
    """What was bootstrapped, written beside its tar."""

    name: str  # "debian13"
    suite: str
    archive: str  # digest of the signed release files it was made from
    epoch: int  # seconds since 1970: the youngest of their dates, and the time of every younger file in the tar
    recipe: str  # digest of what was asked of mmdebstrap, and its version
    tar: str  # the tar's file name


def base(name: str, progress: Progress = silent, refresh: bool = False) -> Path:
    """The tar of the root file system of `name` ("debian13").

    What was made from the archive before is used again; with `refresh` only while the archive is still in that state.
    It holds the essential packages, apt and ca-certificates (without which nothing in the image could use TLS), no
    documentation, and nothing of this host. Two runs give the same bytes where the signed release files are the same:
    mmdebstrap sets every time to theirs. Raises RefusedError for a name not known, RdmaImagesError where the archive
    cannot be reached or verified.
    """
    if name not in SUITES:
        raise RefusedError(f"no base {name!r} can be bootstrapped: {near(name, SUITES)}")
    folder = state_folder() / "bases"
    with turn.take(f"base-{name}", f"bootstrapping {name}", progress):
        made = known(name)
        if made and not refresh:
            return folder / made.tar
        suite = SUITES[name]
        apt = debian.apt(suite)
        if made and (made.archive, made.recipe) == (apt.state(), _recipe(progress)):
            return folder / made.tar
        disk.need(ROOM, f"bootstrapping {name}")
        progress(f"bootstrapping {name} from Debian's archive")
        return _bootstrap(name, apt, folder, progress)


def known(name: str) -> Base | None:
    """What was bootstrapped last as `name`, where its tar is still there."""
    folder = state_folder() / "bases"
    try:
        found = Base(**json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return found if (folder / found.tar).exists() else None


def _bootstrap(name: str, apt: debian.Apt, folder: Path, progress: Progress) -> Path:
    """Make the tar beside its place, then name it and write down what it is."""
    recipe = _recipe(progress)
    work = folder / f".{name}.new"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        epoch = _epoch(apt)
        default = _default_sources(apt.suite, progress)
        (work / "debian.sources").write_text(hostapt.debian().sources(apt.suite), encoding="utf-8")
        (work / "default.sources").write_text(default.sources(apt.suite), encoding="utf-8")
        (work / "network.conf").write_text(hostapt.acquire_settings(), encoding="utf-8")
        _mmdebstrap(apt.suite, epoch, work, progress)
        # The archive may have moved on since its state was read: the name says what was used.
        if (work / "state").read_text(encoding="utf-8").split()[0] != apt.state():
            raise RdmaImagesError(f"Debian's archive changed while {name} was made from it: run it again")
        archive = apt.state()
        tar = f"{name}-{archive[:12]}-{recipe[:8]}.tar"
        made = Base(name, apt.suite, archive, epoch, recipe, tar)
        (work / "root.tar").replace(folder / tar)
        (work / "base.json").write_text(json.dumps(asdict(made), indent=1), encoding="utf-8")
        (work / "base.json").replace(folder / f"{name}.json")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder / tar


def _mmdebstrap(suite: str, epoch: int, work: Path, progress: Progress) -> None:
    """Run mmdebstrap: root.tar and the digest of the release files it used (`state`) into `work`."""
    root = 'cd "$1" && '
    hooks = (
        root + f"cat var/lib/apt/lists/*_InRelease | sha256sum > {shlex.quote(str(work / 'state'))}",
        # mmdebstrap takes these from the host so that its own apt works.
        root + "rm -f etc/resolv.conf etc/hostname etc/apt/apt.conf.d/99mmdebstrap",
        root + "rm -f etc/apt/sources.list etc/apt/sources.list.d/*",
        root + f"cp {shlex.quote(str(work / 'default.sources'))} etc/apt/sources.list.d/debian.sources",
    )
    tool = _tool(progress)
    argv = [str(tool), "--variant=apt", "--include=ca-certificates", "--format=tar", "--quiet"]
    argv += [f"--aptopt={work / 'network.conf'}", *(f"--dpkgopt={option}" for option in DPKG_OPTIONS)]
    argv += [f"--customize-hook={hook}" for hook in hooks]
    argv += [suite, str(work / "root.tar"), str(work / "debian.sources")]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "LC_ALL": "C.UTF-8", "TMPDIR": str(work)}
    environ["PATH"] = os.pathsep.join([str(tool.parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    done = subprocess.run(argv, env=environ, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()[-3:]
        raise RdmaImagesError(f"bootstrapping Debian {suite} failed: {' '.join(said)}")


def _tool(progress: Progress) -> Path:
    """The program mmdebstrap, from Debian's package."""
    return debian.fetch(["mmdebstrap"], TOOL_SUITE, state_folder() / "mmdebstrap", progress) / "usr/bin/mmdebstrap"


def _recipe(progress: Progress) -> str:
    """A digest of what decides the bytes beside the archive: this module and mmdebstrap's version."""
    version = debian.fetched(_tool(progress).parents[2])["mmdebstrap"]
    return debian.digest(version.encode() + Path(__file__).read_bytes())


def _epoch(apt: debian.Apt) -> int:
    """The youngest date of the release files, in seconds since 1970."""
    dates = (re.search(r"^Date: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE) for path in apt.releases())
    return max(int(parsedate_to_datetime(date[1]).timestamp()) for date in dates if date)


def _default_sources(suite: str, progress: Progress) -> hostapt.Debian:
    """Debian's own default archives, as its package of apt has them: an image is not to name this host's mirror."""
    folder = debian.fetch(["apt"], suite, state_folder() / "apt-package" / suite, progress)
    examples = folder / "usr/share/doc/apt/examples"
    texts = [path.read_text(encoding="utf-8") for path in sorted(examples.glob("*sources*"))]
    archives = [a for text in texts for a in (*hostapt.deb822(text), *hostapt.one_line(text.splitlines()))]
    return hostapt.choose(archives, suite, str(examples))
