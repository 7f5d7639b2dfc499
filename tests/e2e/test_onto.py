"""The fabric added to real images that exist, with the commands of the guides."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rdma_images.core import paths
from rdma_images.engine.docker_command import local_name
from tests.e2e import existing_bases, validated
from tests.e2e.publish_parts import Registry, registry_program

pytestmark = [pytest.mark.e2e, pytest.mark.part("images")]
GUIDES = "".join((paths.PROJECT / "docs/guides" / name).read_text("utf-8") for name in ("onto.md", "publishing.md"))
ONTO, _, PUBLISH, _ = (text.splitlines() for text in re.findall(r"(?ms)^```sh\n(.*?)^```$", GUIDES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("bases")
    with existing_bases.start(folder):
        yield folder


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    server = Registry(registry_program(), tmp_path / "registry", password=False).start()
    yield server
    server.kill()


def invoke(line: str, registries: Path | None = None, **words: str) -> str:
    """Return what a command of the guide prints."""
    typed = [words.get(word, word) for word in shlex.split(line)[1:]]
    environment = os.environ | ({"RDMA_IMAGES_REGISTRIES": str(registries)} if registries else {})
    done = subprocess.run(
        [sys.executable, "-m", "invoke", *typed], cwd=paths.PROJECT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], env=validated.engine().environ(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def blobs(name: str, folder: Path) -> list[str]:
    """Return the digests of the compressed layers of an image, as a registry would have them."""
    docker("save", "--output", str(folder / "saved.tar"), name)
    subprocess.run(["tar", "-xf", str(folder / "saved.tar"), "-C", str(folder)], check=True)
    index = json.loads((folder / "index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    manifest = json.loads((folder / "blobs" / "sha256" / digest).read_text())
    return [layer["digest"] for layer in manifest["layers"]]


def report_document(built: list[str]) -> dict[str, Any]:
    """Return the report that a build names in its lines."""
    report: dict[str, Any] = json.loads((paths.PROJECT / built[2].split()[-1]).with_suffix(".json").read_text())
    return report


def test_an_image_with_a_user_and_without_bash(folder: Path, tmp_path: Path) -> None:
    steps = existing_bases.CONDA + existing_bases.WITHOUT_BASH + existing_bases.USER
    with existing_bases.base("conda", steps, folder) as ref:
        plan, build, run = ONTO
        planned = invoke(plan, REF=ref)
        assert "added    EFA installer" in planned
        numpy = re.search(r"added    numpy (\S+): python-packages of the target, for /opt/conda/bin/python3", planned)
        assert numpy
        built = invoke(build, REF=ref).splitlines()
        name = built[0]
        try:
            assert invoke(run, REF=ref) == "1000\n"
            version = "import numpy; print(numpy.__version__)"
            assert invoke(run.replace("id -u", f'python -c "{version}"'), REF=ref) == f"{numpy[1]}\n"
            below, above = tmp_path / "below", tmp_path / "above"
            below.mkdir()
            above.mkdir()
            base = blobs(local_name(ref), below)
            assert blobs(name, above)[: len(base)] == base
            assert f"its {len(base)} layers are unchanged" in built[-1]
            assert report_document(built)["passed"]
        finally:
            docker("image", "rm", "--force", name, local_name(ref))


@pytest.mark.exhaustive  # two more images; tests/unit/plan/test_onto.py plans what is replaced
def test_a_plugin_that_comes_first_and_then_an_older_efa_are_replaced(folder: Path) -> None:
    """The second image has EFA already, as a Deep Learning Container has."""
    plan, build, _run = ONTO
    names = []
    try:
        with existing_bases.base("ngc", existing_bases.CONDA + existing_bases.NGC, folder) as ref:
            names.append(local_name(ref))
            built = invoke(f"{build} --set efa-installer=1.47.0", REF=ref).splitlines()
            names.append(built[0])
        report = report_document(built)
        checks_by_id = {check["id"]: check for check in report["checks"]}
        assert checks_by_id["plugin.found"]["actual"].startswith("/opt/amazon/ofi-nccl/")
        assert report["passed"]
        entry = json.loads(docker("image", "inspect", built[0], "--format", "{{json .Config}}"))
        assert entry["Entrypoint"] == ["/opt/nvidia/nvidia_entrypoint.sh"]
        assert entry["Shell"] == ["/bin/bash", "-c"]
        older = f"{names[-1].rpartition(':')[0]}@{docker('image', 'inspect', names[-1], '--format', '{{.Id}}')}"
        names.append(local_name(older))
        planned = invoke(plan, REF=older)
        assert "replaced EFA installer 1.47.0: by 1.50.0" in planned, planned
        built = invoke(build, REF=older).splitlines()
        names.append(built[0])
        assert report_document(built)["passed"]
    finally:
        docker("image", "rm", "--force", *names)


def test_an_image_that_was_built_elsewhere_is_published(folder: Path, registry: Registry, tmp_path: Path) -> None:
    entry = {"kind": "oci", "host": registry.host, "prefix": "training", "credentials": "none"}
    registries = tmp_path / "registries.yaml"
    registries.write_text(json.dumps({"registries": {"team-ecr": entry}}))
    with existing_bases.base("plain", existing_bases.CONDA, folder):
        for line in PUBLISH:
            invoke(line, registries, IMAGE=f"{validated.REPOSITORY}/plain:1")
        verified = invoke(f"invoke verify --image {registry.host}/training/plain:1", registries)
    assert "built elsewhere, by whom is not known" in verified
