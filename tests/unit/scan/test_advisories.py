"""Files of advisories against what was measured in an image."""

import json
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.inspection.measurements import MeasuredPackages
from rdma_images.inspection.report import Report
from rdma_images.scan import advisories
from rdma_images.scan.advisories import scan_by_advisories
from rdma_images.scan.formats import base_score
from tests.support.case_parts import GREEN, recorded

PACKAGES = MeasuredPackages(
    wheels={"/opt/venv/site-packages": {"torch": "2.15.0+cu132", "jinja2": "3.1.2"}},
    dpkg={"libc6": "2.41-12", "libexample1": "1.0-1+b1"},
    rpm={},
    dpkg_sources={"libc6": "glibc 2.41-12", "libexample1": "example 1.0-1"},
)
TRACKER = {
    "example": {
        "CVE-2026-1": {"releases": {"trixie": {"status": "resolved", "fixed_version": "1.0-2", "urgency": "high"}}},
        "CVE-2026-2": {"releases": {"trixie": {"status": "resolved", "fixed_version": "1.0-1", "urgency": "low"}}},
        "CVE-2026-3": {"releases": {"trixie": {"status": "open", "urgency": "unimportant"}}},
        "CVE-2026-4": {"releases": {"bookworm": {"status": "open", "urgency": "high"}}},
        "CVE-2026-5": {"releases": {"trixie": {"status": "resolved", "fixed_version": "0", "urgency": "high"}}},
    },
    "absent": {"CVE-2026-6": {"releases": {"trixie": {"status": "open", "urgency": "high"}}}},
}
PYPA = """\
id: PYSEC-2026-7
published: "2026-10-02T00:00:00Z"
aliases: [CVE-2026-7]
severity:
- type: CVSS_V3
  score: CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H
affected:
- package: {name: Jinja2, ecosystem: PyPI}
  ranges:
  - type: ECOSYSTEM
    events:
    - introduced: "3.0"
    - fixed: 3.1.6
"""
VERSIONS = (
    *("1.0", "1.0-1", "1.0-0", "1.0~rc1-1", "1.0~~", "1.0+b1", "1.0a", "1.0.", "1.0-1~bpo13+1", "1:0.9", "0:1.0"),
    *("2.41-12", "2.41-12+deb13u1", "2.41-9", "60.0amzn1.0-1", "60.0-1", "7.0.0+really6.2-1", "", "1.00", "1.0-1-1"),
)


def report(packages: MeasuredPackages = PACKAGES) -> Report:
    facts = recorded()
    facts = facts.model_copy(update={"measured": facts.measured.model_copy(update={"packages": packages})})
    return Report("r", "sha256:1", "sha256:2", "efa-1", (), "2026-11-21T08:01:00+00:00", 1.0, (GREEN,), facts)


def scanned(folder: Path, **files: Any) -> list[tuple[str, str, str, str]]:
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    scan = scan_by_advisories(folder, report(), "sha256:1")
    return [(entry.id, entry.package, entry.severity, entry.fixed_in) for entry in scan.vulnerabilities]


def test_debians_tracker_is_read_by_source_package_and_release(tmp_path: Path) -> None:
    assert scanned(tmp_path, debian__json=TRACKER) == [
        ("CVE-2026-1", "libexample1", "high", "1.0-2"),
        ("CVE-2026-3", "libexample1", "negligible", ""),
    ]


def test_pypas_advisories_are_read(tmp_path: Path) -> None:
    (tmp_path / "vulns").mkdir()
    assert scanned(tmp_path / "vulns", PYSEC__yaml=PYPA) == [("PYSEC-2026-7", "jinja2", "critical", "3.1.6")]
    assert scanned(tmp_path, more__yaml=PYPA.replace("PYSEC-2026-7", "X").replace('"3.0"', '"3.1.3"'))[:1] == [
        ("PYSEC-2026-7", "jinja2", "critical", "3.1.6")
    ]


