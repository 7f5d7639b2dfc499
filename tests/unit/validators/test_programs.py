"""What keeps an entry point from starting: an error where it is the image's, a warning where a volume may bring it."""

import pytest

from rdma_images.inspection.measurements import Programs, StartedProgram
from rdma_images.validate.probes import programs as probe
from rdma_images.validate.pytest_plugin import Requirement, UnmetError
from validators.test_programs import test_entry_point as check_entry_point


@pytest.mark.parametrize(
    ("by", "fault", "severity"),
    [
        ("", probe.ABSENT, None),
        ("/bin/sh", probe.ABSENT, "warning"),
        ("/start.sh", probe.NO_RIGHT, None),
    ],
)
def test_what_a_volume_may_bring_is_a_warning(by: str, fault: str, severity: str | None) -> None:
    require = Requirement()
    program = StartedProgram(word="/app/serve", program="/app/serve", fault=fault, by=by)
    with pytest.raises(UnmetError):
        check_entry_point(Programs(started=[program]), require)
    assert require.severity == severity
