"""The validators over a case in this process, in a quarter of `suite.run`'s time."""

import contextlib
import io
import json
import tempfile
from pathlib import Path

import pytest

from rdma_images.core.check import Check
from rdma_images.core.paths import VALIDATORS
from rdma_images.inspection.inspection import Inspection
from rdma_images.validate import suite


def checks(inspection: Inspection, *tiers: str) -> dict[str, Check]:
    """Return checks of `tiers` (static where none is named) by id, as `suite.run` does."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        inspection_file, checks_file = Path(folder) / "case.json", Path(folder) / "checks.json"
        inspection_file.write_text(inspection.model_dump_json(), encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as stdout:
            ended = pytest.main([str(VALIDATORS), *suite.options(inspection_file, checks_file, tiers or ("static",))])
        assert ended in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), stdout.getvalue()
        return {fields["id"]: Check(**fields) for fields in json.loads(checks_file.read_text(encoding="utf-8"))}
