"""Run Trivy or Grype on an image, and read the CycloneDX document that it writes.

Sources: aquasecurity/trivy pkg/sbom/cyclonedx/marshal.go and pkg/sbom/io/encode.go; anchore/grype
grype/presenter/cyclonedx; CycloneDX 1.6.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import pydantic_core
from pydantic import AliasPath, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.plain import first_error, plain
from rdma_images.core.progress import Progress, report_waiting
from rdma_images.engine import Engine
from rdma_images.publish.evidence.scan_result import SEVERITIES, Scan, Vulnerability, parse_severity, unique

MAX_REPORT_BYTES = 128 * 2**20  # 10,000 vulnerabilities with descriptions and references have some 40 MB
# Trivy first: its document says which version fixes a vulnerability, and when it was published; Grype's does not.
_COMMANDS: Mapping[str, Callable[[str, bool], list[str]]] = {
    "trivy": lambda ref, is_local: [
        *("trivy", "image", "--quiet", "--scanners", "vuln", "--format", "cyclonedx"),
        *("--image-src", "docker" if is_local else "remote", ref),
    ],
    "grype": lambda ref, is_local: [
        *("grype", "--quiet", "--output", "cyclonedx-json", f"{'docker' if is_local else 'registry'}:{ref}")
    ],
}
_NAMES_FIXES = frozenset({"trivy"})
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAMES_IMAGE = ("aquasecurity:trivy:ImageID", "aquasecurity:trivy:RepoDigest")  # properties
_FIX = re.compile(r"to version ([^;]*)")  # in a recommendation: "Upgrade libc6 to version 2.41-12+deb13u1"


@dataclass(frozen=True)
class ScannedImage:
    """The image that a scan has to be about."""

    name: str
    digest: str
    image_id: str = ""  # of a build here

    @property
    def by_digest(self) -> str:
        """Return the image's name with its digest, which a scanner repeats in its document."""
        return f"{re.sub(r'@.*|:[^/]*$', '', self.name)}@{self.digest}"


