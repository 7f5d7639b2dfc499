"""The table of checks: what failed first, and nothing that a terminal would carry out."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from rdma_images import report as reports
from rdma_images.cli.output import show
from rdma_images.inspection.inspection import Expected
from rdma_images.report.checks_table import findings, fitting_parts, summary_line
from tests.support.case_reports import CASE, FAILED, PASSED, SKIPPED, WARNED, report

HOSTILE = "\x1b[2J\x1b]0;mine\x07\x9b31m\x00\u202egnp\nok  nccl.found  fine"


def test_nothing_reaches_a_terminal_that_does_more_than_stand_there() -> None:
    odd = [
        replace(FAILED, actual=HOSTILE, expected=HOSTILE, fix=HOSTILE),
        replace(SKIPPED, reason=HOSTILE),
        replace(PASSED, actual=HOSTILE),
    ]
    output = io.StringIO()
    console = Console(width=100, file=output)
    console.print(reports.report_table(report(*odd)))
    text = output.getvalue()
    assert all(c.isprintable() or c == "\n" for c in text)
    assert r"\x1b[2J" in text
    assert "\nok  nccl.found  fine" not in text


def table_text(width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(reports.report_table(report(PASSED, FAILED, WARNED, SKIPPED)))
    return console.export_text()


def test_the_table() -> None:
    text = table_text()
    assert "plugin.found" in text
    assert "link it" in text
    assert "stand-ins took the place of efa-installer-1.50.0" in text
    assert "a/b:c: 1 passed, 1 failed (plugin.found), 1 warned (size.budget), 1 skipped, in 3.2 s" in text


@pytest.mark.parametrize(
    ("torch", "wheels", "reason"),
    [
        (None, {}, "neither libnccl.so.2 nor torch is installed"),
        (None, {"torch": "2.15.0"}, "torch 2.15.0 is installed, and no libnccl.so.2"),
        ({"version": "2.15.0+cpu", "cuda": None}, {}, "torch 2.15.0+cpu is built without CUDA"),
    ],
)
def test_without_nccl_the_table_begins_with_that(
    torch: dict[str, str | None] | None, wheels: dict[str, str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = CASE.measured
    assert measured.torch
    assert measured.packages
    update = {
        "torch": torch and measured.torch.model_copy(update=torch),
        "packages": measured.packages.model_copy(update={"wheels": {"/env": wheels}}),
    }
    without = replace(
        report(PASSED), inspection=CASE.model_copy(update={"measured": measured.model_copy(update=update)})
    )
    show(reports.report_table(without))
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"There is no NCCL that could use a network: {reason}"


def test_the_table_says_that_a_report_is_cached() -> None:
    assert "kept from" not in summary_line(report(PASSED))
    assert "kept from 2026-11-21T09:00:00+00:00" in summary_line(replace(report(PASSED), reused=True))


def test_the_last_line_is_one_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    reused_report = replace(report(PASSED, WARNED), ref="rdma-images/" + "long-name-" * 20, reused=True)
    show(reports.report_table(reused_report))
    assert capsys.readouterr().out.splitlines()[-1] == summary_line(reused_report)


def test_the_sum_says_that_an_image_is_for_neither_fabric() -> None:
    for_no_fabric = replace(
        report(PASSED), inspection=CASE.model_copy(update={"expected": Expected(fabric=None, reason="no sign")})
    )
    assert summary_line(for_no_fabric).endswith("; not checked for EFA or eRDMA: no sign")
    assert "EFA" not in summary_line(report(PASSED))
    assert "EFA" not in summary_line(replace(report(PASSED), inspection=None))


def test_what_is_the_images_own_comes_before_the_faults_of_a_version() -> None:
    by_version = replace(WARNED, id="nccl.broken")
    error = replace(FAILED, id="plugin.broken")
    ordered = findings(report(by_version, WARNED, error, PASSED, FAILED))
    assert [check.id for check in ordered] == ["plugin.found", "plugin.broken", "size.budget", "nccl.broken"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("short", "short"),
        ("a" * 50, "a" * 50),
        ("one fault; " + "b" * 40, "one fault; and 1 more"),
        ("nixl 1.0: a fault; nixl 1.0: " + "b" * 40, "nixl 1.0: a fault; and 1 more"),
        ("one fault; two faults; " + "b" * 40 + "; d", "one fault; two faults; and 2 more"),
        ("b" * 40 + "; c", "b" * 40 + "; and 1 more"),
        ("one fault; two faults; c", "one fault; two faults; c"),
    ],
)
def test_a_first_line_has_what_fits_and_how_much_more_there_is(text: str, line: str) -> None:
    assert fitting_parts(text, 40) == line
