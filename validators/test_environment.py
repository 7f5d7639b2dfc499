"""What the image sets for every process in it."""

import pytest

from rdma_images import paths, yamlfile
from rdma_images.facts.environment import Environment, Variable
from rdma_images.validate.case import Case
from rdma_images.validate.plugin import Judge
from validators.probes import leftovers

FACTS = "facts/environment.yaml, each variable with its source"
SEARCH = "ld.so(8): LD_LIBRARY_PATH and LD_PRELOAD come before what the image's libraries ask for"


def table() -> Environment:
    """facts/environment.yaml."""
    return yamlfile.load(paths.FACTS / "environment.yaml", Environment)


def set_here(case: Case, effect: str) -> list[Variable]:
    """The variables of the table with this effect that the image sets."""
    labels = case.subject.labels.items()
    labelled = {name.rpartition("component.")[2]: value for name, value in labels if ".component." in name}
    versions = {n: v for n, v in {**labelled, **case.expected.components}.items() if v[:1].isdigit()}
    rows = table().variables.values()
    environment = case.subject.environment
    return [r for r in rows if r.effect == effect and r.speaks_of(environment, case.expected.fabric, versions)]


def told(case: Case, rows: list[Variable]) -> str:
    """The variables as they are set, each with why it should not be, and whose word that is."""
    said = [f"{r.name}={case.subject.environment[r.name]}: {r.why} [{table().cite(r)}]" for r in rows]
    return "; ".join(said) or "none"


@pytest.mark.validator("environment.harmful", source=FACTS)
def test_harmful(case: Case, judge: Judge) -> None:
    """No variable takes the fabric or its tuner away."""
    rows = set_here(case, "harmful")
    judge(
        not rows,
        expected="none of the variables that take the fabric, its tuner or NVLink away",
        found=told(case, rows),
        mend=f"leave {', '.join(r.name for r in rows)} out of the image: a job can set what it needs",
    )


@pytest.mark.validator("environment.obsolete", source=FACTS, severity="warning")
def test_obsolete(case: Case, judge: Judge) -> None:
    """No variable is left over from older versions."""
    rows = set_here(case, "obsolete")
    judge(
        not rows,
        expected="no variable that these versions do not need any more",
        found=told(case, rows),
        mend=f"leave {', '.join(r.name for r in rows)} out of the image",
    )


@pytest.mark.validator("environment.loader", source=SEARCH)
def test_loader(case: Case, judge: Judge) -> None:
    """The loader's search is not changed for every process."""
    found = {n: v for n, v in case.subject.environment.items() if n in ("LD_LIBRARY_PATH", "LD_PRELOAD") and v}
    judge(
        not found,
        expected="neither LD_LIBRARY_PATH nor LD_PRELOAD",
        found=", ".join(f"{name}={value}" for name, value in found.items()) or "neither",
        mend="name the folders in /etc/ld.so.conf.d and run ldconfig: that lets each library's own search come first",
    )


@pytest.mark.validator("environment.secret", source="a configuration and its history are readable by all who pull them")
def test_secret(case: Case, judge: Judge) -> None:
    """No secret is in the environment, the labels or the history."""
    said = {**case.subject.environment, **case.subject.labels}
    named = [name for name, value in said.items() if leftovers.holds_secret(name, value)]
    steps = [kind for step in case.subject.history if (kind := leftovers.secret_in(step.made_by.encode()))]
    found = [*named, *(f"a step of the history holds {kind}" for kind in steps)]
    judge(
        not found,
        expected="none",
        found=", ".join(found) or "none",
        mend="give secrets to a build with --mount=type=secret, replace those that were published, and build again",
    )
