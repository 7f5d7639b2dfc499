"""Stand-ins refuse what the real thing refuses, else a rehearsal proves nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import stand_ins
from rdma_images.core import paths

pytestmark = pytest.mark.skipif(
    not shutil.which("dpkg"), reason="the stand-ins compare versions with dpkg, as they run on Debian"
)

FACTS = facts.load()


def configure(folder: Path, version: str, *switches: str) -> subprocess.CompletedProcess[str]:
    copy = folder / version
    shutil.copytree(paths.DATA / "dockerfiles" / "stand-ins" / "aws-ofi-nccl", copy, dirs_exist_ok=True)
    (copy / "version.sh").write_text(f'AWS_OFI_NCCL="{version}"\n')
    return subprocess.run(["sh", copy / "configure", *switches], capture_output=True, text=True)


def install(folder: Path, version: str, *flags: str) -> subprocess.CompletedProcess[str]:
    copy = folder / version
    shutil.copytree(paths.DATA / "dockerfiles" / "stand-ins" / "efa-installer", copy, dirs_exist_ok=True)
    (copy / "env.sh").write_text(f"EFA_INSTALLER_VERSION={version}\n")
    return subprocess.run(["bash", copy / "efa_installer.sh", *flags], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("version", "switch"),
    [("1.21.1", "--enable-everything"), ("1.5.0", "--enable-platform-aws"), ("1.12.1", "--enable-cudart-dynamic")],
)
def test_configure_refuses_what_its_version_has_not(tmp_path: Path, version: str, switch: str) -> None:
    completed = configure(tmp_path, version, switch)
    assert completed.returncode == 1
    assert f"unrecognized option '{switch}' of aws-ofi-nccl {version}" in completed.stderr


def prefixes(folder: Path) -> tuple[str, str, str]:
    """Folders that hold what configure looks for, as its switches name them."""
    for file in (
        "include/rdma/fabric.h",
        "lib/libfabric.so",
        "lib64/libcudart_static.a",
        "include/cuda_runtime.h",
        "include/hwloc.h",
    ):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return f"--with-libfabric={folder}", f"--with-cuda={folder}", f"--with-hwloc={folder}"


@pytest.mark.parametrize(
    ("version", "switches", "expected"),
    [  # each as the real configure of that version said it
        ("1.14.0", (), "* Platform-specific optimizations: none"),
        ("1.14.0", ("--enable-platform-aws",), "* Platform-specific optimizations: AWS"),
        ("1.20.0", (), "* Enabled Platforms: Default"),
        ("1.21.1", (), "* Enabled Platforms: Default"),
        ("1.21.1", ("--enable-platform-aws",), "* Enabled Platforms: Default, AWS"),
    ],
)
def test_configure_says_which_platforms_it_builds_in(
    tmp_path: Path, version: str, switches: tuple[str, ...], expected: str
) -> None:
    completed = configure(tmp_path, version, *prefixes(tmp_path / "prefix"), *switches)
    assert expected in completed.stdout.splitlines(), completed.stderr


@pytest.mark.parametrize("version", ["1.22.0", "1.21.1", "1.17.1", "1.9.1"])
def test_configure_takes_what_facts_call_it_with(tmp_path: Path, version: str) -> None:
    """It goes on to look for libfabric, which is not there."""
    switches = [switch.value for switch in FACTS.aws_ofi_nccl.configure if switch.holds(version)]
    completed = configure(tmp_path, version, *switches, f"--with-libfabric={tmp_path}")
    assert f"no libfabric in {tmp_path}" in completed.stderr


@pytest.mark.parametrize(
    ("version", "flag"), [("1.50.0", "--no-such-flag"), ("1.47.0", "--disable-ngc"), ("1.29.1", "--mpi=openmpi4")]
)
def test_the_installer_refuses_what_its_version_has_not(tmp_path: Path, version: str, flag: str) -> None:
    completed = install(tmp_path, version, "-y", "--skip-kmod", flag)
    assert completed.returncode == 1
    assert f"efa_installer.sh {version} (stand-in): unrecognized option '{flag}'" in completed.stderr


@pytest.mark.parametrize("version", ["1.51.0", "1.47.0", "1.29.1"])
def test_the_installer_takes_what_facts_call_it_with(tmp_path: Path, version: str) -> None:
    """It goes on to look for its packages, which are not there."""
    completed = install(tmp_path, version, *map(str, FACTS.efa_installer.flags_for(version)))
    assert "unsupported operating system: no DEBS/" in completed.stderr


def test_the_stand_in_of_a_cuda_base_sets_what_facts_know_of_any() -> None:
    text = (paths.DATA / "dockerfiles" / "stand-ins" / "cuda-base" / "Dockerfile").read_text()
    for base in FACTS.bases.bases.values():
        for name in base.environment:
            assert f"{name}=${name}" in text
        assert not base.cuda or f"AS entered-by-{base.entrypoint or 'none'}" in text


@pytest.mark.parametrize("component", ["cuda-base", "efa-installer", "aws-ofi-nccl", "erdma-apt-key", "nccl-tests"])
def test_a_change_of_a_stand_in_changes_the_inputs(
    component: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    folder = tmp_path / "dockerfiles" / "stand-ins"
    shutil.copytree(paths.DATA / "dockerfiles" / "stand-ins", folder)
    monkeypatch.setattr(paths, "DATA", tmp_path)
    before = stand_ins.combined_digest([component])
    (folder / component / "Dockerfile").write_text("FROM scratch\n")
    assert stand_ins.combined_digest([component]) != before
