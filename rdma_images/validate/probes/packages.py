"""The installed packages by their package managers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rdma_images.validate.probes import rootfs, tools

MAX_METADATA_BYTES = 64 * 1024  # bytes: a wheel's METADATA begins with its fields
DPKG_STATUS = "/var/lib/dpkg/status"
MAX_DPKG_BYTES = 32 << 20  # bytes: a system with some thousand packages has a few million
MAX_RPM_BYTES = 4 << 20  # bytes: a system has some thousand packages
SEPARATORS = re.compile(r"[-_.]+")  # which indexes do not tell apart in names
DPKG_FIELD = re.compile(
    r"^(Package|Version|Status|Source|Architecture|Maintainer|Depends|Pre-Depends): *(.*)$", re.MULTILINE
)


def installed_packages(root: rootfs.Root, folders: Iterable[str]) -> dict[str, Any]:
    """Return the versions of packages as their managers write them, and the EFA installer's.

    Args:
        folders: Those of Python's packages.
    """
    paragraphs = debian_packages(root)
    return {
        "wheels": wheels(root, folders),
        "dpkg": {name: fields.get("Version", "") for name, fields in paragraphs.items()},
        "dpkg_sources": {name: source_package(fields) for name, fields in paragraphs.items()},
        "rpm": {},
        "efa_installer": efa_installer(root),
    }


def packages_of_system() -> dict[str, Any]:
    """Return the packages of the running system."""
    root = rootfs.Root()
    return {**installed_packages(root, python_folders(root)), "rpm": rpm_packages()}


def python_folders(root: rootfs.Root) -> list[str]:
    """Return the folders that this Python imports from, then other Pythons' folders."""
    return [*filter(None, sys.path), *import_folders(root, os.environ)]


def import_folders(root: rootfs.Root, environment: Mapping[str, str]) -> list[str]:
    """Return the folders of packages below the prefix of each folder on PATH, then those in usual places.

    Links in their paths are resolved.

    Args:
        environment: Its variables, with PATH.
    """
    patterns = (
        "/opt/*/lib/python3*/site-packages",
        "/usr/lib*/python3*/site-packages",
        "/usr/lib/python3/dist-packages",
        "/usr/local/lib*/python3*/*-packages",
        "/opt/venv/lib*/python3*/site-packages",
        "/opt/*/envs/*/lib/python3*/site-packages",
        "/root/*conda*/lib/python3*/site-packages",
        "/root/*conda*/envs/*/lib/python3*/site-packages",
        "/root/.local/*conda*/envs/*/lib/python3*/site-packages",
    )
    programs = [path for path in environment.get("PATH", "").split(":") if os.path.basename(path) == "bin"]
    prefixes = dict.fromkeys(os.path.dirname(root.real(path)).rstrip("/") for path in programs)
    on_path = [prefix + "/lib*/python3*/*-packages" for prefix in prefixes]
    folders = [root.real(folder) for pattern in (*on_path, *patterns) for folder in root.glob(pattern)]
    return list(dict.fromkeys(folders))


def wheels(root: rootfs.Root, folders: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return name -> version for every folder of Python packages among `folders`."""
    packages: dict[str, dict[str, str]] = {}
    for folder, record in metadata_files(root, folders):
        packages.setdefault(folder, {}).update([name_and_version(root, record)])
    return packages


def metadata_files(root: rootfs.Root, folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the METADATA of each Python package in `folders`, after its folder."""
    for folder in sorted(set(map(root.real, folders))):
        names = root.names(folder)
        paths = ["%s/%s/METADATA" % (folder, name) for name in names if name.endswith(".dist-info")]
        paths += ["%s/%s/PKG-INFO" % (folder, name) for name in names if name.endswith(".egg-info")]
        yield from ((folder, record) for record in sorted(paths) if root.is_file(record))


def read_fields(root: rootfs.Root, record: str) -> str:
    """Return the fields at the head of the METADATA at `record`."""
    return (root.text(record, MAX_METADATA_BYTES) or "").replace("\r\n", "\n").split("\n\n", 1)[0]


def name_and_version(root: rootfs.Root, record: str) -> tuple[str, str]:
    """Return a package's name and version by its METADATA, else by its folder's name."""
    name, _, version = os.path.basename(os.path.dirname(record)).rpartition(".")[0].partition("-")
    fields = dict(re.findall(r"^(Name|Version): *(\S.*?) *$", read_fields(root, record), re.MULTILINE))
    return normalized_name(fields.get("Name", name)), fields.get("Version", version)


def normalized_name(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return SEPARATORS.sub("-", name).lower()


def debian_packages(root: rootfs.Root) -> dict[str, dict[str, str]]:
    """Return the fields of each installed Debian package, by dpkg's database or its pieces."""
    packages: dict[str, dict[str, str]] = {}
    for path in (DPKG_STATUS, *root.glob(DPKG_STATUS + ".d/*")):
        for paragraph in re.split(r"\n\s*\n", root.text(path, MAX_DPKG_BYTES) or ""):
            fields = dict(DPKG_FIELD.findall(paragraph))
            if "Package" in fields and fields.get("Status", "ok installed").endswith("ok installed"):
                packages[fields["Package"]] = fields
    return packages


def source_package(fields: dict[str, str]) -> str:
    """Return a Debian package's source and its version, as "glibc 2.41-12"."""
    name, _, version = fields.get("Source", fields["Package"]).partition(" ")
    return name + " " + (version.strip("()") or fields.get("Version", ""))


def efa_installer(root: rootfs.Root) -> str:
    """Return the version of the last EFA installer; "" where none left its list."""
    text = root.text("/opt/amazon/efa_installed_packages", 1 << 16) or ""
    match = re.search(r"^# EFA installer version: *(\S+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def rpm_packages() -> dict[str, str]:
    """Return the installed RPM packages; none where there is no rpm to ask."""
    command = ["rpm", "-qa", "--queryformat", "%{NAME}\t%{VERSION}-%{RELEASE}\n"]
    try:
        _, out, _ = tools.run_bounded(command, 30, MAX_RPM_BYTES)
    except OSError:
        return {}
    lines = out.decode("utf-8", "replace").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)
