"""What package managers say is installed."""

from __future__ import annotations

import glob
import os
import re
import sys
from typing import Any

from rdma_images.validate.probes import tools

HEAD = 64 * 1024  # characters: a wheel's METADATA begins with its name and version
RPM_KEPT = 4 << 20  # bytes: a system has some thousand packages
NAME = re.compile(r"[-_.]+")


def installed_packages(root: str = "/") -> dict[str, Any]:
    """Wheels by folder and name, Debian and RPM packages by name: versions as each manager writes them.

    And the version of the EFA installer, by what it leaves behind.
    """
    paragraphs = dpkg(root)
    return {
        "wheels": wheels(root),
        "dpkg": {name: fields.get("Version", "") for name, fields in paragraphs.items()},
        "dpkg_sources": {name: source(fields) for name, fields in paragraphs.items()},
        "rpm": rpm() if root == "/" else {},
        "efa_installer": efa_installer(root),
    }


def wheels(root: str = "/") -> dict[str, dict[str, str]]:
    """Name -> version for every folder of Python packages that is on the path or in a usual place."""
    patterns = (
        "opt/*/lib/python3*/site-packages",
        "usr/lib/python3*/site-packages",
        "usr/lib/python3/dist-packages",
        "usr/local/lib/python3*/*-packages",
        "opt/venv/lib*/python3*/site-packages",
    )
    usual = [folder for pattern in patterns for folder in glob.glob(os.path.join(root, pattern))]
    on_path = [p for p in sys.path if p.endswith("-packages")] if root == "/" else []
    packages = {}
    for folder in sorted({os.path.realpath(f) for f in usual + on_path}):
        records = glob.glob(os.path.join(glob.escape(folder), "*.dist-info/METADATA"))
        records += glob.glob(os.path.join(glob.escape(folder), "*.egg-info/PKG-INFO"))
        if records:
            packages["/" + os.path.relpath(folder, root)] = dict(map(wheel, sorted(records)))
    return packages


def wheel(record: str) -> tuple[str, str]:
    """Name and version of the package whose METADATA is at `record`; from its folder's name where it says neither."""
    name, _, version = os.path.basename(os.path.dirname(record)).rpartition(".")[0].partition("-")
    try:
        with open(record, encoding="utf-8", errors="replace") as file:
            head = file.read(HEAD).split("\n\n", 1)[0]
    except OSError:
        head = ""
    fields = dict(re.findall(r"^(Name|Version): *(\S.*?) *$", head, re.MULTILINE))
    return NAME.sub("-", fields.get("Name", name)).lower(), fields.get("Version", version)


def dpkg(root: str = "/") -> dict[str, dict[str, str]]:
    """Return the fields of each installed Debian package, from the database or the pieces that images keep of it."""
    files = [os.path.join(root, "var/lib/dpkg/status"), *glob.glob(os.path.join(root, "var/lib/dpkg/status.d/*"))]
    packages: dict[str, dict[str, str]] = {}
    for path in files:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        for paragraph in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(Package|Version|Status|Source): *(.*)$", paragraph, re.MULTILINE))
            if "Package" in fields and fields.get("Status", "ok installed").endswith("ok installed"):
                packages[fields["Package"]] = fields
    return packages


def source(fields: dict[str, str]) -> str:
    """Return the source package and its version, "glibc 2.41-12", which dpkg names where they differ."""
    name, _, version = fields.get("Source", fields["Package"]).partition(" ")
    return name + " " + (version.strip("()") or fields.get("Version", ""))


def efa_installer(root: str = "/") -> str:
    """Return the version of the EFA installer that ran last; "" where none left its list of packages."""
    try:
        with open(os.path.join(root, "opt/amazon/efa_installed_packages"), encoding="utf-8", errors="replace") as file:
            match = re.search(r"^# EFA installer version: *(\S+)", file.read(1 << 16), re.MULTILINE)
    except OSError:
        return ""
    return match.group(1) if match else ""


def rpm() -> dict[str, str]:
    """Installed RPM packages; empty where there is no rpm to ask."""
    command = ["rpm", "-qa", "--queryformat", "%{NAME}\t%{VERSION}-%{RELEASE}\n"]
    try:
        _, out, _ = tools.bounded(command, 30, RPM_KEPT)
    except OSError:
        return {}
    lines = out.decode("utf-8", "replace").splitlines()
    return dict(line.split("\t", 1) for line in lines if "\t" in line)
