"""The user's part of a job: mounts, code, variables, secrets, where it may run, and what happens when it fails."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rdma_images.core.errors import RefusedError

MountKind = Literal["host-path", "claim", "lustre", "nfs", "s3"]
Launch = Literal["torchrun", "accelerate", "deepspeed", "mpirun", "ray", "plain"]
NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # of a job, or of a role in it
CONTAINER_PATH = re.compile(r"/[\w./-]*[\w-]")
# Where a mount comes from, by its first word. A Lustre source is written as for mount(8).
SOURCES: Mapping[MountKind, re.Pattern[str]] = {
    "host-path": re.compile(r"/[^:,\s]*"),
    "claim": re.compile(r"claim:(?P<name>[a-z0-9]([a-z0-9.-]*[a-z0-9])?)"),
    "lustre": re.compile(r"lustre:(?P<server>(?P<id>fs-[0-9a-f]+)[\w.-]*)@tcp:/(?P<path>[\w/.-]+)"),
    "nfs": re.compile(r"nfs:(?P<server>[\w.-]+):(?P<path>/[^:,\s]*)"),
    "s3": re.compile(r"s3://(?P<bucket>[a-z0-9.-]+)(/(?P<prefix>[^:\s]*))?"),
}
CODE = "/workspace/code"  # where code is in the container, if its user does not say
MOUNT_FORMS = (
    "/FOLDER, claim:NAME, nfs:SERVER:/PATH, s3://BUCKET/PREFIX or "
    "lustre:fs-ID.fsx.REGION.amazonaws.com@tcp:/NAME, then :/PATH in the container, then :ro where it is only read"
)
# Where a secret is read when the job starts. Its value is in none of these.
SECRETS: Mapping[str, re.Pattern[str]] = {
    "env": re.compile(r"env:[A-Za-z_]\w*"),
    "file": re.compile(r"file:/[^\s'\"$]+"),
    "secret": re.compile(r"secret:(?P<name>[a-z0-9]([a-z0-9.-]*[a-z0-9])?)/(?P<key>[\w.-]+)"),
    "secretsmanager": re.compile(r"secretsmanager:[\w/+=.@:-]+"),
}
# Fields that a launcher has or has not, whatever their value.
NAMED_FIELDS = (
    *("code", "env", "pull_secrets", "service_account", "queue", "account", "priority", "node_selector"),
    *("tolerations", "topology", "checkpoints", "restarts", "time", "spot"),
)
TOLERATION = re.compile(r"(?P<key>[\w./-]+)(=(?P<value>[\w.-]*))?(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?")

MAX_BYTES = 50_000_000  # of the code, which is copied into the job's folder
# Of ConfigMaps: `kubectl apply` keeps what it applies in an annotation, and these have 262144 bytes in all.
MAX_CONFIG_MAP_BYTES = 200_000


@dataclass(frozen=True)
class Mount:
    """A folder that the container sees at `to`."""

    kind: MountKind
    source: str  # as typed: "/fsx", "claim:data", "s3://bucket/prefix"
    to: str
    read_only: bool = False

    @property
    def parts(self) -> dict[str, str]:
        """Return the parts of the source, by the names of its pattern in SOURCES."""
        match = SOURCES[self.kind].fullmatch(self.source)
        return {name: value or "" for name, value in match.groupdict().items()} if match else {}


@dataclass(frozen=True)
class Code:
    """A folder of the machine where the job is written, that the command starts in."""

    folder: str
    to: str


@dataclass(frozen=True)
class JobSettings:
    """The user's settings of a job; by default it measures an all-reduce."""

    mounts: tuple[Mount, ...] = ()
    code: Code | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # variable -> where its value is
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    queue: str = ""
    account: str = ""
    priority: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
    topology: str = ""
    checkpoints: str = ""  # a folder in the container
    launch: Launch | None = None  # None: the image's own way
    restarts: int = 0
    time: int = 0  # seconds; 0 for the launcher's own limit
    spot: bool = False

    @property
    def toleration_parts(self) -> list[dict[str, str | None]]:
        """Return the key, value and effect of each toleration; a value of None tolerates any."""
        return [match.groupdict() for text in self.tolerations if (match := TOLERATION.fullmatch(text))]

    @property
    def is_recovered(self) -> bool:
        """Return whether another attempt follows one that fails or is taken away."""
        return self.spot or self.restarts > 0

    def fields(self) -> Iterator[str]:
        """Yield the names of what is asked for, as facts/launchers.yaml has them."""
        yield from dict.fromkeys(f"mount.{mount.kind}" for mount in self.mounts)
        yield from dict.fromkeys(f"secret.{source.partition(':')[0]}" for source in self.secrets.values())
        if self.launch:
            yield f"launch.{self.launch}"
        yield from (name.replace("_", "-") for name in NAMED_FIELDS if getattr(self, name))


