"""Run the static validators over images made of data, all in one session, and compare with what must be reported."""

import io
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import redirect_stdout
from os import devnull
from pathlib import Path
from typing import NamedTuple

import pytest

from rdma_images.core.case import Case
from rdma_images.core.measurements import Entry
from rdma_images.core.model import Check
from rdma_images.core.paths import VALIDATORS
from rdma_images.validate import entry, fabric, readout
from rdma_images.validate.answers import measured
from rdma_images.validate.pytest_plugin import CHECKS
from tests.incidents.case import Incident, Told
from tests.incidents.image import Image

UNUSED = ("unraisableexception", "threadexception", "logging", "cacheprovider", "testinfra", "warnings", "doctest")
OPTIONS = ("-q", "--no-header", "-o", "addopts=", "-p", "rdma_images.validate.pytest_plugin", "--tb=no", "--no-summary")
WITHOUT = tuple(word for name in UNUSED for word in ("-p", f"no:{name}"))
ALONE = ("-c", devnull, "--rootdir", str(VALIDATORS.parent))


class Outcome(NamedTuple):
    """What became of a case: whether its cause was `told`, the errors `beside` it, and what failed after the `fix`."""

    told: bool
    beside: tuple[Check, ...]
    fix: tuple[Check, ...] = ()

    def right(self, incident: Incident) -> bool:
        """Whether all is as it must be."""
        return self.told == bool(incident.told) and not self.beside and not self.fix


def case_of(name: str, image: Image) -> Case:
    """All that is known of the image without an engine: read out, nothing of it started."""
    subject = image.subject(name)
    with tempfile.TemporaryDirectory(prefix="rdma-images-incident-") as folder:
        said = readout.answers(io.BytesIO(image.tar()), Path(folder), subject)
    found = measured(said, readout.PROBES)
    missing = {"torch": "torch was not imported", "tools": "nothing of the image was started"}
    started = Entry(given=image.started) if image.started else None
    known = found.settings and entry.with_files(found.settings, image.started, image.text)
    found = found.model_copy(update={"entry": started, "settings": known, "missing": {**found.missing, **missing}})
    return Case(subject=subject, expected=fabric.expected(subject, found, None), measured=found)


class _Cases:
    """A pytest plugin that gives every validator each case in turn, and notes which check is of which.

    Of an image that was fixed only the validators `of` it are run.
    """

    def __init__(self, cases: Iterable[Case], of: Mapping[str, set[str]]) -> None:
        self.cases, self.of = list(cases), of
        self.checks: dict[str, list[Check]] = {case.subject.ref: [] for case in self.cases}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        marker = metafunc.definition.get_closest_marker("validator")
        cases = [case for case in self.cases if marker and self._asked(marker, case)]
        metafunc.parametrize("case", cases, ids=[case.subject.ref for case in cases], scope="session")

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        # Of a validator that nobody is asked pytest makes one item without a case.
        items[:] = [item for item in items if isinstance(item.callspec.params["case"], Case)]

    def _asked(self, validator: pytest.Mark, case: Case) -> bool:
        """Whether the validator is one of those to run on the case: the others would be skipped."""
        only = self.of.get(case.subject.ref)
        tier, meant = validator.kwargs.get("tier", "static"), validator.kwargs.get("fabric")
        for_it = meant in (None, case.expected.fabric) or (meant == "any" and case.expected.fabric is not None)
        return tier == "static" and for_it and (only is None or validator.args[0] in only)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Generator[None, object, object]:
        known = item.config.stash[CHECKS]
        before = len(known)
        done = yield
        self.checks[_of(item)] += known[before:]
        return done


def _of(item: pytest.Function) -> str:
    """The image that a validator is given."""
    case = item.callspec.params["case"]
    assert isinstance(case, Case)
    return case.subject.ref


def checks(images: Mapping[str, Image], of: Mapping[str, set[str]] | None = None) -> dict[str, list[Check]]:
    """What the static validators say of each image; `of` names the only ones to ask of some.

    Raises RuntimeError where they could not run.
    """
    given = _Cases((case_of(name, image) for name, image in images.items()), of or {})
    said = io.StringIO()
    with redirect_stdout(said):
        code = pytest.main([str(VALIDATORS), *OPTIONS, *WITHOUT, *ALONE], plugins=[given])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"the validators ended with {code}: {said.getvalue()[-2000:]}")
    return given.checks


def outcomes(incidents: Mapping[str, Incident]) -> dict[str, Outcome]:
    """What becomes of each case: once as it is, and once more, for the checks that told it, with its fix."""
    found = checks({name: incident.image for name, incident in incidents.items()})
    seen = {name: outcome(incident, found[name]) for name, incident in incidents.items()}
    fixed = {name: image for name, incident in incidents.items() if (image := incident.fixed) and seen[name].told}
    told = {name: {check.id for check in _told(incidents[name], found[name])} for name in fixed}
    after = checks(fixed, told) if fixed else {}
    left = {name: tuple(check for check in after.get(name, ()) if check.outcome == "failed") for name in seen}
    return {name: outcome._replace(fix=left[name]) for name, outcome in seen.items()}


def outcome(incident: Incident, found: Iterable[Check]) -> Outcome:
    """Whether what had to be reported was, and what was reported that should not have been."""
    right = _told(incident, found)
    errors = [check for check in found if check.outcome == "failed" and check.severity == "error"]
    return Outcome(bool(right), tuple(c for c in errors if c not in right and c.id not in incident.besides))


def _told(incident: Incident, found: Iterable[Check]) -> list[Check]:
    told = incident.told
    return [check for check in found if told and check.outcome == "failed" and _is(check, told)]


def _is(check: Check, told: Told) -> bool:
    first = check.found.partition("\n")[0]
    return check.id in (told.check or check.id) and all(word in first for word in told.words)
