"""The report: read back as it was written, a page that fetches nothing, a table that shows what failed."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from rdma_images import report as reports
from rdma_images.cli.output import show
from rdma_images.core.check import Check
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROJECT
from rdma_images.datapath.checks import hardware_checks
from rdma_images.inspection.chain import Chain, Link
from rdma_images.inspection.inspection import Expected
from rdma_images.inspection.report import SCHEMA, Report, decode_report
from rdma_images.report import report_page as page_of
from rdma_images.report.checks_table import findings, first_line, summary_line
from rdma_images.report.report_files import report_folder
from tests.support.case_parts import recorded

CASE = recorded()
PASSED = Check("nccl.single", "one libnccl is in the image", "static", "error", "passed", "one file", "/x/libnccl.so.2")
FAILED = replace(PASSED, id="plugin.found", outcome="failed", actual="<script>alert(1)</script>", fix="link it")
WARNED = replace(FAILED, id="size.budget", severity="warning")
SKIPPED = replace(PASSED, id="device.mtu", outcome="skipped", reason="no device", actual="")


def report(*checks: Check) -> Report:
    return Report(
        "a/b:c", "sha256:1", "sha256:2", None, ("efa-installer-1.50.0",), "2026-11-21T09:00:00+00:00", 3.2, checks, CASE
    )


def test_written_and_read_back(tmp_path: Path) -> None:
    saved = report(PASSED, SKIPPED)
    path = reports.write(saved, tmp_path)
    assert reports.REPORT.load(path) == saved
    assert json.loads(path.read_text())["passed"] is True
    assert {p.name for p in tmp_path.iterdir()} == {"report.json", "report.html"}


def test_the_schema_in_docs_describes_what_is_written(tmp_path: Path) -> None:
    schema = json.loads((PROJECT / "docs" / "reference" / "report-schema.json").read_text())
    document = json.loads(reports.write(report(PASSED, FAILED), tmp_path).read_text())
    assert set(schema["properties"]) == set(document) == set(schema["required"])
    check = schema["properties"]["checks"]["items"]
    assert set(check["properties"]) == set(document["checks"][0]) == set(check["required"])
    assert schema["properties"]["schema"]["const"] == document["schema"] == SCHEMA


def test_a_cached_report_says_so(tmp_path: Path) -> None:
    junit, folder = tmp_path / "report.xml", tmp_path / "out"
    folder.mkdir()
    junit.write_text("<testsuites/>")
    assert reports.publish_cached(report(PASSED), junit, folder).reused
    read = reports.REPORT.load(folder / "report.json")
    assert read
    assert read.reused


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}', '{"schema": 1}'])
def test_what_is_no_report(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    assert reports.REPORT.load(path) is None
    path.write_text(text)
    with pytest.raises(RdmaImagesError, match="invoke validate"):
        reports.REPORT.load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("seconds", "x"), ("checks", [{"id": 1}]), ("checks", 5), ("rehearsal", "all"), ("schema", 3), ("facts", [])],
)
def test_a_damaged_report_is_a_sentence(tmp_path: Path, key: str, value: object) -> None:
    path = reports.write(report(PASSED), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(RdmaImagesError, match="invoke validate"):
        reports.REPORT.load(path)


def test_an_outcome_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    path = reports.write(report(PASSED), tmp_path)
    path.write_text(path.read_text().replace('"outcome": "passed"', '"outcome": "splendid"'))
    with pytest.raises(RdmaImagesError, match=r"checks\.0\.outcome"):
        reports.REPORT.load(path)
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(RdmaImagesError, match="cannot be read"):
        reports.REPORT.load(path)


@pytest.mark.parametrize("odd", [5, "x", [], [5], [{"bytes": "x"}], {"bytes": 10**400}, {"a": 5}])
@pytest.mark.parametrize("probe", ["layers", "torch", "tree", "tools", "system"])
def test_a_measurement_of_another_form_is_left_out_and_named(tmp_path: Path, probe: str, odd: object) -> None:
    text = json.loads(reports.write(report(PASSED), tmp_path).read_text())
    text["facts"]["measured"][probe] = odd
    new_report = decode_report(text)
    assert new_report.checks == (PASSED,)
    assert new_report.inspection
    assert getattr(new_report.inspection.measured, probe) in (None, {}, ())
    if odd not in ([], {}):
        assert "another form" in new_report.inspection.measured.missing[probe]
    assert "nccl.single" in page_of.report_html((new_report,))


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


class LinkParser(HTMLParser):
    """Collects what a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.links += [tag] if tag in ("script", "link", "img", "iframe", "object") else []
        self.links += [name for name in named if name in ("src", "href", "onclick", "onload")]
        self.ids += [named["id"]] if "id" in named else []  # type: ignore[list-item]
        self.targets += [named["popovertarget"]] if "popovertarget" in named else []  # type: ignore[list-item]