def parse_mount(text: str) -> Mount:
    """Return the mount of "SOURCE:TO[:ro|:rw]". Raises RefusedError for another form."""
    body = text.removesuffix(":ro").removesuffix(":rw")
    source, _, target = body.rpartition(":")
    target = target.rstrip("/")
    kind = next((kind for kind, form in SOURCES.items() if form.fullmatch(source)), None)
    if kind is None or not CONTAINER_PATH.fullmatch(target) or ".." in target.split("/"):
        raise RefusedError(f"mount {text}: not of a known form\nwrite {MOUNT_FORMS}")
    return Mount(kind, source, target, text.endswith(":ro"))


def parse_code(text: str) -> tuple[str, str]:
    """Return folder and container path of "FOLDER[:PATH]". Raises RefusedError."""
    folder, _, path = text.partition(":")
    if not folder or (path and (not CONTAINER_PATH.fullmatch(path) or ".." in path.split("/"))):
        raise RefusedError(
            f"code {text}: not of the form FOLDER or FOLDER:/PATH\nname a folder, and a path in the image"
        )
    return folder, path or CODE


def check_secret(name: str, source: str) -> str:
    """Return a secret's source. Raises RefusedError, without it, for what may be a value."""
    if not any(pattern.fullmatch(source) for pattern in SECRETS.values()):
        raise RefusedError(
            f"secret {name}: a secret is never written here, only where the job finds it\n"
            "write env:NAME (the environment that submits), file:/PATH (on the nodes), secret:NAME/KEY (a Kubernetes "
            "Secret) or secretsmanager:ID (AWS)"
        )
    return source


def read_code(code: Code | None, is_config_map: bool = False) -> dict[str, bytes]:
    """Return the files of a folder of code by their paths below it, sorted, without hidden ones.

    A symbolic link to a file is read as that file.

    Raises:
        RefusedError: There is no file, more than a job's folder or, with `is_config_map`, a ConfigMap takes, or a
            symbolic link that leads to no file.
    """
    if code is None:
        return {}
    root, limit = Path(code.folder), MAX_CONFIG_MAP_BYTES if is_config_map else MAX_BYTES
    paths = sorted(_code_paths(root))
    if not paths:
        raise RefusedError(f"code {root}: there is no file in it\nname the folder with the training script")
    size = sum((root / path).stat().st_size for path in paths)
    if size > limit:
        raise RefusedError(
            f"code {root}: {size} bytes, and {'a ConfigMap' if is_config_map else 'a folder of a job'} takes {limit}\n"
            "put it into the image (`files` of its target), or mount it: --mount SOURCE:/PATH"
        )
    return {str(path): (root / path).read_bytes() for path in paths}


def _code_paths(root: Path) -> Iterator[Path]:
    """Yield the files in a folder of code by their paths, but hidden ones. Raises RefusedError."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not _is_excluded(name))
        for name in [*folders, *names]:
            path = Path(folder, name)
            if path.is_symlink() and not path.is_file() and not _is_excluded(name):
                raise RefusedError(
                    f"code {root}: {path.relative_to(root)} is a symbolic link to no file\n"
                    "put a copy in its place, or let the command read it from a mount"
                )
            if not name.isprintable() or set(name) & set(":,="):
                raise RefusedError(f"code {root}: no job file can name {str(path.relative_to(root))!r}\nrename it")
            if path.is_file() and not _is_excluded(name):
                yield path.relative_to(root)


def _is_excluded(name: str) -> bool:
    """Return whether a file or folder of the code is hidden or made by Python."""
    return name.startswith(".") or name == "__pycache__"
