"""What a plan keeps of the measurements of an image that exists."""

from collections.abc import Mapping

import pytest

from rdma_images import engine as engines
from rdma_images.core.image import ExistingImage
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import PackageContents, WheelContents
from rdma_images.plan import onto
from rdma_images.validate import existing_image, suite
from tests.support.case_parts import recorded
from tests.support.existing_images import REF, existing

pytestmark = pytest.mark.usefixtures("state")


def measured(environment: Mapping[str, str] | None = None) -> ExistingImage:
    inspection: Inspection = recorded()
    if environment is not None:
        subject = inspection.subject.model_copy(update={"environment": dict(environment)})
        inspection = inspection.model_copy(update={"subject": subject})
    return existing_image.from_inspection(inspection)


def test_versions_and_fabric() -> None:
    image = measured()
    assert (image.system, image.platform, image.fabric) == ("debian13", "linux/amd64", "efa")
    assert image.pytorch == "2.15.0"
    assert image.nccl == "2.30.7"
    assert image.cuda == "13.2"
    assert image.python.startswith("3.13")
    assert image.layers == tuple(recorded().subject.layers)


def test_the_runtime_is_the_one_that_torch_maps() -> None:
    assert measured().cuda_runtime.startswith("/opt/venv/site-packages/nvidia/")


def test_folders_of_fabrics_are_those_that_the_loader_searches() -> None:
    image = measured({"LD_LIBRARY_PATH": "/opt/amazon/efa/lib/:/opt/nothing:/opt/amazon/ofi-nccl/lib"})
    assert image.loader_folders[:2] == ("/opt/amazon/efa/lib", "/opt/amazon/ofi-nccl/lib")
    assert "/opt/nothing" not in image.loader_folders


def test_no_other_variable_is_recorded() -> None:
    image = measured({"HF_TOKEN": "secret", "PATH": "/usr/bin", "NCCL_DEBUG": "INFO", "NCCL_NET": "a\nRUN b"})
    assert image.environment == {"PATH": "/usr/bin", "NCCL_DEBUG": "INFO"}


def test_packages_are_those_that_its_python_imports_with_what_they_require() -> None:
    inspection = recorded()
    assert inspection.measured.system
    assert inspection.measured.packages
    first, second, other = "/usr/local/lib/python3.13/dist-packages", "/usr/lib/python3/dist-packages", "/opt/other"
    folders = {
        first: {"Rich": "15.0.0", "odd": "not a version"},
        second: {"rich": "13.0", "pygments": "2.19.1"},
        other: {"numpy": "1.0"},
    }
    lines = ["pygments<3,>=2.13", "numpy>=1", "pygments<2; python_version < '3.8'", "not a line", "attrs"]
    changes = {
        "system": inspection.measured.system.model_copy(update={"python_folders": [first, second]}),
        "packages": inspection.measured.packages.model_copy(update={"wheels": folders}),
        "contents": PackageContents(wheels={first: {"Rich": WheelContents(requires=lines)}}),
    }
    measured_here = inspection.measured.model_copy(update=changes)
    image = existing_image.from_inspection(inspection.model_copy(update={"measured": measured_here}))
    assert image.python_packages == {"rich": "15.0.0", "pygments": "2.19.1"}
    assert image.python_requires == {"rich": ("pygments<3,>=2.13",), "pygments": ()}


def test_an_image_is_measured_once_for_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ensure", lambda _: pytest.fail("no engine is needed"))
    onto.write_record(existing(suite=suite.digest()))
    assert existing_image.measure_base_image(REF).suite == suite.digest()
