"""The installed packages by their package managers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rdma_images.validate.probes import pythons, rootfs, tools

HEAD = 64 * 1024  # bytes: a wheel's METADATA begins with its name and version
DPKG = "/var/lib/dpkg/status"
MAX_DPKG_BYTES = 32 << 20  # bytes: a system with some thousand packages has a few million
MAX_RPM_BYTES = 4 << 20  # bytes: a system has some thousand packages
SINGLE_PYTHON_TAG = re.compile(r"cp(3\d+)-cp3\d+t?-")  # a wheel's tag without abi3, which later ones import, too
NAME = re.compile(r"[-_.]+")
OF_JAX = "with-cuda"  # the extra of jax's plugins with the wheels of NVIDIA that they are compiled for
# Packages beside torch and jax that others are compiled for one release of, by their normalised names.
COMPILED_FOR = re.compile(r"(?:flash-attn|jax-cuda\d+-(?:plugin|pjrt))$")
PYTHON_FOLDER = re.compile(r"/python(3\.\d+)/")
REQUIRED = re.compile(r"^Requires-Dist: *(.+?) *$", re.MULTILINE)
WITH_EXTRAS = re.compile(r"([A-Za-z0-9][\w.-]*) *\[([^\]]*)\]")
EXTRA = re.compile(r"\bextra *== *[\"']([^\"']*)[\"']")
PURE = re.compile(r"^Root-Is-Purelib: *true", re.MULTILINE)
NEEDS_TRITON = re.compile(r"^Requires-Dist: *triton\b(?!-)(?!.*\bextra\b)", re.MULTILINE)
FIELD = re.compile(
    r"^(Package|Version|Status|Source|Architecture|Maintainer|Depends|Pre-Depends): *(.*)$", re.MULTILINE
)


def installed_packages(root: rootfs.Root, folders: Iterable[str]) -> dict[str, Any]:
    """Return wheels by folder and name, and Debian's packages by name: versions as each manager writes them.

    And the version of the EFA installer, by what it leaves behind. `folders` are those of Python's packages.
    """
    paragraphs = dpkg(root)
    return {
        "wheels": wheels(root, folders),
        "dpkg": {name: fields.get("Version", "") for name, fields in paragraphs.items()},
        "dpkg_sources": {name: source(fields) for name, fields in paragraphs.items()},
        "rpm": {},
        "other_python": other_python(root, folders),
        **requirements(root, folders),
        "needs_triton": triton_users(root, folders),
        "efa_installer": efa_installer(root),
    }


def packages_of_system(only: Collection[str] = ()) -> dict[str, Any]:
    """Return the packages of the system that this runs in, also those of rpm; `only`: see import_folders."""
    root = rootfs.Root()
    return {**installed_packages(root, this_python(root, only)), "rpm": rpm()}


def this_python(root: rootfs.Root, only: Collection[str] = ()) -> list[str]:
    """Return the folders that this Python imports from, then those that others may import from."""
    return [*filter(None, sys.path), *import_folders(root, os.environ, only)]


def import_folders(root: rootfs.Root, environment: Mapping[str, str], only: Collection[str] = ()) -> list[str]:
    """Return the folders of packages, without links: of each Python on PATH, in its order, then in usual places.

    `only`: those below these folders alone; empty for all.
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
    folders = [folder for python in pythons.on_path(environment.get("PATH", ""), root) for folder in python["folders"]]
    folders += [root.real(folder) for pattern in patterns for folder in root.glob(pattern)]
    starts = tuple("%s/" % root.real(folder).rstrip("/") for folder in only)
    return [folder for folder in dict.fromkeys(folders) if not starts or folder.startswith(starts)]