@pytest.mark.parametrize(
    ("affected", "is_affected"),
    [
        ({"versions": ["2.15.0"]}, True),
        ({"versions": ["2.14.1"]}, False),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"last_affected": "2.15.0"}]}]}, False),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.15.1"}]}]}, True),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "2.8.0"}, {"introduced": "0"}]}]}, False),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
        ({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "no version"}]}]}, False),
    ],
)
def test_a_version_is_compared_as_osv_says(affected: dict[str, Any], is_affected: bool, tmp_path: Path) -> None:
    entry = {"package": {"name": "torch", "ecosystem": "PyPI"}} | affected
    advisory = {"id": "GHSA-1", "affected": [entry], "database_specific": {"severity": "HIGH"}}
    assert bool(scanned(tmp_path, one__json=advisory)) == is_affected


def test_debian_in_osv_is_read_too(tmp_path: Path) -> None:
    events = [{"introduced": "0"}, {"fixed": "1.0-1+deb13u1"}]
    package = {"name": "example", "ecosystem": "Debian:13"}
    advisory = {
        "id": "DSA-1",
        "affected": [{"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}],
    }
    assert scanned(tmp_path, one__json=advisory) == [("DSA-1", "libexample1", "unknown", "1.0-1+deb13u1")]
    assert scanned(tmp_path, one__json=advisory | {"withdrawn": "2026-11-01T00:00:00Z"}) == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.json", '{"example": {"CVE', "a.json: is truncated"),
        ("a.json", '{"example": {"CVE-1": {"releases": 5}}}', "a.json: is no advisory: .*releases"),
        ("a.json", "[1]", "a.json: is no advisory"),
        ("a.yaml", "id: [\nname: torch", "a.yaml:.*: not valid YAML"),
        ("a.txt", "", "has no advisories"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RefusedError, match=sentence):
        scan_by_advisories(tmp_path, report(), "sha256:1")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"nowhere: no such folder\n"):
        scan_by_advisories(tmp_path / "nowhere", report(), "sha256:1")


def test_a_report_without_source_packages_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(RefusedError, match=r"has no packages with their sources\nrun"):
        scan_by_advisories(tmp_path, report(PACKAGES.model_copy(update={"dpkg_sources": {}})), "sha256:1")


@pytest.mark.parametrize(
    ("vector", "score"),
    [  # scores as the specification's own calculator gives them
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:R/S:C/C:L/I:L/A:H", 8.2),
        ("CVSS:3.0/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.8),
        ("CVSS:3.1/AV:L/AC:H/PR:L/UI:R/S:U/C:N/I:N/A:N", 0.0),
        ("AV:N/AC:L/Au:N/C:P/I:P/A:P", None),
        ("CVSS:3.1/AV:N", None),
    ],
)
def test_the_score_of_a_vector(vector: str, score: float | None) -> None:
    assert base_score(vector) == score


def test_the_order_is_policys() -> None:
    ordered = ["1.0~~", "1.0~rc1-1", "1.0", "1.0-1~bpo13+1", "1.0-1", "1.0a", "1.0+b1", "2.41-9", "2.41-12", "1:0.9"]
    assert all(advisories.debian_key(low) < advisories.debian_key(high) for low, high in pairwise(ordered))
    assert advisories.debian_key("1.0") == advisories.debian_key("1.0-0") == advisories.debian_key("0:1.00")


@pytest.mark.skipif(not shutil.which("dpkg"), reason="dpkg is not here to compare with")
def test_dpkg_says_the_same() -> None:
    pairs = [(first, second) for first in VERSIONS for second in VERSIONS if first and second]
    script = "".join(
        f"dpkg --compare-versions '{first}' lt '{second}' && echo y || echo n\n" for first, second in pairs
    )
    answers = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True).stdout.split()
    ours = ["y" if advisories.debian_key(first) < advisories.debian_key(second) else "n" for first, second in pairs]
    assert [pair for pair, mine, dpkg in zip(pairs, ours, answers, strict=True) if mine != dpkg] == []
