"""Stand-ins refuse what the real thing refuses: a rehearsal that takes every flag would prove nothing."""

import shutil
import subprocess

import pytest

from rdma_images import facts, stand_ins

pytestmark = pytest.mark.skipif(
    not shutil.which("dpkg"), reason="the stand-ins compare versions with dpkg, as they run on Debian"
)

KNOWN = facts.load()


def configure(folder, version, *switches):
    copy = folder / version
    shutil.copytree(stand_ins.FOLDER / "aws-ofi-nccl", copy, dirs_exist_ok=True)
    (copy / "version.sh").write_text(f'AWS_OFI_NCCL="{version}"\n')
    return subprocess.run(["sh", copy / "configure", *switches], capture_output=True, text=True)


def install(folder, version, *flags):
    copy = folder / version
    shutil.copytree(stand_ins.FOLDER / "efa-installer", copy, dirs_exist_ok=True)
    (copy / "env.sh").write_text(f"EFA_INSTALLER_VERSION={version}\n")
    return subprocess.run(["bash", copy / "efa_installer.sh", *flags], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("version", "switch"),
    [("1.21.1", "--enable-everything"), ("1.18.0", "--enable-platform-aws"), ("1.12.1", "--enable-cudart-dynamic")],
)
def test_configure_refuses_what_its_version_has_not(tmp_path, version, switch):
    done = configure(tmp_path, version, switch)
    assert done.returncode == 1
    assert f"unrecognized option '{switch}' of aws-ofi-nccl {version}" in done.stderr


def test_configure_away_from_ec2_has_to_be_told(tmp_path):
    assert "say --enable-platform-aws" in configure(tmp_path, "1.17.1", "--disable-tests").stderr


@pytest.mark.parametrize("version", ["1.22.0", "1.21.1", "1.17.1", "1.9.1"])
def test_configure_takes_what_facts_call_it_with(tmp_path, version):
    """It goes on to look for libfabric, which is not there."""
    switches = [switch.switch for switch in KNOWN.plugin.configure if switch.holds(version)]
    done = configure(tmp_path, version, *switches, f"--with-libfabric={tmp_path}")
    assert f"no libfabric in {tmp_path}" in done.stderr


@pytest.mark.parametrize(
    ("version", "flag"), [("1.50.0", "--no-such-flag"), ("1.47.0", "--disable-ngc"), ("1.29.1", "--mpi=openmpi4")]
)
def test_the_installer_refuses_what_its_version_has_not(tmp_path, version, flag):
    done = install(tmp_path, version, "-y", "--skip-kmod", flag)
    assert done.returncode == 1
    assert f"efa_installer.sh {version} (stand-in): unrecognized option '{flag}'" in done.stderr


@pytest.mark.parametrize("version", ["1.51.0", "1.47.0", "1.29.1"])
def test_the_installer_takes_what_facts_call_it_with(tmp_path, version):
    """It goes on to look for its packages, which are not there."""
    done = install(tmp_path, version, *KNOWN.efa.flags_of(version))
    assert "unsupported operating system: no DEBS/" in done.stderr
