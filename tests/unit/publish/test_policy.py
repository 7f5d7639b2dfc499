"""policy.yaml: what is refused in it, and what it refuses."""

import dataclasses
from datetime import date, datetime
from pathlib import Path

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.core.yaml_file import loads
from rdma_images.publish.evidence import policy as policies
from rdma_images.publish.evidence.policy import Policy, decide, require_passed
from rdma_images.publish.evidence.scan_result import Scan, Severity, Vulnerability

TODAY = date(2026, 11, 24)
EXCEPTION = """
  - id: CVE-2026-1
    package: libexample1
    reason: the server part is not started
    owner: team@example.com
    until: {until}
"""


def policy(text: str = "", grace: str = "{critical: 14, high: 28}") -> Policy:
    return loads(f"grace-days: {grace}\n{text}", Policy, "policy.yaml")


def vulnerability(
    cve: str = "CVE-2026-1", severity: Severity = "critical", fixed: str = "1.1", published: str = "2026-10-01"
) -> Vulnerability:
    return Vulnerability(cve, "libexample1", "1.0", severity, fixed, published)


def scan(
    *vulnerabilities: Vulnerability, finished: str = "2026-11-23T08:00:00+00:00", names_fixes: bool = True
) -> Scan:
    return Scan("sha256:1", "trivy 0.74.0", datetime.fromisoformat(finished), names_fixes, vulnerabilities)


def outcomes(rules: Policy, *vulnerabilities: Vulnerability) -> list[str]:
    return [decision.outcome for decision in decide(scan(*vulnerabilities), rules, TODAY)]


def test_the_example_is_a_policy() -> None:
    rules = policies.load_policy(policies.EXAMPLE)
    assert rules.grace_days == {"critical": 14, "high": 28, "medium": 180}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("grace-days: {critical: 1}\nseverites: {}", "policy.yaml:2: unknown key 'severites'"),
        ("fixed-only: true", "has no 'grace-days': add it"),
        ("grace-days: {fatal: 1}", "grace-days.fatal|grace-days"),
        ("grace-days: {critical: soon}", "policy.yaml:1: grace-days.critical is 'soon', but must be a whole number"),
        (
            "grace-days: {}\nexceptions:\n  - {id: CVE-1, reason: r, owner: o}",
            "policy.yaml:3: .*has no 'until': add it",
        ),
        ("grace-days: {}\nexceptions:\n  - {id: CVE-1, owner: o, until: 2027-01-31}", "has no 'reason'"),
        (
            "grace-days: {}\nexceptions:\n  - {id: CVE-1, reason: '', owner: o, until: 2027-01-31}",
            "should have at least 1 character",
        ),
        ("grace-days: {}\nexceptions:\n  - {id: CVE-1, reason: r, owner: o, until: never}", "should be a valid date"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        loads(text, Policy, "policy.yaml")


def test_grace_is_counted_from_the_day_of_the_advisory() -> None:
    rules = policy()
    assert outcomes(rules, vulnerability(published="2026-11-10")) == ["in grace"]
    assert outcomes(rules, vulnerability(published="2026-11-09")) == ["refused"]
    assert outcomes(rules, vulnerability(severity="high", published="2026-11-09")) == ["in grace"]
    assert outcomes(rules, vulnerability(published="")) == ["refused"]
    assert outcomes(rules, vulnerability(severity="medium")) == ["not refused"]
    assert outcomes(policy(grace="{critical: 0}"), vulnerability(published="2026-11-24")) == ["refused"]


def test_a_day_in_the_future_gives_no_grace() -> None:
    assert outcomes(policy(), vulnerability(published="2026-11-26")) == ["refused"]
    assert outcomes(policy(), vulnerability(published="2026-11-25")) == ["in grace"]  # where the day has begun


def test_fixed_only_lets_pass_what_has_no_fix() -> None:
    assert outcomes(policy("fixed-only: true"), vulnerability(fixed="")) == ["no fix"]
    assert outcomes(policy(), vulnerability(fixed="")) == ["refused"]


def test_a_scanner_that_names_no_fixes_lets_nothing_pass_as_unfixed() -> None:
    grype = scan(vulnerability(fixed="", published=""), names_fixes=False)
    (decision,) = decide(grype, policy("fixed-only: true"), TODAY)
    assert decision.outcome == "refused"
    assert decision.why == "the scanner does not say when it was published, so no days of grace are counted"


def test_an_exception_is_for_its_package_and_its_time() -> None:
    rules = policy("exceptions:" + EXCEPTION.format(until="2999-01-31"))
    assert outcomes(rules, vulnerability()) == ["accepted"]
    other = dataclasses.replace(vulnerability(), package="other")
    assert outcomes(rules, other) == ["refused"]


def test_an_exception_that_has_ended_is_refused() -> None:
    sentence = r"policy.yaml:7: .* for CVE-2026-1 ended on 2026-11-23\nfix it, or let team@example.com decide"
    with pytest.raises(RefusedError, match=sentence):
        policy("exceptions:" + EXCEPTION.format(until="2026-11-23"))


@pytest.mark.parametrize(("day", "age"), [("2026-11-16", 8), ("2027-11-23", -364)])
def test_a_scan_that_is_old_or_of_the_future_is_refused(day: str, age: int) -> None:
    with pytest.raises(RefusedError, match=rf"is of {day}, {age} days old, and policy.yaml:\d allows 7\nrun"):
        decide(scan(finished=f"{day}T23:59:00+00:00"), policy(), TODAY)
    assert decide(scan(finished="2026-11-17T00:00:00+00:00"), policy(), TODAY) == ()


def test_the_gate_wants_a_scan_of_this_digest() -> None:
    with pytest.raises(RefusedError, match="efa-1 was never scanned"):
        require_passed("efa-1", None, "sha256:1", policy(), TODAY)
    with pytest.raises(RefusedError, match="the scan is about sha256:1, not sha256:2"):
        require_passed("efa-1", scan(), "sha256:2", policy(), TODAY)
    assert require_passed("efa-1", scan(), "sha256:1", policy(), TODAY) == ()


def test_a_refusal_counts_and_names_the_first() -> None:
    many = [vulnerability(f"CVE-2026-{number}") for number in range(10_000)]
    with pytest.raises(RefusedError, match=r"refuses 10000 critical: CVE-2026-0 in libexample1, .* and 9997 more\n"):
        require_passed("efa-1", scan(*many), "sha256:1", policy(), TODAY)


def test_without_a_file_there_is_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "PROJECT", tmp_path)
    assert policies.chosen_policy("") is None
    (tmp_path / "policy.yaml").write_text("grace-days: {critical: 1}\n")
    assert policies.chosen_policy("") is not None
    with pytest.raises(RefusedError, match="no such file\ncopy "):
        policies.chosen_policy(str(tmp_path / "none.yaml"))
