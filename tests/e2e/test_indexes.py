"""Two indexes with the same package name: each package comes from the one named for it."""

import base64
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.engine import private
from tests.support import checkout, source_index

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(private.obstacle() is not None, reason=str(private.obstacle()))]

TARGET = "of-two-indexes"
INDEXES = """
indexes:
  company: {{address: "{address}", packages: [our-models, our-app]}}

targets:
"""
ROWS = f"""
  {TARGET}:
    summary: PyTorch with packages of a company
    fabric: efa
    template: efa-pytorch
    python-packages: [numpy, our-app]
    default:
      base: debian13
      pytorch: 2.15.0
      efa-installer: 1.50.0
"""


def wheel(name: str, version: str, text: str, requires: str = "") -> tuple[str, bytes]:
    """Return the file name and the content of a wheel with one module."""
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{module}.py": text,
        f"{about}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(file)},{len(file)}" for path, file in files.items()]
    record = "\n".join([*lines, f"{about}/RECORD,,", ""])
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, file in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(path, file)
    return f"{module}-{version}-py3-none-any.whl", content.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


def invoke(project: Path, *words: str) -> str:
    command = [sys.executable, "-m", "invoke", *words]
    environ = os.environ | {"PYTHONPATH": str(project)}
    done = subprocess.run(command, cwd=project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def public_requests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[str]]]:
    """Yield a checkout with a built target, and the requests that the public index had."""
    folder = checkout.copied(tmp_path_factory.mktemp("indexes") / "project")
    evil = {name: wheel(name, "9.9", "ORIGIN = 'public'\n") for name in ("our-models", "our-app")}
    ours = {
        "our-models": wheel("our-models", "1.0", "ORIGIN = 'company'\n"),
        "our-app": wheel("our-app", "1.2", "from our_models import ORIGIN\n", requires="our-models"),
    }
    with (
        source_index.serve_index(evil) as (public, requests),
        source_index.serve_index(ours, is_public=False) as (company, _),
    ):
        matrix = folder / "matrix.yaml"
        matrix.write_text(matrix.read_text().replace("\ntargets:\n", INDEXES.format(address=company)) + ROWS)
        (folder / "mirrors.yaml").write_text(f"sources:\n  index: {public}/\n")
        invoke(folder, "build", "--target", TARGET, "--rehearse", "--no-validate")
        yield folder, requests
    environ = engines.ensure().environ()
    listing = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"rdma-images/{TARGET}"]
    names = subprocess.run(listing, env=environ, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "image", "rm", *names], env=environ, capture_output=True, check=True)


def test_the_image_has_the_package_of_the_index_that_is_named_for_it(public_requests: tuple[Path, list[str]]) -> None:
    folder, _ = public_requests
    program = "import our_app; print(our_app.ORIGIN)"
    assert invoke(folder, "run", "--target", TARGET, "--", "python", "-c", program) == "company\n"


def test_the_other_index_is_not_asked_for_a_package_of_the_target(public_requests: tuple[Path, list[str]]) -> None:
    _, requests = public_requests
    assert any("numpy" in path for path in requests)
    assert not [path for path in requests if "our-app" in path or "our_app" in path]
