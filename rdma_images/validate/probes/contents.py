"""The facts for a bill of materials about a package: licences, supplier, dependencies, bundled parts."""

from __future__ import annotations

import base64
import csv
import posixpath
import re
from collections.abc import Iterable
from typing import Any

from rdma_images.validate.probes import packages, rootfs

MAX_METADATA_BYTES = 256 * 1024  # bytes of a METADATA: torch's names 60 license files
MAX_RECORD_BYTES = 64 << 20  # bytes; torch's has 2 million
MAX_COPYRIGHT_BYTES = 2 << 20  # bytes of a Debian copyright file; perl's has 0.3 million
MAX_VALUE_LENGTH = 300  # characters of a value that is kept
MAX_LICENSE_FILES = 300  # license files of one wheel
MAX_ROW_LENGTH = 8192  # characters of a row of RECORD; a path of Linux has at most 4096 bytes
LICENSE_FILE = re.compile(r"\.dist-info/(?:licenses/.+|(?:LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)[^/]*)", re.IGNORECASE)
VENDORED = re.compile(r".+/([^/]+)-([^/-]+)\.(?:dist|egg)-info/(?:METADATA|PKG-INFO)")
LIBRARY = re.compile(r"[^/]+\.so(?:\.\d+)*")
# Libraries of others that wheels bring along: what auditwheel copies goes to a folder of this ending, and some builds
# put them beside their own. Source: the wheels of torch 2.15, numpy 2.5, nixl-cu13 1.5 and mooncake 0.3 themselves.
BUNDLED_FOLDER = ".libs/"
FOREIGN_LIBRARY = re.compile(
    r"lib(?:gomp|gfortran|quadmath|stdc\+\+|openblas|scipy_openblas|crypto|ssl|curl|z|zstd|numa|fabric|uc[pst]m?|ibverbs"
    r"|rdmacm|mlx5|efa|nl-3|nl-route-3|hwloc|pciaccess|protobuf|grpc|abseil|event|jsoncpp|glog|gflags|boost)[-_.\d].*"
)
EFA_LIST = "/opt/amazon/efa_installed_packages"


def contents_of_system() -> dict[str, Any]:
    """Return the contents of the system that this runs in."""
    root = rootfs.Root()
    return package_contents(root, packages.python_folders(root))


def package_contents(root: rootfs.Root, folders: Iterable[str]) -> dict[str, Any]:
    """Return wheels by folder and name, Debian packages, and the EFA installer's."""
    wheels: dict[str, dict[str, Any]] = {}
    for folder, record in packages.metadata_files(root, folders):
        name, _ = packages.name_and_version(root, record)
        wheels.setdefault(folder, {})[name] = wheel(root, record)
    debian = {name: debian_package(root, fields) for name, fields in packages.debian_packages(root).items()}
    return {"wheels": wheels, "debian": debian, "efa": efa_packages(root)}


def wheel(root: rootfs.Root, record: str) -> dict[str, Any]:
    """Return what the METADATA at `record`, and the RECORD beside it, say of a wheel."""
    head = (root.text(record, MAX_METADATA_BYTES) or "").replace("\r\n", "\n").split("\n\n", 1)[0]
    head = re.sub(r"\n[ \t]+", " ", head)
    fields: dict[str, list[str]] = {}
    for key, value in re.findall(r"^([A-Za-z-]+): *(.*)$", head, re.MULTILINE):
        fields.setdefault(key.lower(), []).append(value.strip()[:MAX_VALUE_LENGTH])
    first = {key: values[0] for key, values in fields.items()}
    files, bundled, vendored = recorded_files(root.text(posixpath.dirname(record) + "/RECORD", MAX_RECORD_BYTES) or "")
    authors = ("author", "maintainer", "author-email", "maintainer-email")
    return {
        "license": first.get("license-expression", ""),
        "license_field": first.get("license", ""),
        "classifiers": [line for line in fields.get("classifier", ()) if line.startswith("License ::")],
        "supplier": next((first[key] for key in authors if first.get(key)), ""),
        "requires": [line for line in fields.get("requires-dist", ()) if "extra" not in line.partition(";")[2]],
        "license_files": files,
        "bundled": bundled,
        "vendored": vendored,
    }


def recorded_files(record: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return a RECORD's license files, bundled libraries and vendored packages.

    Libraries with their SHA-256 in hex, "" where it has none; packages with their version.
    """
    licenses: list[str] = []
    bundled: dict[str, str] = {}
    vendored: dict[str, str] = {}
    for line in record.splitlines():
        row = next(csv.reader([line]), []) if len(line) <= MAX_ROW_LENGTH else []
        if len(row) < 2:
            continue
        name = row[0].rpartition("/")[2]
        if LICENSE_FILE.search(row[0]) and len(licenses) < MAX_LICENSE_FILES:
            licenses.append(row[0])
        elif LIBRARY.fullmatch(name) and (BUNDLED_FOLDER in row[0] or FOREIGN_LIBRARY.fullmatch(name)):
            bundled[row[0]] = hexadecimal(row[1])
        elif match := VENDORED.fullmatch(row[0]):
            vendored[packages.normalized_name(match.group(1))] = match.group(2)
    return sorted(licenses), bundled, vendored


def hexadecimal(digest: str) -> str:
    """Return the digest of a RECORD, "sha256=…" in unpadded base64, in hex; "" for any other."""
    algorithm, _, value = digest.partition("=")
    try:
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex() if algorithm == "sha256" else ""
    except ValueError:
        return ""


def debian_package(root: rootfs.Root, fields: dict[str, str]) -> dict[str, Any]:
    """Return what dpkg's database and its copyright file say of a Debian package."""
    depends = re.split(r"[,|]", ",".join(fields.get(key, "") for key in ("Pre-Depends", "Depends")))
    path = "/usr/share/doc/{}/copyright".format(fields["Package"])
    copyright_file = root.text(path, MAX_COPYRIGHT_BYTES)
    return {
        "architecture": fields.get("Architecture", ""),
        "supplier": fields.get("Maintainer", "")[:MAX_VALUE_LENGTH],
        "depends": sorted({name for name in (re.split(r"[ (:]", part.strip())[0] for part in depends) if name}),
        "licenses": copyright_licenses(copyright_file or ""),
        "copyright": path if copyright_file is not None else "",
    }


def copyright_licenses(copyright_file: str) -> list[str]:
    """Return the licences that a Debian copyright file names or refers to.

    Source: Debian's machine-readable copyright format 1.0. Names of the latter begin with "/".
    """
    if re.match(r"\s*Format(?:-Specification)?:", copyright_file):
        names = re.findall(r"^License:[ \t]*(\S.*?)\s*$", copyright_file, re.MULTILINE | re.IGNORECASE)
    else:
        names = [
            "/" + name.rstrip(".") for name in re.findall(r"/usr/share/common-licenses/([\w.+-]+)", copyright_file)
        ]
    return sorted({name[:MAX_VALUE_LENGTH] for name in names})


def efa_packages(root: rootfs.Root) -> list[str]:
    """Return the packages that the EFA installer says it installed."""
    listed = (root.text(EFA_LIST, 1 << 16) or "").splitlines()
    return sorted({word.partition("_")[0] for line in listed if not line.startswith("#") for word in line.split()})