def wheels(root: rootfs.Root, folders: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return name -> version for every folder of Python packages among `folders`."""
    packages: dict[str, dict[str, str]] = {}
    for folder, record in records(root, folders):
        packages.setdefault(folder, {}).update([wheel(root, record)])
    return packages


def records(root: rootfs.Root, folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the METADATA of each Python package in `folders`, after its folder."""
    for folder in sorted(set(map(root.real, folders))):
        names = root.names(folder)
        paths = ["%s/%s/METADATA" % (folder, name) for name in names if name.endswith(".dist-info")]
        paths += ["%s/%s/PKG-INFO" % (folder, name) for name in names if name.endswith(".egg-info")]
        yield from ((folder, record) for record in sorted(paths) if root.is_file(record))


def wheel(root: rootfs.Root, record: str) -> tuple[str, str]:
    """Return the name and version of an installed package by its METADATA, else by its folder's name."""
    name, _, version = os.path.basename(os.path.dirname(record)).rpartition(".")[0].partition("-")
    head = (root.text(record, HEAD) or "").replace("\r\n", "\n").split("\n\n", 1)[0]
    fields = dict(re.findall(r"^(Name|Version): *(\S.*?) *$", head, re.MULTILINE))
    return NAME.sub("-", fields.get("Name", name)).lower(), fields.get("Version", version)


def other_python(root: rootfs.Root, folders: Iterable[str]) -> dict[str, str]:
    """Return the Python that a package with compiled modules is for, "3.10", by the path of its record.

    Only of those that lie among the packages of another: its folder's name and the tags of its wheel say which.
    """
    others: dict[str, str] = {}
    for folder, record in records(root, folders):
        version = PYTHON_FOLDER.search(folder)
        if version:
            path = os.path.dirname(record)
            tags = re.findall(r"^Tag: *(\S+)", root.text(path + "/WHEEL", HEAD) or "", re.MULTILINE)
            tagged = [match.group(1) if match else "" for match in map(SINGLE_PYTHON_TAG.match, tags)]
            if tagged and all(tagged) and version.group(1).replace(".", "") not in tagged:
                others[path] = "%s.%s" % (tagged[0][0], tagged[0][1:])
    return others


def requirements(root: rootfs.Root, folders: Iterable[str]) -> dict[str, Any]:
    """Return what packages require, by folder and "name version", and by folder the names of those that are compiled.

    Of what an extra requires, that of the extras which another package asks for, and of OF_JAX.
    """
    required: dict[str, dict[str, list[str]]] = {}
    compiled: dict[str, list[str]] = {}
    for folder, record in records(root, folders):
        head = (root.text(record, HEAD) or "").replace("\r\n", "\n").split("\n\n", 1)[0]
        name, version = wheel(root, record)
        if lines := REQUIRED.findall(head):
            required.setdefault(folder, {})["%s %s" % (name, version)] = lines
        if not PURE.search(root.text(os.path.dirname(record) + "/WHEEL", HEAD) or ""):
            compiled.setdefault(folder, []).append(name)
    return {
        "requires": {folder: _of_requested_extras(packages) for folder, packages in required.items()},
        "compiled": compiled,
    }


def _of_requested_extras(packages: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the requirements of packages without those of extras that none of the packages asks for."""
    requested = {("", OF_JAX)}
    for lines in packages.values():
        for name, extras in filter(None, (_with_extras(line) for line in lines)):
            requested.update((name, extra.strip()) for extra in extras.split(","))
    chosen = {}
    for title, lines in packages.items():
        name = title.partition(" ")[0]
        extras_by_line = {line: EXTRA.findall(line) for line in lines}
        matching = [
            line for line, extras in extras_by_line.items() if not extras or _any_requested(name, extras, requested)
        ]
        if matching:
            chosen[title] = matching
    return chosen


def _with_extras(line: str) -> tuple[str, str] | None:
    """Return the name and the extras of a requirement; None for one without."""
    match = WITH_EXTRAS.match(line)
    return (NAME.sub("-", match.group(1)).lower(), match.group(2)) if match else None


def _any_requested(name: str, extras: Iterable[str], requested: Collection[tuple[str, str]]) -> bool:
    return any((package, extra) in requested for extra in extras for package in ("", name))


def triton_users(root: rootfs.Root, folders: Iterable[str]) -> list[str]:
    """Return the packages that require Triton, without torch, whose compiler uses it where it is asked to."""
    users = {
        wheel(root, record)[0]
        for _, record in records(root, folders)
        if NEEDS_TRITON.search((root.text(record, HEAD) or "").replace("\r\n", "\n").split("\n\n", 1)[0])
    }
    return sorted(users - {"torch"})


def dpkg(root: rootfs.Root) -> dict[str, dict[str, str]]:
    """Return the fields of each installed Debian package, from the database or the pieces that images keep of it."""
    packages: dict[str, dict[str, str]] = {}
    for path in (DPKG, *root.glob(DPKG + ".d/*")):
        for paragraph in re.split(r"\n\s*\n", root.text(path, MAX_DPKG_BYTES) or ""):
            fields = dict(FIELD.findall(paragraph))
            if "Package" in fields and fields.get("Status", "ok installed").endswith("ok installed"):
                packages[fields["Package"]] = fields
    return packages


def source(fields: dict[str, str]) -> str:
    """Return the source package and its version, "glibc 2.41-12", which dpkg names where they differ."""
    name, _, version = fields.get("Source", fields["Package"]).partition(" ")
    return name + " " + (version.strip("()") or fields.get("Version", ""))


def efa_installer(root: rootfs.Root) -> str:
    """Return the version of the EFA installer that ran last; "" where none left its list of packages."""
    text = root.text("/opt/amazon/efa_installed_packages", 1 << 16) or ""
    match = re.search(r"^# EFA installer version: *(\S+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def rpm() -> dict[str, str]:
    """Return the installed RPM packages; none where there is no rpm to ask."""
    command = ["rpm", "-qa", "--queryformat", "%{NAME}\t%{VERSION}-%{RELEASE}\n"]
    try:
        _, out, _ = tools.bounded(command, 30, MAX_RPM_BYTES)
    except OSError:
        return {}
    lines = out.decode("utf-8", "replace").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)
