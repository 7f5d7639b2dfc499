"""An image as data: its files, its configuration, and the tar that an engine would hand out of it."""

import io
import json
import posixpath
import re
import struct
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from rdma_images.inspection.inspection import ImageConfig
from rdma_images.validate.computed_loader import CACHE_MAGIC, DEFAULT_FOLDERS, ENTRY, HEADER
from rdma_images.validate.probes.rootfs import Root, RootEntry
from tests.incidents import elf_files

Value = TypeVar("Value")


SITE_PACKAGES = "/opt/venv/lib/python3.12/site-packages"  # of images that have no wheel yet
METADATA = ".dist-info/METADATA"
SYSTEM, LIBFABRIC = "/usr/lib/x86_64-linux-gnu", "/opt/amazon/efa/lib/libfabric.so.1"
NETLINK = ("libnl-route-3.so.200", "libnl-3.so.200")
NEEDED_BY_LIBFABRIC = ("libefa.so.1", "libibverbs.so.1", "librt.so.1", "libdl.so.2")
PROVIDERS = ("-rdmav34.so", "/etc/libibverbs.d")  # where libibverbs of rdma-core 25 to 58 looks for them
RANGE = re.compile(r"(.*_v)(\d+)\.\.(\d+)")
KINDS = {"folder": tarfile.DIRTYPE, "fifo": tarfile.FIFOTYPE, "device": tarfile.CHRTYPE}


class IncidentData(BaseModel):
    """Base of what a case has. Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _expand_ranges(names: object) -> object:
    """Return a list with each range of versions, as "ncclNetPlugin_v6..8", replaced by the names in it."""
    if not isinstance(names, list | tuple):
        return names
    expanded: list[object] = []
    for name in names:
        match = RANGE.fullmatch(name) if isinstance(name, str) else None
        expanded += [f"{match[1]}{n}" for n in range(int(match[2]), int(match[3]) + 1)] if match else [name]
    return expanded


Names = Annotated[tuple[str, ...], BeforeValidator(_expand_ranges)]


class ElfLibrary(IncidentData):
    """A shared library; see elf_files.library."""

    soname: str = ""
    needed: tuple[str, ...] = ()
    exports: Names = ()
    words: Names = ()
    rpath: str = ""
    runpath: str = ""
    machine: str = "x86_64"
    bits: int = 64
    codes: tuple[int, ...] = ()


class ImageFile(IncidentData):
    """One file: text, bytes, a library, a link or a device, with its octal `mode`."""

    text: str = ""
    hex: str = ""
    library: ElfLibrary | None = None
    link: str | None = None
    kind: Literal["file", "folder", "fifo", "device"] = "file"
    mode: str = ""
    owner: int = 0
    size: int | None = None  # cut, or filled with zeros, to this many bytes

    def content(self) -> bytes:
        """Return the bytes of a regular file."""
        content = elf_files.library(**self.library.model_dump()) if self.library else self.text.encode()
        content = content or bytes.fromhex(self.hex)
        return content if self.size is None else content[: self.size].ljust(self.size, b"\0")


class LinkRoot(Root):
    """The links of an image."""

    def __init__(self, files: Mapping[str, ImageFile]) -> None:
        super().__init__()
        self.files = files

    def entry(self, path: str) -> RootEntry | None:
        """Return as Root.entry, with the target of a link alone."""
        return RootEntry(path, 0, 0, "", self.files[path].link or "") if path in self.files else None


def _file(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


ImageFiles = dict[str, Annotated[ImageFile, BeforeValidator(_file)] | None]


class OtherInstaller(IncidentData):
    """Another EFA installer than the base's: its version, and those of its files."""

    version: str = ""
    libibverbs: str = ""  # 1.14.48.0 of rdma-core 48, for which libefa is the provider
    libefa: str = ""
    libfabric: str = ""

    def files(self) -> ImageFiles:
        """Return what it leaves, and None for what the base's has left instead."""
        files: ImageFiles = {}
        if self.version:
            files["/opt/amazon/efa_installed_packages"] = ImageFile(text=f"# EFA installer version: {self.version}\n")
        if self.libibverbs:
            provider = f"{SYSTEM}/libibverbs/lib%s-rdmav34.so"
            for name in ("libibverbs.so.1.14.60.0", "libefa.so.1.4.60.0", "libibverbs/libefa-rdmav59.so"):
                files[f"{SYSTEM}/{name}"] = None
            files |= _versioned(f"{SYSTEM}/libibverbs.so.1", self.libibverbs, NETLINK, (*PROVIDERS, provider))
            files |= _versioned(f"{SYSTEM}/libefa.so.1", self.libefa, ("libibverbs.so.1",))
            files[provider % "efa"] = ImageFile(link=f"../libefa.so.{self.libefa}")
        if self.libfabric:
            files[f"{LIBFABRIC}.29.1"] = None
            files |= _versioned(LIBFABRIC, self.libfabric, NEEDED_BY_LIBFABRIC)
        return files


