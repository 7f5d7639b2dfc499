"""Images built with the vendors' files instead of stand-ins, and validated from inside."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, versions
from rdma_images.inputs import pins
from rdma_images.plan import matrix
from tests.support import checkout, real_parts

pytestmark = [pytest.mark.e2e, pytest.mark.part("engine"), pytest.mark.real]

MINUTE = 60  # seconds
FACTS = facts.load()
TARGETS = matrix.load().targets


def plugins() -> list[object]:
    """Return pairs of target and plugin version: the newest, and for one also older ones.

    The oldest is the oldest that compiles with CUDA 13, the only one that NVIDIA's wheels are a whole toolkit for:
    1.14.0 does not (PFN_cuCtxGetDevice), whether those up to 1.17.0 do is not known.
    """
    since = next(fixes.plugin for fixes in FACTS.aws_ofi_nccl.cuda_fixes if fixes.major == 13)
    available = [version for version in real_parts.tarballs("aws-ofi-nccl") if versions.at_least(version, since)]
    if not available:
        return [pytest.param("", "", marks=pytest.mark.skip(reason=real_parts.missing("aws-ofi-nccl")))]
    efa = [name for name, target in TARGETS.items() if target.fabric == "efa"]
    bundled = {release.plugin for release in FACTS.efa_installer.releases.values()} & set(available)
    some = {available[0], available[-1], *versions.newest_first(filter(None, bundled))[:1]}
    few = [("efa-nccl-tests", version) for version in sorted(some, key=versions.sort_key)]
    return [*few, *((name, available[-1]) for name in efa if name != "efa-nccl-tests")]


def write_project(folder: Path, component: str, version: str) -> dict[str, str]:
    """Write a copy of this checkout that pins the real file; return its environment."""
    tarball = real_parts.tarballs(component)[version]
    checkout.copied(folder)
    content = tarball.read_bytes()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paths, "LOCKS", folder / "locks")
        pins.save("downloads.yaml", {f"{component}-{version}": f"sha256:{hashlib.sha256(content).hexdigest()}"})
    # A tarball made of the vendor's tree with its own autotools is not the vendor's file, byte for byte.
    release = FACTS.aws_ofi_nccl.releases.get(version) if component == "aws-ofi-nccl" else None
    if release and release.sha512:
        table = folder / "facts" / "aws-ofi-nccl.yaml"
        table.write_text(table.read_text().replace(release.sha512, hashlib.sha512(content).hexdigest()))
    # Newer than any release that facts/ has: it is still the best that there is to compile.
    if component == "nccl-tests" and version not in FACTS.nccl_tests.releases:
        table = folder / "facts" / "nccl-tests.yaml"
        row = f"releases:\n  {version}: {{source: tested}}\n"
        table.write_text(table.read_text().replace("releases:\n", row, 1))
    (folder / "mirrors.yaml").write_text(f"sources:\n  {component}-{version}: {tarball}\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def stand_ins(folder: Path, environ: dict[str, str], *arguments: str) -> list[str]:
    """Return `invoke build --rehearse`, which validates too.

    The parts of the one image that a stand-in took the place of.
    """
    command = [sys.executable, "-m", "invoke", "build", "--rehearse", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=90 * MINUTE)
    assert done.returncode == 0, done.stderr[-4000:]
    (build,) = json.loads(done.stdout)["builds"]
    return [str(part) for part in build["stand_ins"]]


@pytest.mark.parametrize(("target", "version"), plugins())
def test_the_plugin_compiles_and_validates(target: str, version: str, tmp_path: Path) -> None:
    environ = write_project(tmp_path / "project", "aws-ofi-nccl", version)
    chosen = ["--set", f"aws-ofi-nccl={version}"]
    bundles = FACTS.efa_installer.releases[TARGETS[target].default["efa-installer"]].plugin
    if bundles == version:  # of the installer's own version the installer's own one is taken
        installer = next(
            name for name, release in FACTS.efa_installer.releases.items() if release.plugin not in (None, version)
        )
        chosen += ["--set", f"efa-installer={installer}"]
    assert f"aws-ofi-nccl-{version}" not in stand_ins(tmp_path / "project", environ, "--target", target, *chosen)


@pytest.mark.parametrize("version", real_parts.parameters("nccl-tests")[-1:])
@pytest.mark.parametrize("target", [name for name in TARGETS if name.endswith("nccl-tests")])
def test_nccl_tests_compile_and_validate(target: str, version: str, tmp_path: Path) -> None:
    environ = write_project(tmp_path / "project", "nccl-tests", version)
    chosen = ["--target", target, "--set", f"nccl-tests={version}"]
    assert f"nccl-tests-{version}" not in stand_ins(tmp_path / "project", environ, *chosen)
