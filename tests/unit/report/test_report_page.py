"""The page of reports fetches nothing, and shows what matters."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rdma_images.inspection.network_chain import Chain, Link
from rdma_images.report import report_page
from tests.support.case_reports import CASE, FAILED, PASSED, SKIPPED, WARNED, report


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
    page = report_page.report_html((report(PASSED, FAILED, WARNED, SKIPPED), report(PASSED)))
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
    page = report_page.report_html((report(PASSED, FAILED),))
    assert '<span class="chip failed">failed</span>' in page
    assert "A rehearsal, not an image to ship" in page
    assert "2.30.7 at /opt/venv/site-packages/nvidia/nccl/lib/libnccl.so.2" in page
    assert len(re.findall("<rect ", page)) == len(CASE.measured.layers or ())


def test_the_page_counts_images_with_warnings_apart() -> None:
    page = report_page.report_html((report(PASSED), report(PASSED, WARNED), report(FAILED, WARNED)))
    assert '<p class="soft">2 passed, 1 with warnings</p>' in page
    assert '<p class="soft">2 passed</p>' in report_page.report_html((report(PASSED), report(PASSED)))


def test_the_page_of_many_images_begins_with_their_answers() -> None:
    links = {"passed": Link(name="plugin"), "failed": Link(name="plugin", fault="x"), "warned": Link(name="plugin")}
    outcomes = {"passed": "fabric", "failed": "tcp", "warned": "unknown"}
    chains = [
        Chain.model_validate(
            {"fabric": "efa", "instance": "", "outcome": outcome, "answer": f"says {outcome}", "links": [links[state]]}
        )
        for state, outcome in outcomes.items()
    ]
    page = report_page.report_html(
        [replace(report(PASSED), ref=f"a/b:{n}", chain=chain) for n, chain in enumerate(chains)]
    )
    answers, _, _ = page.partition("Every check of every image")
    assert re.findall(r'class="answer (\w+)">.*<br>says (\w+)</p>', answers) == list(outcomes.items())


@pytest.mark.parametrize(
    ("update", "title"),
    [
        ({}, "b"),
        ({"requested_fabric": "ib"}, "b on InfiniBand"),
        ({"requested_fabric": "efa", "instance": "p5.48xlarge"}, "b on p5.48xlarge"),
        ({"requested_fabric": "none"}, "b without a fabric"),
    ],
)
def test_the_page_names_the_scenario(update: dict[str, str], title: str) -> None:
    case = CASE.model_copy(update={"expected": CASE.expected.model_copy(update=update)})
    with_scenario = replace(report(PASSED), ref="rdma-images/b:c", inspection=case)
    assert f"<h2>{title} <span" in report_page.report_html([with_scenario, report(PASSED)])


def test_the_page_has_the_scenarios_of_an_image_beside_it() -> None:
    case = CASE.model_copy(update={"expected": CASE.expected.model_copy(update={"requested_fabric": "ib"})})
    scenario = replace(report(FAILED), ref="rdma-images/b:c", inspection=case)
    images = [replace(report(PASSED), ref=ref) for ref in ("rdma-images/b:c", "rdma-images/b:d")]
    page = report_page.report_html([*images, scenario])
    assert re.findall(r"<h2>([^<]*) <span[^>]*>(\w)", page) == [("b", "c"), ("b on InfiniBand", "c"), ("b", "d")]
    assert "<h1>2 images, measured, and judged in 1 other scenario</h1>" in page
    assert '<p class="soft">2 passed</p>' in page


@pytest.mark.parametrize(
    ("ref", "title", "versions"),
    [
        ("rdma-images/b:c", "b", "c"),
        ("localhost:5000/team/b", "localhost:5000/team/b", ""),
        (f"team/b@sha256:{'ab' * 32}", "team/b", "sha256:abababababab"),
        ("ssh://node", "ssh://node", ""),
    ],
)
def test_the_page_names_what_was_measured(ref: str, title: str, versions: str) -> None:
    page = report_page.report_html([replace(report(PASSED), ref=ref, image_id=None), report(PASSED)])
    assert f'<h2>{title} <span class="soft" style="font-weight:400">{versions}</span></h2>' in page


def test_the_page_says_what_does_not_work() -> None:
    case = CASE.model_dump()
    case["subject"]["labels"]["io.rdma-images.limit.torch-compile"] = "torch.compile: no compiler"
    page = report_page.report_html([replace(report(PASSED), inspection=type(CASE).model_validate(case))])
    assert '<dt>does not work</dt><dd class="mono">torch.compile: no compiler</dd>' in page