def _versioned(link: str, version: str, needed: tuple[str, ...], words: tuple[str, ...] = ()) -> ImageFiles:
    """Return a library under its full name, and the link of its soname to it."""
    soname = posixpath.basename(link)
    name = f"{soname.removesuffix('.1')}.{version}"
    library = ElfLibrary(soname=soname, needed=(*needed, "libc.so.6"), words=words)
    return {link: ImageFile(link=name), posixpath.join(posixpath.dirname(link), name): ImageFile(library=library)}


class ImageChange(IncidentData):
    """What a Dockerfile adds to an image: a value of None takes away what was there.

    A library in the place of one that is there keeps what it does not say of itself.

    Attributes:
        parts: Changes of bases.yaml that come first.
        wheels: Versions of packages, each in place of those that are installed.
        installer: What another EFA installer leaves in the place of the base's.
        started: Variables that the entry point sets for the process that it starts.
    """

    parts: tuple[str, ...] = ()
    wheels: dict[str, str | None] = {}
    installer: OtherInstaller = OtherInstaller()
    files: ImageFiles = {}
    env: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    workdir: str = ""
    started: dict[str, str | None] = {}
    platform: str = ""
    instance: str = ""
    ldconfig: bool = True  # whether the loader's cache was made anew


class IncidentImage(IncidentData):
    """An image: `cache` is its ld.so.cache where that is older than its files."""

    files: dict[str, ImageFile] = {}
    env: dict[str, str] = {}
    labels: dict[str, str] = {}
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    workdir: str = ""
    started: dict[str, str] = {}
    platform: str = "linux/amd64"
    instance: str = ""
    cache: bytes | None = None

    def changed(self, by: ImageChange) -> "IncidentImage":
        """Return this image with a change applied, without its parts."""
        before = _joined(_with_wheels(self.files, by.wheels), by.installer.files())
        files = _joined(before, _completed(by.files, before))
        return IncidentImage(
            files=_for_arm64(files) if by.platform == "linux/arm64" else files,
            env=_joined(self.env, by.env),
            labels=_joined(self.labels, by.labels),
            user=by.user or self.user,
            entrypoint=by.entrypoint or self.entrypoint,
            workdir=by.workdir or self.workdir,
            started=_joined(self.started, by.started),
            platform=by.platform or self.platform,
            instance=by.instance or self.instance,
            cache=None if by.ldconfig else self.loader_cache(),
        )

    def loader_cache(self) -> bytes:
        """Return what ldconfig would make of the folders that /etc/ld.so.conf.d and the loader itself name."""
        lines = [f.text.splitlines() for p, f in sorted(self.files.items()) if p.startswith("/etc/ld.so.conf.d/")]
        folders = dict.fromkeys([line for text in lines for line in text if line.startswith("/")] + [*DEFAULT_FOLDERS])
        links = LinkRoot(self.files)
        real = {folder: links.real(folder) if folder not in DEFAULT_FOLDERS else folder for folder in folders}
        names = {
            posixpath.join(folder, name): name
            for folder in folders
            for path in sorted(self.files)
            if posixpath.dirname(path) == real[folder] and ".so" in (name := posixpath.basename(path))
        }
        return loader_cache(names)

    def subject(self, ref: str) -> ImageConfig:
        """Return the image's configuration, as an engine describes it."""
        return ImageConfig(
            ref=ref,
            digest=f"sha256:{0:064x}",
            platform=self.platform,
            labels=self.labels,
            environment=self.env,
            user=self.user,
            entrypoint=list(self.entrypoint),
            workdir=self.workdir,
            tags=[ref],
            bytes=sum(len(content) for _, _, content in self._contents()),
            created="2026-01-01T00:00:00Z",
            layers=[],
            history=[],
        )

    def tar(self) -> bytes:
        """Return the tar of its file system."""
        archive_bytes = io.BytesIO()
        with tarfile.open(fileobj=archive_bytes, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path, file, content in self._contents():
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.mode = int(file.mode, 8) if file.mode else 0o755 if file.library else 0o644
                if file.link is not None:
                    entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                elif file.kind != "file":
                    entry.type = KINDS[file.kind]
                entry.uid = entry.gid = file.owner
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return archive_bytes.getvalue()

    def _contents(self) -> Iterator[tuple[str, ImageFile, bytes]]:
        paths = ["/etc/ld.so.cache", *self.files]
        for folder in sorted({str(folder) for path in paths for folder in PurePosixPath(path).parents} - {"/"}):
            if folder not in self.files:
                yield folder, ImageFile(kind="folder", mode="755"), b""
        yield "/etc/ld.so.cache", ImageFile(), self.cache if self.cache is not None else self.loader_cache()
        for path, file in sorted(self.files.items()):
            yield path, file, b"" if file.link is not None else file.content()


def _with_wheels(files: Mapping[str, ImageFile], wheels: Mapping[str, str | None]) -> dict[str, ImageFile]:
    """Return the files with exactly these wheels' METADATA, where the first wheel is."""
    installed_wheels = (posixpath.dirname(posixpath.dirname(path)) for path in files if path.endswith(METADATA))
    site = next(installed_wheels, SITE_PACKAGES)
    folders = {name: f"{site}/{name.replace('-', '_')}-" for name in wheels}
    installed = {path: file for path, file in files.items() if not path.startswith(tuple(folders.values()))}
    for name, version in wheels.items():
        if version:
            text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n"
            installed[f"{folders[name]}{version}{METADATA}"] = ImageFile(text=text)
    return installed


def _completed(files: Mapping[str, ImageFile | None], before: Mapping[str, ImageFile]) -> dict[str, ImageFile | None]:
    """Return the files, each library completed from the one that it replaces."""
    completed = dict(files)
    for path, file in files.items():
        earlier = before.get(path)
        if file and file.library and earlier and earlier.library:
            stated = {name: getattr(file.library, name) for name in file.library.model_fields_set}
            completed[path] = file.model_copy(update={"library": earlier.library.model_copy(update=stated)})
    return completed


def _for_arm64(files: Mapping[str, ImageFile]) -> dict[str, ImageFile]:
    """Return the same files where processors are arm64."""
    text = json.dumps({path: file.model_dump() for path, file in files.items()})
    for amd64_name, arm64_name in (("x86_64", "aarch64"), ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")):
        text = text.replace(amd64_name, arm64_name)
    return {path: ImageFile.model_validate(file) for path, file in json.loads(text).items()}


def _joined(ours: Mapping[str, Value], theirs: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in {**ours, **theirs}.items() if value is not None}


def loader_cache(names_by_path: Mapping[str, str]) -> bytes:
    """Return an ld.so.cache in glibc's form, see computed_loader: path -> name."""
    strings = b"".join(f"{name}\0{path}\0".encode() for path, name in names_by_path.items())
    index, entries = HEADER + ENTRY * len(names_by_path), b""
    for path, name in names_by_path.items():
        after = index + len(name.encode()) + 1
        entries += struct.pack("<iIIIQ", 0x0303, index, after, 0, 0)
        index = after + len(path.encode()) + 1
    head = (CACHE_MAGIC + struct.pack("<II", len(names_by_path), len(strings))).ljust(HEADER, b"\0")
    return head + entries + strings
