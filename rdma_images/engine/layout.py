"""Folders of the private engine, and the configuration of its daemons."""

import json
from dataclasses import dataclass
from pathlib import Path

from rdma_images.core import atomic, disk_space
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import COMMAND, state_folder

BUILDX = "usr/libexec/docker/cli-plugins/docker-buildx"
SOCKET_LENGTH = 107  # bytes a unix socket's path may have, unix(7)


@dataclass(frozen=True)
class PackageBundle:
    """Packages of a suite (None: the host's) in one folder."""

    folder: Path
    suite: str | None
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """The folders and files of the private engine, all under `root`."""

    root: Path

    @property
    def docker(self) -> PackageBundle:
        """Return Debian 13's Docker, which also runs on Debian 12, whose own is too old."""
        packages = ("docker.io", "docker-cli", "docker-buildx", "containerd")
        return PackageBundle(self.root / "packages" / "docker", "trixie", packages)

    @property
    def runtime(self) -> PackageBundle:
        """Return the host's own runc: Debian 13's does not run on Debian 12."""
        return PackageBundle(self.root / "packages" / "runc", None, ("runc", "tini"))

    @property
    def run(self) -> Path:
        """Return the folder of sockets and process ids."""
        return self.root / "run"

    @property
    def temporary(self) -> Path:
        """Return the daemons' folder for temporary files; containerd mounts there."""
        return self.run / "tmp"

    @property
    def data_folder(self) -> Path:
        """Return the folder of images, layers and the build cache."""
        return self.root / "data"

    @property
    def log(self) -> Path:
        """Return the folder of the daemons' logs."""
        return self.root / "log"

    @property
    def docker_config(self) -> Path:
        """Return the folder of the docker client's settings."""
        return self.root / "docker-config"

    @property
    def socket(self) -> Path:
        """Return the socket of dockerd."""
        return self.run / "docker.sock"

    @property
    def containerd_socket(self) -> Path:
        """Return the socket of containerd."""
        return self.run / "containerd.sock"

    @property
    def host(self) -> str:
        """Return the engine's address as DOCKER_HOST takes it."""
        return f"unix://{self.socket}"

    @property
    def path(self) -> tuple[Path, ...]:
        """Return the folders of the engine's programs, for PATH."""
        return tuple(bundle.folder / part for bundle in (self.docker, self.runtime) for part in ("usr/bin", "usr/sbin"))

    def program(self, name: str) -> Path:
        """Return the program `name`; RdmaImagesError when the packages do not have it."""
        for folder in self.path:
            if (folder / name).exists():
                return folder / name
        raise RdmaImagesError(
            f"the private engine has no {name} in {self.root}\nrun `{COMMAND} engine.down --purge`, then try again"
        )


def layout() -> Layout:
    """Return this state folder's layout. Raises RdmaImagesError for too long a path."""
    engine_layout = Layout(state_folder() / "engine")
    longest = len(str(engine_layout.run / "containerd.sock.ttrpc").encode())
    if longest > SOCKET_LENGTH:
        raise RdmaImagesError(
            f"{engine_layout.run} makes a socket's path {longest} bytes long, and Linux takes {SOCKET_LENGTH}\n"
            "set RDMA_IMAGES_STATE to a shorter path"
        )
    return engine_layout


def write_configuration(folders: Layout) -> None:
    """Write the files that the daemons and the docker client read."""
    # containerd makes this one at its first write, once: where the disk is full then, every later write fails as that
    # one did, until it is started again (seen with 1.7.24; content/local/store.go, ensureIngestRootOnce).
    ingest = folders.data_folder / "containerd" / "io.containerd.content.v1.content" / "ingest"
    for folder in (folders.run, folders.data_folder, folders.log, folders.docker_config, ingest):
        folder.mkdir(parents=True, exist_ok=True)
    folders.run.chmod(0o700)
    atomic.write(folders.root / "daemon.json", json.dumps(_dockerd(folders), indent=1))
    atomic.write(folders.root / "containerd.toml", _containerd(folders))
    _client(folders)


def _dockerd(folders: Layout) -> dict[str, object]:
    """Return daemon.json, without bridge and iptables, which a host may lack."""
    limit = disk_space.cache_limit(folders.root)
    return {
        "data-root": str(folders.data_folder / "docker"),
        "exec-root": str(folders.run / "docker"),
        "pidfile": str(folders.run / "dockerd.pid"),
        "hosts": [folders.host],
        "containerd": str(folders.containerd_socket),
        "features": {"containerd-snapshotter": True},
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "ip-forward": False,
        "init-path": str(folders.program("tini-static")),
        "builder": {"gc": {"enabled": True, "policy": [{"keepStorage": f"{limit}B", "all": True}]}},
    }


def _containerd(folders: Layout) -> str:
    """Return containerd's configuration (version 2), without its Kubernetes plugin."""
    return f"""version = 2
root = "{folders.data_folder / "containerd"}"
state = "{folders.run / "containerd"}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folders.containerd_socket}"
"""


def _client(folders: Layout) -> None:
    """Write config.json of the docker client. The logins of `docker login` in it stay."""
    path = folders.docker_config / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8") or "{}")
    except (FileNotFoundError, ValueError):
        config = {}
    config["cliPluginsExtraDirs"] = [str((folders.docker.folder / BUILDX).parent)]
    atomic.write(path, json.dumps(config, indent=1), mode=0o600)
