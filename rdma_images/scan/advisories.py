"""Find the vulnerabilities of an image's packages in files of advisories: no scanner, and no network.

Read are Debian's security tracker (security-tracker.debian.org/tracker/data/json) and advisories in the OSV schema, as
pypa/advisory-database has them in YAML and osv.dev in JSON.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pydantic_core
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field, TypeAdapter, ValidationError

from rdma_images.core import files, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.plain import first_misfit, plain
from rdma_images.inspection.report import Report
from rdma_images.scan.formats import OsvAdvisory, OsvAffected, OsvEvent, ReportPart, Section, Text
from rdma_images.scan.scan_result import Scan, Vulnerability, parse_day, parse_severity, unique

MAX_FILE_BYTES = 256 * 2**20  # bytes; Debian's tracker has some 70 MB
# A package's name in JSON or YAML: what no installed package is called need not be parsed.
_NAME = re.compile(rb"name\"?\s*:\s*[\"']?([\w.+-]+)")
DebianKey = tuple[int, tuple[tuple[int, ...] | int, ...], tuple[tuple[int, ...] | int, ...]]

# Versions of Debian packages. Source: Debian Policy 5.6.12, and deb-version(7).
_PARTS = re.compile(r"([^0-9]*)([0-9]*)")


@dataclass(frozen=True)
class InstalledPackages:
    """The packages of an image, as advisories name them."""

    python: Mapping[str, frozenset[str]]  # name -> versions
    debian: Mapping[str, tuple[tuple[str, str], ...]]  # source package -> (binary package, version of the source)
    codename: str  # of the distribution's release: "trixie"
    release: str  # as OSV writes it: "Debian:13"


class _DebianRelease(ReportPart):
    status: Text = ""
    fixed_version: Text = ""
    urgency: Text = ""


class _DebianEntry(ReportPart):
    releases: dict[str, _DebianRelease] = Field(default_factory=dict)


_SECTIONS = TypeAdapter(dict[str, Section])
_DEBIAN: TypeAdapter[dict[str, dict[str, _DebianEntry]]] = TypeAdapter(dict[str, dict[str, _DebianEntry]])


def scan_by_advisories(folder: Path, report: Report, digest: str) -> Scan:
    """Return the scan of image `digest` by the advisories below `folder`.

    The packages are those that `report` measured.

    Raises:
        RefusedError: There is no advisory, one cannot be read, or the report lacks the packages or their sources.
    """
    installed = installed_packages(report)
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".yaml", ".yml") and path.is_file()]
    if not folder.is_dir():
        raise RefusedError(f"{folder}: no such folder\nname the one that has Debian's tracker as JSON, or OSV files")
    if not paths:
        raise RefusedError(f"{folder}: has no advisories\nput Debian's tracker as JSON, or OSV files, into it")
    vulnerabilities: list[Vulnerability] = []
    newest = 0.0
    for path in paths:
        newest = max(newest, path.stat().st_mtime)
        vulnerabilities += read_advisories(files.read_bytes(path, MAX_FILE_BYTES), str(path), installed)
    return Scan(
        digest=digest,
        scanner=f"advisories ({len(paths)} files)",
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        database=parse_day(newest),
        vulnerabilities=unique(vulnerabilities),
    )


def read_advisories(content: bytes, name: str, installed: InstalledPackages) -> list[Vulnerability]:
    """Return the vulnerabilities of installed packages in one file.

    Raises RefusedError for one that cannot be read.
    """
    try:
        if not name.endswith(".json"):
            if not _names_installed(content, installed):
                return []
            documents = [document.data for document in yaml_file.documents(content.decode(), name)]
        elif re.match(rb'\s*\{\s*"id"|\s*\{\s*"schema_version"', content) and not _names_installed(content, installed):
            return []
        else:
            document = pydantic_core.from_json(content)
            documents = document if isinstance(document, list) else [document]
        return [vulnerability for document in documents for vulnerability in _match_document(document, installed)]
    except ValidationError as error:
        raise RefusedError(f"{name}: is no advisory: {first_misfit(error)}\nremove it from the folder") from None
    except ValueError as error:
        defect = "is truncated" if "EOF" in str(error) else "cannot be read"
        raise RefusedError(f"{name}: {defect}: {plain(str(error))}\nfetch it again") from None


def _names_installed(content: bytes, installed: InstalledPackages) -> bool:
    names = {match.decode(errors="replace") for match in _NAME.findall(content)}
    return any(canonicalize_name(name) in installed.python or name in installed.debian for name in names)


def _match_document(document: Any, installed: InstalledPackages) -> Iterator[Vulnerability]:
    if isinstance(document, dict) and "id" in document and "affected" in document:
        yield from _osv(OsvAdvisory.model_validate(document), installed)
    elif isinstance(document, dict) and "id" in document:
        return  # an advisory of OSV's that names no package: withdrawn
    else:
        sections = _SECTIONS.validate_python(document)
        installed_sections = {name: entry for name, entry in sections.items() if name in installed.debian}
        yield from _debian(_DEBIAN.validate_python(installed_sections), installed)


def _debian(tracker: Mapping[str, Mapping[str, _DebianEntry]], installed: InstalledPackages) -> Iterator[Vulnerability]:
    for source, entries in tracker.items():
        for cve, entry in entries.items():
            release = entry.releases.get(installed.codename)
            if release is None or release.fixed_version == "0":  # "0": no version of this release was affected
                continue
            for package, version in installed.debian[source]:
                fixed = release.fixed_version if release.status == "resolved" else ""
                if fixed and debian_key(version) >= debian_key(fixed):
                    continue
                yield Vulnerability(
                    id=cve,
                    package=package,
                    installed=version,
                    severity=parse_severity(release.urgency.rstrip("*")),
                    fixed_in=fixed,
                    ecosystem="deb",
                )


def _osv(advisory: OsvAdvisory, installed: InstalledPackages) -> Iterator[Vulnerability]:
    if advisory.withdrawn:
        return
    for affected in advisory.affected:
        ecosystem = affected.package.ecosystem
        if ecosystem == "PyPI":
            name: str = canonicalize_name(affected.package.name)
            installed_versions = [
                ("pypi", name, version) for version in sorted(installed.python.get(name, frozenset()))
            ]
        elif ecosystem == installed.release:
            installed_versions = [("deb", *package) for package in installed.debian.get(affected.package.name, ())]
        else:
            continue
        for kind, package, version in installed_versions:
            order = Version if kind == "pypi" else debian_key
            if _is_affected(version, affected, order):
                fixes = [event.fixed for span in affected.ranges for event in span.events if event.fixed]
                yield Vulnerability(
                    id=advisory.id,
                    package=package,
                    installed=version,
                    severity=advisory.rated,
                    fixed_in=", ".join(fix for fix in fixes if _is_earlier(version, fix, order)),
                    ecosystem=kind,
                    published=parse_day(advisory.published),
                    aliases=advisory.aliases,
                )


def _is_earlier(first: str, second: str, order: Callable[[str], Any]) -> bool:
    try:
        return bool(order(first) < order(second))
    except ValueError:  # also of a number with more digits than Python reads
        return False


def _is_affected(version: str, affected: OsvAffected, order: Callable[[str], Any]) -> bool:
    """Return whether a version is listed, or in a range. Source: the OSV schema, "Evaluation"."""
    if version.partition("+")[0] in affected.versions or version in affected.versions:
        return True
    spans = [span.events for span in affected.ranges if span.type in ("ECOSYSTEM", "SEMVER")]
    try:
        return any(_in_range(order(version), events, order) for events in spans)
    except ValueError:  # also of a number with more digits than Python reads
        return False


def _in_range(version: Any, events: Sequence[OsvEvent], order: Callable[[str], Any]) -> bool:
    def position(event: OsvEvent) -> Any:
        return order(event.introduced or event.fixed or event.last_affected or "0")

    inside = False
    for event in sorted(events, key=position):
        if event.introduced:
            inside = inside or position(event) <= version
        elif event.fixed:
            inside = inside and version < position(event)
        else:
            inside = inside and version <= position(event)
    return inside


def installed_packages(report: Report) -> InstalledPackages:
    """Return the packages that a report has measured.

    Raises RefusedError where it measured none.
    """
    measured = report.inspection.measured if report.inspection else None
    packages, system = (measured.packages, measured.system) if measured else (None, None)
    if packages is None or system is None or (packages.dpkg and not packages.dpkg_sources):
        raise RefusedError(
            f"the report of {report.ref} has no packages with their sources\nrun `{COMMAND} validate` for it again"
        )
    python: dict[str, set[str]] = {}
    for name, version in packages.installed:
        python.setdefault(canonicalize_name(name), set()).add(version)
    debian: dict[str, list[tuple[str, str]]] = {}
    for package, text in packages.dpkg_sources.items():
        source, _, version = text.partition(" ")
        debian.setdefault(source, []).append((package, version))
    family = {"debian": "Debian", "ubuntu": "Ubuntu"}.get(system.os.get("ID", ""), "")
    return InstalledPackages(
        python={name: frozenset(versions) for name, versions in python.items()},
        debian={source: tuple(binaries) for source, binaries in debian.items()},
        codename=system.os.get("VERSION_CODENAME", ""),
        release=f"{family}:{system.os.get('VERSION_ID', '')}",
    )


@lru_cache(maxsize=65536)
def debian_key(version: str) -> DebianKey:
    """Return the sort key of a Debian version: epoch, upstream version, revision."""
    epoch, colon, remainder = version.strip().partition(":")
    if not colon:
        epoch, remainder = "0", epoch
    upstream, _, revision = remainder.rpartition("-") if "-" in remainder else (remainder, "", "0")
    return int(epoch) if re.fullmatch("[0-9]{1,9}", epoch) else 0, _parts(upstream), _parts(revision)


def _parts(text: str) -> tuple[tuple[int, ...] | int, ...]:
    """Return words and numbers in turn.

    A word ends with 0, which is after "~" and before every other character.
    """
    parts: list[tuple[int, ...] | int] = []
    for word, digits in _PARTS.findall(text)[:-1] or [("", "")]:
        parts.append((*(_order(character) for character in word), 0))
        parts.append(int(digits[:4000] or 0))  # Python converts no longer text, and no version has one
    return (*parts, (0,), 0)


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 0x110000