def test_the_page_fetches_and_runs_nothing() -> None:
    page = page_of.report_html((report(PASSED, FAILED, WARNED, SKIPPED), report(PASSED)))
    links = LinkParser()
    links.feed(page)
    assert links.links == []
    assert "url(" not in page
    assert "@import" not in page
    assert "&lt;script&gt;" in page
    assert len(links.ids) == len(set(links.ids))
    assert set(links.targets) <= set(links.ids)
    assert len(links.targets) == 5


def test_the_page_shows_what_matters() -> None:
    page = page_of.report_html((report(PASSED, FAILED),))
    assert '<span class="chip failed">failed</span>' in page
    assert "A rehearsal, not an image to ship" in page
    assert "2.30.7 at /opt/venv/site-packages/nvidia/nccl/lib/libnccl.so.2" in page
    assert len(re.findall("<rect ", page)) == len(CASE.measured.layers or ())


def test_the_page_counts_images_with_warnings_apart() -> None:
    page = page_of.report_html((report(PASSED), report(PASSED, WARNED), report(FAILED, WARNED)))
    assert '<p class="soft">2 passed, 1 with warnings</p>' in page
    assert '<p class="soft">2 passed</p>' in page_of.report_html((report(PASSED), report(PASSED)))


def test_the_page_of_many_images_begins_with_their_answers() -> None:
    links = {"passed": Link(name="plugin"), "failed": Link(name="plugin", fault="x"), "warned": Link(name="plugin")}
    outcomes = {"passed": "fabric", "failed": "tcp", "warned": "unknown"}
    chains = [
        Chain.model_validate(
            {"fabric": "efa", "instance": "", "outcome": outcome, "answer": f"says {outcome}", "links": [links[state]]}
        )
        for state, outcome in outcomes.items()
    ]
    page = page_of.report_html([replace(report(PASSED), ref=f"a/b:{n}", chain=chain) for n, chain in enumerate(chains)])
    answers, _, _ = page.partition("Every check of every image")
    assert re.findall(r'class="answer (\w+)">.*<br>says (\w+)</p>', answers) == list(outcomes.items())


def test_a_question_does_not_take_the_place_of_the_evidence() -> None:
    names = [
        report_folder("a/b:c").name,
        report_folder("a/b:c", fabric="ib").name,
        report_folder("a/b:c", instance="p5.48xlarge").name,
        report_folder("a/b:c", host="ssh://n", fabric="ib").name,
    ]
    assert names == ["a-b-c", "a-b-c@ib", "a-b-c@p5.48xlarge", "a-b-c@ssh---n@ib"]


