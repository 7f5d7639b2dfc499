"""The pytest plugin of the validators: their fixtures, and how their results become checks."""

import json
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.outcomes import Skipped

from rdma_images.core.check import Check, Outcome, Severity
from rdma_images.core.paths import COMMAND
from rdma_images.core.plain import plain
from rdma_images.inspection.inspection import (
    Inspection,
    InstalledNccl,
    mapped_nccl,
    nccl_in_use,
    nccl_wheels,
    preloaded_nccl,
    wheel_nccl,
)
from rdma_images.inspection.machine import Devices, MeasuredGpus
from rdma_images.inspection.measurements import Files, ImportedTorch, Libraries, MeasuredPackages, Settings, System
from rdma_images.validate import check_folders
from rdma_images.validate.check_folders import ListedCheck

REQUIREMENT = pytest.StashKey["Requirement"]()
CHECKS = pytest.StashKey[list[Check]]()
INSPECTION = pytest.StashKey[Inspection]()


class UnmetError(AssertionError):
    """A requirement does not hold; the message has the lines expected, found and fix."""


class NotMeasuredError(Skipped):
    """The clock ended what measures: nothing is known of what a validator asks for."""


@dataclass
class Requirement:
    """What a validator calls once, with what must hold and what was found."""

    expected: str = ""
    actual: str = ""
    fix: str = ""
    severity: Severity | None = None

    def __call__(self, holds: bool, *, expected: str, actual: str, fix: str, severity: Severity | None = None) -> None:
        """Record the finding; raises UnmetError, which fails the check, where it does not hold.

        `severity` is the finding's where it is another than the validator's.
        """
        self.severity = severity
        self.expected, self.actual, self.fix = map(plain, (expected, actual, fix))
        if not holds:
            raise UnmetError(f"expected: {self.expected}\nfound: {self.actual}\nfix: {self.fix}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that the suite's runner gives."""
    group = parser.getgroup("rdma-images")
    group.addoption("--inspection", type=Path, required=False, help="the image and what was measured in it, as JSON")
    group.addoption("--checks", type=Path, help="where to write the checks, as JSON")
    group.addoption("--tiers", default="static", help="comma list of the tiers to run")
    group.addoption("--list-checks", type=Path, help="run none; where to write the checks of the image, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Begin with no checks."""
    config.stash[CHECKS] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the validators of the image's folders and of the tiers asked for.

    Those of any tier come with them. One marked with `when`, a function of the inspection, is left out where that says
    that it does not apply. The image is read here, and not before: all is collected while it is measured.
    """
    tiers = set(config.getoption("--tiers").split(","))
    if any(_declared_marks(item)["tier"] in tiers for item in items):
        tiers.add("any")
    inspection = config.stash[INSPECTION] = _read_inspection(config)
    reasons = check_folders.folder_reasons(set(map(_folder, items)), inspection)
    chosen = [
        item for item in items if _folder(item) in reasons and _is_chosen(_declared_marks(item), tiers, inspection)
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    if path := config.getoption("--list-checks"):
        rows = [_listed(item, reasons) for item in items]
        path.write_text(json.dumps([row._asdict() for row in rows]), encoding="utf-8")
        items.clear()


def _is_chosen(marks: Mapping[str, Any], tiers: set[str], inspection: Inspection) -> bool:
    return marks["tier"] in tiers and (marks["when"] is None or marks["when"](inspection))


def _folder(item: pytest.Item) -> str:
    """Return the folder of validators/ in which a validator lies."""
    return item.path.parent.name


def _listed(item: pytest.Item, reasons: Mapping[str, str]) -> ListedCheck:
    marks, folder = _declared_marks(item), _folder(item)
    return ListedCheck(folder, reasons[folder], marks["id"], _title(item), marks["tier"], marks["severity"])


def _read_inspection(config: pytest.Config) -> Inspection:
    path: Path | None = config.getoption("--inspection")
    if path is None:
        raise pytest.UsageError(f"no --inspection: run `{COMMAND} validate`, which measures and then calls this suite")
    return Inspection.model_validate_json(path.read_bytes())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a failed call, a skip or an error into a Check."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        check = _check(item, report, call)
        item.config.stash[CHECKS].append(check)
        item.user_properties += [("id", check.id), ("severity", check.severity), ("source", check.source)]
        if isinstance(report.longrepr, tuple):  # of a skip: file, line, and the reason that JUnit's XML repeats
            report.longrepr = (*report.longrepr[:2], check.reason)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the checks where the runner asked for them."""
    if path := session.config.getoption("--checks"):
        path.write_text(json.dumps([asdict(check) for check in session.config.stash[CHECKS]]), encoding="utf-8")


def _effective_marks(item: pytest.Item) -> dict[str, Any]:
    """Return a validator's marks; one of any tier is of the first asked for."""
    marks = _declared_marks(item)
    return marks if marks["tier"] != "any" else {**marks, "tier": item.config.getoption("--tiers").split(",")[0]}


def _declared_marks(item: pytest.Item) -> dict[str, Any]:
    marker = item.get_closest_marker("validator")
    if marker is None:
        raise pytest.UsageError(f"{item.nodeid} is no validator: it has no @pytest.mark.validator")
    defaults = {"tier": "static", "severity": "error", "when": None}
    return {**defaults, "id": marker.args[0], **marker.kwargs}


def _check(item: pytest.Item, report: pytest.TestReport, call: "pytest.CallInfo[None]") -> Check:
    marks = _effective_marks(item)
    require = item.stash.get(REQUIREMENT, Requirement())
    actual, fix, reason = require.actual, require.fix, ""
    outcome: Outcome = report.outcome
    if report.outcome == "skipped" and call.excinfo:
        reason = str(call.excinfo.value).removeprefix("Skipped: ")
        outcome = "not measured" if _is_for_time(item, call.excinfo.value, reason) else "skipped"
    elif report.outcome == "failed" and call.excinfo and not isinstance(call.excinfo.value, UnmetError):
        actual = f"the validator itself failed: {call.excinfo.exconly()}"
        fix = "report this as a defect, with report.json"
    return Check(
        id=marks["id"],
        title=_title(item),
        tier=marks["tier"],
        severity=require.severity or marks["severity"],
        outcome=outcome,
        expected=require.expected,
        actual=actual,
        fix=fix if report.outcome == "failed" else "",
        reason=reason,
        source=marks["source"],
        seconds=round(call.duration, 4),
    )


def _is_for_time(item: pytest.Item, skip: BaseException, reason: str) -> bool:
    """Return whether a validator was left for want of what the clock ended."""
    measured = item.config.stash[INSPECTION].measured
    return isinstance(skip, NotMeasuredError) or any(measured.missing[name] in reason for name in measured.stopped)


def _title(item: pytest.Item) -> str:
    document = getattr(getattr(item, "function", None), "__doc__", None) or item.name
    return str(document).strip().splitlines()[0].rstrip(".")


@pytest.fixture
def require(request: pytest.FixtureRequest) -> Requirement:
    """Return what a validator calls with what it found."""
    stash: pytest.Stash = request.node.stash
    return stash.setdefault(REQUIREMENT, Requirement())


@pytest.fixture(scope="session")
def inspection(request: pytest.FixtureRequest) -> Inspection:
    """Return the image, what is expected of it, and what was measured."""
    return request.config.stash[INSPECTION]


def unmeasured(inspection: Inspection, probe: str) -> NoReturn:
    """Leave a validator for want of what `probe` measures: it is skipped, or not measured."""
    if probe in inspection.measured.stopped:
        not_measured(inspection.measured.missing[probe])
    if probe in inspection.measured.lost and probe != "torch":  # torch.imports reports it
        pytest.skip(f"{probe} could not be measured: see measured.complete")
    pytest.skip(inspection.measured.missing.get(probe, f"{probe} was not measured"))


def not_measured(why: str) -> NoReturn:
    """Leave a validator whose measurement the clock ended."""
    raise NotMeasuredError(why)


@pytest.fixture
def torch(inspection: Inspection) -> ImportedTorch:
    """Return what `import torch` brought."""
    return inspection.measured.torch or unmeasured(inspection, "torch")


@pytest.fixture
def libraries(inspection: Inspection) -> Libraries:
    """Return the fabric's libraries, and what the loader makes of them."""
    return inspection.measured.tree.libraries if inspection.measured.tree else unmeasured(inspection, "tree")


@pytest.fixture
def files(inspection: Inspection) -> Files:
    """Return the file tree in short."""
    return inspection.measured.tree.files if inspection.measured.tree else unmeasured(inspection, "tree")


@pytest.fixture
def packages(inspection: Inspection) -> MeasuredPackages:
    """Return what package managers say is installed."""
    return inspection.measured.packages or unmeasured(inspection, "packages")


@pytest.fixture
def settings(inspection: Inspection) -> Settings:
    """Return what sets variables beside the environment."""
    return inspection.measured.settings or unmeasured(inspection, "settings")


@pytest.fixture
def system(inspection: Inspection) -> System:
    """Return the system the probes ran in."""
    return inspection.measured.system or unmeasured(inspection, "system")


@pytest.fixture
def devices(inspection: Inspection) -> Devices:
    """Return what the machine brings: RDMA devices and what their use depends on."""
    return inspection.measured.devices or unmeasured(inspection, "devices")


@pytest.fixture
def gpus(inspection: Inspection) -> MeasuredGpus:
    """Return the GPUs, and what an all-reduce over them did."""
    return inspection.measured.gpus or unmeasured(inspection, "gpus")


@pytest.fixture
def nccl(inspection: Inspection) -> InstalledNccl:
    """Return the NCCL in use, where it is the installed one; else another check reports it."""
    in_use = nccl_in_use(inspection)
    if not in_use:
        pytest.skip("the image has no NCCL")
    mapped, tree, wheels = mapped_nccl(inspection), inspection.measured.tree, nccl_wheels(inspection)
    wheel = wheel_nccl(tree.libraries) if tree else None
    if mapped and wheel and mapped.path not in (wheel, preloaded_nccl(inspection)):
        pytest.skip("another NCCL is loaded than the one installed: see nccl.loaded")
    if in_use.path == wheel and wheels and in_use.version not in wheels.values():
        pytest.skip("the installed NCCL is not the one its wheel says: see nccl.version")
    if not in_use.version:
        pytest.skip(f"{in_use.path} names no version: it may be damaged")
    return in_use


@pytest.fixture
def fabric(inspection: Inspection) -> str:
    """Return the fabric that the image is meant for, in a validator of an image for a fabric."""
    return str(inspection.expected.fabric)