Item = TypeVar("Item")
# Go writes null for an empty list or text.
Many = Annotated[tuple[Item, ...], BeforeValidator(lambda value: () if value is None else value)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class _Part(BaseModel):
    """A part of a document: the fields that are read, and no others."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


class _Property(_Part):
    name: Text = ""
    value: Text = ""


class _Component(_Part):
    bom_ref: Text = Field(default="", alias="bom-ref")
    name: Text = ""
    version: Text = ""
    purl: Text = ""
    properties: Many[_Property] = ()


class _Rating(_Part):
    severity: Text = ""


class _Affect(_Part):
    ref: Text = ""


class _Vulnerability(_Part):
    id: str
    ratings: Many[_Rating] = ()
    recommendation: Text = ""
    published: AwareDatetime | None = None
    affects: Many[_Affect] = ()


class _Document(_Part):
    """A CycloneDX document with vulnerabilities."""

    vulnerabilities: Many[_Vulnerability]
    components: Many[_Component] = ()
    finished: AwareDatetime = Field(validation_alias=AliasPath("metadata", "timestamp"))
    tool: _Component = Field(default=_Component(), validation_alias=AliasPath("metadata", "tools", "components", 0))
    image: _Component = Field(default=_Component(), validation_alias=AliasPath("metadata", "component"))


def read_report(path: Path, image: ScannedImage) -> Scan:
    """Return the scan of `image` in the CycloneDX document at `path`.

    Raises:
        RefusedError: The document is missing, truncated, of another form, or about another image.
    """
    if not files.exists(path):
        raise RefusedError(f"{path}: no such file\nname the document that the scanner wrote")
    document = parse_report(files.read_bytes(path, MAX_REPORT_BYTES), str(path))
    _check_image(document, image, path)
    return Scan(
        digest=image.digest,
        scanner=f"{document.tool.name} {document.tool.version}".strip() or "an unnamed scanner",
        finished=document.finished.replace(microsecond=0),
        names_fixes=document.tool.name.lower() in _NAMES_FIXES,
        vulnerabilities=unique(_vulnerabilities(document)),
    )


def parse_report(content: bytes, name: str) -> _Document:
    """Return the CycloneDX document in `content`; errors call it `name`.

    Raises RefusedError for other documents, and for a bill of materials without vulnerabilities.
    """
    try:
        document = pydantic_core.from_json(content.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        defect = "is truncated" if "EOF" in str(error) else "is not JSON"
        raise RefusedError(f"{name}: {defect}: {plain(str(error))}\nlet the scanner write it again") from None
    if not isinstance(document, dict) or document.get("bomFormat") != "CycloneDX":
        raise RefusedError(
            f"{name}: is not a CycloneDX document\n"
            "write one: `trivy image --scanners vuln --format cyclonedx`, or `grype --output cyclonedx-json`"
        )
    try:
        return _Document.model_validate(document)
    except ValidationError as error:
        problem = first_error(error)
        fix = "let the scanner write it again"
        if problem.startswith("vulnerabilities: "):
            fix = "it is a bill of materials: have it scanned, as `trivy image --scanners vuln` does"
        raise RefusedError(f"{name}: {problem}\n{fix}") from None


def _check_image(document: _Document, image: ScannedImage, path: Path) -> None:
    """Raise RefusedError unless the document names the digest of `image`."""
    component = document.image
    properties = [prop.value for prop in component.properties if prop.name in _NAMES_IMAGE]
    texts = (component.name, component.version, component.purl.replace("%3A", ":"), *properties)
    digests = set(_DIGEST.findall(" ".join(texts)))
    if image.digest in digests:
        return
    fix = f"scan this image again, by its digest: {image.by_digest}"
    if not digests:
        raise RefusedError(f"{path}: does not say which image it is about\n{fix}")
    found = ", ".join(sorted(digests))
    raise RefusedError(f"{path}: is about another image than {image.name}: {found}, not {image.digest}\n{fix}")


def _vulnerabilities(document: _Document) -> Iterator[Vulnerability]:
    """Yield each vulnerability once for each package that it affects."""
    by_ref = {component.bom_ref: component for component in document.components}
    for entry in document.vulnerabilities:
        severities = [parse_severity(rating.severity) for rating in entry.ratings]
        fixes = [version.strip() for version in _FIX.findall(entry.recommendation)]
        for affect in entry.affects or (_Affect(),):  # one that names no package still counts
            component = by_ref.get(affect.ref) or _Component(name=affect.ref)
            yield Vulnerability(
                id=entry.id,
                package=component.name,
                installed=component.version,
                severity=min(severities, key=SEVERITIES.index, default="unknown"),
                fixed_in=", ".join(fixes),
                published=entry.published.date().isoformat() if entry.published else "",
            )


def find_scanner() -> str:
    """Return the scanner on the PATH, Trivy before Grype. Raises RefusedError without one."""
    program = next(filter(shutil.which, _COMMANDS), None)
    if program is None:
        raise RefusedError(
            f"no scanner is on the PATH: {' and '.join(_COMMANDS)} are not installed\n"
            "install Trivy, or read the CycloneDX document of a scan elsewhere with --report"
        )
    return program


def run_scanner(program: str, image: ScannedImage, engine: Engine | None, folder: Path, progress: Progress) -> Path:
    """Scan `image` with a scanner; return the document that it wrote into `folder`.

    Args:
        program: As `find_scanner` returned it.
        engine: The engine that has the image; None for an image in a registry.

    Raises:
        RdmaImagesError: The scanner failed.
    """
    command = _COMMANDS[program](image.by_digest, engine is not None)
    environ = {**engine.environ(), "DOCKER_HOST": engine.host} if engine else None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{program}.cdx.json"
    progress(f"scanning {image.name} with {program}")
    with path.open("wb") as report, report_waiting(progress, lambda: program):
        result = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=report, stderr=subprocess.PIPE, check=False
        )
    if result.returncode:
        complaint = result.stderr.decode(errors="replace").strip().splitlines()
        last_lines = "\n".join(complaint[-5:]) or f"it ended with {result.returncode}"
        raise RdmaImagesError(f"`{' '.join(command)}` failed: {last_lines}\nrun this command by itself")
    return path
