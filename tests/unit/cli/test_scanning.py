"""`invoke scan` as it is typed, on an image that was built here."""

import json
import os
from pathlib import Path

import pytest
from invoke.exceptions import Exit

import tasks
from rdma_images import facts
from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.plan import matrix, planner
from rdma_images.publish.evidence.scan_result import SCAN
from rdma_images.report.report_files import REPORT
from tests.support.published_image import approve
from tests.support.scan_parts import DIGEST, OTHER, trivy, write_report


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")
    (image,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    item = approve(image, DIGEST)
    BUILD_FILE.write(image.id, item.build)
    REPORT.write(image.id, item.report)
    return image


def policy_file(folder: Path, text: str) -> str:
    path = folder / "policy.yaml"
    path.write_text(text)
    return str(path)


def scan(**options: object) -> None:
    tasks.ns["scan"].body(target=["efa-pytorch"], **options)


def test_without_a_policy_everything_is_shown(image: Image, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scan(report=str(write_report(tmp_path, trivy())))
    output = capsys.readouterr().out
    assert "CVE-2026-1001  libexample1  1.0-1      1.0-1+deb13u1" in output
    assert "no policy.yaml: nothing is refused" in output
    stored = SCAN.read(image.id)
    assert stored is not None
    assert stored.counts == {"critical": 1, "medium": 1}


@pytest.mark.usefixtures("image")
def test_programs_get_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    until = "reason: not started, owner: team@example.com, until: 2999-01-31"
    text = f"grace-days: {{critical: 14}}\nmax-scan-age: 3650\nexceptions:\n  - {{id: CVE-2026-1001, {until}}}\n"
    scan(report=str(write_report(tmp_path, trivy())), policy=policy_file(tmp_path, text), json=True)
    (document,) = json.loads(capsys.readouterr().out)
    assert [entry["outcome"] for entry in document["vulnerabilities"]] == ["accepted", "not refused"]


@pytest.mark.usefixtures("image")
def test_what_is_refused_ends_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = policy_file(tmp_path, "grace-days: {critical: 14}\nmax-scan-age: 3650\n")
    with pytest.raises(Exit) as ended:
        scan(report=str(write_report(tmp_path, trivy())), policy=policy)
    assert ended.value.code == 1
    output = capsys.readouterr().out
    assert "published 2026-10-01, grace of 14 days" in output
    assert "CVE-2026-1002" not in output


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "no scanner is on the PATH: trivy and grype are not installed\ninstall Trivy"),
        ({"report": "other.json"}, f"is about another image .*{OTHER}"),
    ],
)
def test_a_mistake_is_one_sentence(
    options: dict[str, object], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("rdma_images.engine.ensure", lambda _: None)
    write_report(tmp_path, trivy(OTHER), "other.json")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exit, match=sentence) as ended:
        scan(**options)
    assert ended.value.code == 2


def test_the_scanner_on_the_path_is_run(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A double of Trivy: it prints a document of Trivy's form, and checks how it was started."""
    report = write_report(tmp_path, trivy())
    script = '#!/bin/sh\n[ "$1 $DOCKER_HOST" = "image unix:///engine" ] || exit 3\nfor ref; do :; done\n'
    script += f'case "$ref" in *@{DIGEST}) cat {report} ;; *) exit 4 ;; esac\n'
    program = tmp_path / "trivy"
    program.write_text(script)
    program.chmod(0o755)

    class Engine:
        host = "unix:///engine"

        def environ(self) -> dict[str, str]:
            return dict(os.environ)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("rdma_images.engine.ensure", lambda _: Engine())
    scan()
    assert SCAN.read(image.id) is not None
    program.write_text("#!/bin/sh\necho no database >&2\nexit 1\n")
    with pytest.raises(Exit, match="failed: no database\nrun this command"):
        scan()