@pytest.mark.parametrize(
    ("update", "title"),
    [
        ({}, "b"),
        ({"question": "ib"}, "b on InfiniBand"),
        ({"question": "efa", "instance": "p5.48xlarge"}, "b on p5.48xlarge"),
        ({"question": "none"}, "b without a fabric"),
    ],
)
def test_the_page_names_the_question(update: dict[str, str], title: str) -> None:
    case = CASE.model_copy(update={"expected": CASE.expected.model_copy(update=update)})
    with_question = replace(report(PASSED), ref="rdma-images/b:c", inspection=case)
    assert f"<h2>{title} <span" in page_of.report_html([with_question, report(PASSED)])


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
        report(PASSED), inspection=CASE.model_copy(update={"expected": Expected(fabric=None, because="no sign")})
    )
    assert summary_line(for_no_fabric).endswith("; not checked for EFA or eRDMA: no sign")
    assert "EFA" not in summary_line(report(PASSED))
    assert "EFA" not in summary_line(replace(report(PASSED), inspection=None))


def test_what_is_the_images_own_comes_before_the_faults_of_a_version() -> None:
    by_version = replace(WARNED, id="nccl.broken")
    error = replace(FAILED, id="plugin.broken")
    ordered = findings(report(by_version, WARNED, error, PASSED, FAILED))
    assert [check.id for check in ordered] == ["plugin.found", "plugin.broken", "size.budget", "nccl.broken"]


def test_a_warning_alone_passes() -> None:
    assert report(PASSED, WARNED).passed
    assert not report(PASSED, FAILED).passed


def test_every_subject_of_the_page_has_a_title_and_a_place() -> None:
    sources = [path.read_text() for path in sorted((PROJECT / "validators").glob("test_*.py"))]
    validators = {id_ for source in sources for id_ in re.findall(r'\bvalidator\(\s*"([a-z.-]+)"', source)}
    assert len(validators) > 90
    subjects = {id_.partition(".")[0] for id_ in validators | {check.id for check in hardware_checks(None)}}
    assert subjects == set(page_of.SUBJECTS)


def test_the_page_says_what_does_not_work() -> None:
    case = CASE.model_dump()
    case["subject"]["labels"]["io.rdma-images.limit.torch-compile"] = "torch.compile: no compiler"
    page = page_of.report_html([replace(report(PASSED), inspection=type(CASE).model_validate(case))])
    assert '<dt>does not work</dt><dd class="mono">torch.compile: no compiler</dd>' in page


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("short", "short"),
        ("a" * 50, "a" * 39 + "…"),
        ("one fault; " + "b" * 40, "one fault; and 1 more"),
        ("one fault; FI_PROVIDER=tcp: " + "b" * 40, "one fault; and FI_PROVIDER=tcp"),
        ("one fault; /opt/libx.so needs " + "b" * 40, "one fault; and /opt/libx.so"),
        ("one fault; FI_PROVIDER=tcp: " + "b" * 40 + "; d", "one fault; and 2 more"),
        ("one fault; set by the entry point: NCCL_ALGO=Tree: " + "b" * 40, "one fault; and NCCL_ALGO=Tree"),
        ("one fault; /etc/nccl.conf:2: NCCL_ALGO=Tree: " + "b" * 40, "one fault; and NCCL_ALGO=Tree"),
        ("one fault; NCCL_ALGO=Tree: slow, " + "b" * 40, "one fault; NCCL_ALGO=Tree: slow"),
        ("nixl 1.0: a fault; nixl 1.0: " + "b" * 40, "nixl 1.0: a fault; and 1 more"),
        ("one fault; two faults; " + "b" * 40 + "; d", "one fault; two faults; and 2 more"),
        ("/opt/venv/lib/sgl_kernel/ops.so cannot load", "/opt/…/sgl_kernel/ops.so cannot load"),
        ("/opt/venv/lib/a_long_folder/operators.so cannot load", "/opt/…/operators.so cannot load"),
        ("b" * 40 + "; c", "b" * 27 + "…; and 1 more"),
    ],
)
def test_a_first_line_has_what_fits_and_how_much_more_there_is(text: str, line: str) -> None:
    assert first_line(text, 40) == line
    assert len(line) <= 40
