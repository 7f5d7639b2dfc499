"""The bill of materials, from what probes measured: each package once, equal bytes for equal images."""

import dataclasses
import json
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Image
from rdma_images.inspection.measurements import PackageContents
from rdma_images.inspection.report import Report
from rdma_images.publish.evidence import bill
from rdma_images.publish.evidence.bill import BillEntry, list_entries
from rdma_images.validate.probes import contents
from rdma_images.validate.probes.rootfs import Root
from tests.support.bill_parts import CONTENTS, PACKAGES
from tests.support.case_parts import report_on
from tests.support.published_image import validated

pytestmark = pytest.mark.usefixtures("folders")


@pytest.fixture
def report(image: Image) -> Report:
    measured = validated(image, f"sha256:{'a' * 64}")
    assert measured.inspection
    update = {"packages": PACKAGES, "contents": CONTENTS}
    inspection = measured.inspection.model_copy(
        update={"measured": measured.inspection.measured.model_copy(update=update)}
    )
    return dataclasses.replace(measured, inspection=inspection)


def by_name(report: Report, image: Image | None) -> dict[str, BillEntry]:
    return {part.component.name: part for part in list_entries(report, image)}


def test_a_wheel_has_hash_supplier_dependencies_and_what_it_brings(report: Report, image: Image) -> None:
    torch, depends = by_name(report, image)["torch"]
    assert torch.supplier
    assert (torch.supplier.name, depends) == ("PyTorch Team", ["pkg:pypi/numpy@2.5.5"])
    assert len(torch.hashes) == 1, "of the lock"
    assert [(bundled.name, bundled.version, [h.content for h in bundled.hashes]) for bundled in torch.components] == [
        ("fmt", "11.0", []),
        ("libgomp.so.1", None, ["ab" * 32]),
    ]


def test_the_efa_installer_has_its_pin_and_its_packages(report: Report, image: Image) -> None:
    installer, depends = by_name(report, image)["efa-installer"]
    assert depends == ["pkg:deb/debian/libfabric1-aws@2.6.0amzn1.0?arch=amd64&distro=debian-13"]
    (reference,) = installer.external_references
    assert str(reference.url).startswith("https://")
    stood_in = by_name(dataclasses.replace(report, stand_ins=(f"efa-installer-{installer.version}",)), image)
    assert [p.name for p in stood_in["efa-installer"].component.properties] == ["rdma-images:stand-in"]
    assert "efa-installer" not in by_name(report, None)


def test_cyclonedx_is_valid_and_complete(report: Report, image: Image) -> None:
    text = bill.cyclonedx_bill("efa-pytorch", report, list_entries(report, image)).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    components = {component["name"]: component for component in json.loads(text)["components"]}
    assert components["torch"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert [inner["name"] for inner in components["torch"]["components"]] == ["fmt", "libgomp.so.1"]
    assert components["libc6"]["licenses"] == [{"license": {"id": "LGPL-2.1+"}}]
    depends = {entry["ref"]: entry.get("dependsOn", []) for entry in json.loads(text)["dependencies"]}
    assert depends["pkg:pypi/torch@2.15.0"] == ["pkg:pypi/numpy@2.5.5"]


def test_a_package_of_no_public_index_does_not_name_it(image: Image) -> None:
    origins = {"torch": "./torch-2.15.0-py3-none-any.whl", "pip": "git+https://git.example/pip@0123"}
    labels = {f"io.rdma-images.package-origin.{name}": origin for name, origin in origins.items()}
    parts = list_entries(validated(image, "sha256:1"), labels=labels)
    assert {part.ref for part in parts if part.component.name in origins} == {
        "pkg:generic/torch@2.15.0",
        "pkg:generic/pip@26.0?vcs_url=git%2Bhttps://git.example/pip%400123",
    }


def test_the_same_image_has_the_same_bytes(image: Image) -> None:
    def written(digest: str) -> bytes:
        report = validated(image, digest)
        return bill.cyclonedx_bill("t", report, list_entries(report))

    assert written("sha256:1") == written("sha256:1") != written("sha256:2")


def test_nothing_measured_is_no_empty_bill(image: Image) -> None:
    with pytest.raises(RdmaImagesError, match="has measured no packages"):
        list_entries(dataclasses.replace(report_on(image), inspection=None))


def test_an_older_report_still_has_its_packages(image: Image) -> None:
    assert set(by_name(validated(image, "sha256:1"), None)) == {"torch", "pip", "libc6"}


def test_the_probe_reads_metadata_records_and_copyright_files(tmp_path: Path) -> None:
    info = tmp_path / "opt/venv/lib/python3.13/site-packages/numpy-2.5.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Name: NumPy\nVersion: 2.5.5\nLicense-Expression: BSD-3-Clause\nAuthor: A\n"
        "Requires-Dist: Jinja2>=3; python_version > '3'\nRequires-Dist: pytest; extra == 'test'\n\nLicense: X\n"
    )
    (info / "RECORD").write_text(
        "numpy.libs/libscipy_openblas64_-4b7.so,sha256=q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s,1\n"
        "numpy/core.so,sha256=x,1\nnumpy-2.5.5.dist-info/licenses/LICENSE.txt,,\n"
        "numpy/_vendor/jaraco.text-4.0.0.dist-info/METADATA,,\nbroken\n" + "x" * 200_000
    )
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(
        "Package: bash\nStatus: install ok installed\nVersion: 5.2-1+b1\nSource: bash-src (5.2-1)\nMaintainer: M\n"
        "Architecture: amd64\nPre-Depends: libc6 (>= 2.38)\nDepends: base-files, a | b:any\n"
    )
    doc = tmp_path / "usr/share/doc/bash"
    doc.mkdir(parents=True)
    (doc / "copyright").write_text("Format: https://x\nFiles: *\nLicense: GPL-3+\n text\n\nLicense: GPL-3+\n")
    (tmp_path / "opt/amazon").mkdir()
    (tmp_path / "opt/amazon/efa_installed_packages").write_text(
        "# EFA installer version: 1.50.0\nlibfabric1-aws_2_amd64\n"
    )
    folder = "/opt/venv/lib/python3.13/site-packages"
    measured = PackageContents(**contents.package_contents(Root(str(tmp_path)), [folder]))
    (wheel,) = measured.wheels[folder].values()
    assert (wheel.license, wheel.supplier) == ("BSD-3-Clause", "A")
    assert wheel.requires == ["Jinja2>=3; python_version > '3'"]
    assert wheel.bundled == {"numpy.libs/libscipy_openblas64_-4b7.so": "ab" * 32}
    assert wheel.vendored == {"jaraco-text": "4.0.0"}
    assert wheel.license_files == ["numpy-2.5.5.dist-info/licenses/LICENSE.txt"]
    bash = measured.debian["bash"]
    assert (bash.supplier, bash.depends, bash.licenses) == ("M", ["a", "b", "base-files", "libc6"], ["GPL-3+"])
    assert measured.efa == ["libfabric1-aws"]
    assert contents.copyright_licenses("see /usr/share/common-licenses/GPL-3.") == ["/GPL-3"]
