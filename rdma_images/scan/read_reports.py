"""Read the reports of a scan, of whichever scanner, run Trivy or Grype, and find out whether it is about an image."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic_core
from pydantic import ValidationError

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError, suggestion
from rdma_images.core.plain import first_misfit, plain
from rdma_images.core.progress import Progress, report_waiting
from rdma_images.engine import Engine
from rdma_images.scan import cloud_formats, exchange_formats, formats
from rdma_images.scan.formats import ScannerReport
from rdma_images.scan.scan_result import Scan, parse_time, unique

MAX_REPORT_BYTES = 128 * 2**20  # 10,000 findings of Trivy with descriptions and references have some 40 MB
_COMMANDS: Mapping[str, Callable[[str, bool], list[str]]] = {
    "trivy": lambda ref, is_local: [
        *("trivy", "image", "--quiet", "--scanners", "vuln", "--format", "json"),
        *("--image-src", "docker" if is_local else "remote", ref),
    ],
    "grype": lambda ref, is_local: [
        *("grype", "--quiet", "--output", "json", f"{'docker' if is_local else 'registry'}:{ref}")
    ],
}


@dataclass(frozen=True)
class ScannedImage:
    """The image that a scan has to be about."""

    name: str
    digest: str
    layers: tuple[str, ...] = ()  # digests of the uncompressed layers, lowest first; empty where they are not known


Document = dict[str, Any]
# What a format is recognized by, in this order, and how it is read.
_FORMATS: Sequence[tuple[Callable[[Document], object], Callable[[Document], ScannerReport]]] = (
    (lambda d: "SchemaVersion" in d, lambda d: formats.Trivy.model_validate(d).report()),
    (lambda d: "matches" in d, lambda d: formats.Grype.model_validate(d).report()),
    (lambda d: "runs" in d, lambda d: exchange_formats.Sarif.model_validate(d).report()),
    (lambda d: d.get("bomFormat") == "CycloneDX", lambda d: exchange_formats.CycloneDx.model_validate(d).report()),
    (
        lambda d: d.keys() & {"imageScanFindings", "imageScanStatus"},
        lambda d: cloud_formats.EcrFindings.model_validate(d).report(),
    ),
    (cloud_formats.is_acr, lambda d: cloud_formats.AcrPage.model_validate(d).report()),
    (lambda d: "results" in d, lambda d: formats.OsvScanner.model_validate(d).report()),
)
SUPPORTED = "Trivy, Grype and OSV-Scanner JSON, SARIF, CycloneDX with vulnerabilities, Amazon ECR, Alibaba Cloud ACR"


def read_reports(paths: Sequence[Path], subject: ScannedImage, stated_digest: str = "") -> Scan:
    """Return the scan that the reports at `paths` make up.

    They are one file, or all pages of a registry's answer.

    Args:
        stated_digest: The digest that the user says a report is about, which names none itself.

    Raises:
        RefusedError: A report is truncated, of an unknown form, about another image, or a page is missing.
    """
    reports = [read_report(path) for path in paths]
    for path, report in zip(paths, reports, strict=True):
        check_subject(report, subject, stated_digest, str(path))
    vulnerabilities = [vulnerability for report in reports for vulnerability in report.vulnerabilities]
    total = max((report.total for report in reports if report.total is not None), default=len(vulnerabilities))
    if total > len(vulnerabilities) or sum(report.is_partial for report in reports) >= len(reports) > 0:
        extent = (
            f"has {len(vulnerabilities)} of {total} vulnerabilities" if total > len(vulnerabilities) else "is a part"
        )
        raise RefusedError(f"{paths[-1]}: {extent}\nfetch the other pages, and name each with --report")
    times = [_finished(report, path) for report, path in zip(reports, paths, strict=True)]
    return Scan(
        digest=subject.digest,
        scanner=", ".join(dict.fromkeys(report.scanner for report in reports)),
        finished=min(times).isoformat(timespec="seconds"),
        database=min((report.database for report in reports if report.database), default=""),
        vulnerabilities=unique(vulnerabilities),
    )


def read_report(path: Path) -> ScannerReport:
    """Return the report in one file, of whichever scanner.

    Raises RefusedError for what is truncated, is no report, or is one of an unknown form.
    """
    if not files.exists(path):
        raise RefusedError(f"{path}: no such file\nname the report that the scanner wrote")
    return parse_report(files.read_bytes(path, MAX_REPORT_BYTES), str(path))


def parse_report(content: bytes, name: str) -> ScannerReport:
    """Return the report in `content`, as `read_report` does; errors call it `name`.

    Raises RefusedError for content that is no scanner's report.
    """
    try:
        document = pydantic_core.from_json(content.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        defect = "is truncated" if "EOF" in str(error) else "is no JSON"
        raise RefusedError(f"{name}: {defect}: {plain(str(error))}\nhave the scanner write it again, as JSON") from None
    if isinstance(document, dict) and isinstance(document.get("body"), dict):  # as Alibaba's SDKs and CLI print it
        document = document["body"]
    read_format = next(
        (read_format for matches, read_format in _FORMATS if isinstance(document, dict) and matches(document)), None
    )
    if read_format is None:
        raise RefusedError(f"{name}: is no report of a scanner\nread are: {SUPPORTED}")
    try:
        return read_format(document)
    except ValidationError as error:
        problem = first_misfit(error)
        is_bill = problem.startswith("vulnerabilities: ")
        fix = "a bill of materials has none: scan it first" if is_bill else f"read are: {SUPPORTED}"
        raise RefusedError(f"{name}: {problem}\n{fix}") from None
    except ValueError as error:
        raise RefusedError(f"{name}: {plain(str(error))}\nwait for the scan, or start it again") from None


def check_subject(report: ScannerReport, subject: ScannedImage, stated_digest: str, name: str) -> None:
    """Raise RefusedError unless a report is about `subject`.

    A digest, its layers or the user's word say so.
    """
    if stated_digest and stated_digest != subject.digest:
        raise RefusedError(f"--digest {stated_digest}: {subject.name} is {subject.digest}\nscan this image again")
    if subject.digest in report.digests or (report.layers and report.layers == subject.layers):
        return
    if report.digests or report.layers:
        digests = ", ".join(sorted(report.digests)) or "an image of other layers"
        raise RefusedError(
            f"{name}: is about another image than {subject.name}: {digests}, not {subject.digest}\n"
            "scan this image again"
        )
    if not stated_digest:
        raise RefusedError(
            f"{name}: does not say which image it is about\n"
            "name a form of report that does (Trivy's or Grype's JSON), or say it: "
            f"--digest {subject.digest}"
        )


def _finished(report: ScannerReport, path: Path) -> datetime:
    """Return when a scan ended: as the report says, or else when its file was written."""
    with files.as_file_error(path):
        return parse_time(report.finished) or datetime.fromtimestamp(path.stat().st_mtime, UTC)


def run_scanner(program: str, ref: str, engine: Engine | None, folder: Path, progress: Progress) -> Path:
    """Scan `ref` with the user's own program; return the report that it wrote into `folder`.

    Args:
        engine: The engine that has the image; None for a reference in a registry.

    Raises:
        RefusedError: The program is not known, or not installed.
        RdmaImagesError: It failed.
    """
    if program not in _COMMANDS:
        raise RefusedError(f"--with {program}: no scanner that is run here\n{suggestion(program, _COMMANDS)}")
    if shutil.which(program) is None:
        raise RefusedError(
            f"{program} is not on PATH\ninstall it, or read a scanner's report with --report, or advisories with "
            "--advisories"
        )
    command = _COMMANDS[program](ref, engine is not None)
    environ = {**engine.environ(), "DOCKER_HOST": engine.host} if engine else None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{program}.json"
    progress(f"scanning {ref} with {program}")
    with path.open("wb") as report, tempfile.TemporaryFile() as errors, report_waiting(progress, lambda: program):
        result = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=report, stderr=errors, check=False
        )
        errors.seek(0)
        complaint = errors.read(1 << 16).decode(errors="replace").strip()
    if result.returncode:
        complaint_tail = "\n".join(complaint.splitlines()[-5:]) or f"it ended with {result.returncode}"
        raise RdmaImagesError(f"`{' '.join(command)}` failed: {complaint_tail}\nsee that it scans this image by itself")
    return path
