"""The stand-ins beside the vendors' files: where they differ, the stand-in is wrong."""

import re

import pytest

from rdma_images.core import paths, versions
from tests.support import real_parts

pytestmark = pytest.mark.real

# What every configure has that autoconf, automake and libtool make, by autoconf's own names.
OF_AUTOTOOLS = {
    *("enable_option_checking", "enable_silent_rules", "enable_dependency_tracking", "enable_shared", "enable_static"),
    *("enable_fast_install", "enable_libtool_lock", "enable_largefile", "enable_maintainer_mode"),
    *("with_pic", "with_aix_soname", "with_gnu_ld", "with_sysroot"),
}


def rows(component: str, file: str) -> list[list[str]]:
    """Return the words of each line of a stand-in's table."""
    text = (paths.DATA / "dockerfiles" / "stand-ins" / component / file).read_text()
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def configure_switches(version: str) -> set[str]:
    """Return the switches of the stand-in's configure, as autoconf names them."""
    switches = [
        name
        for name, since, before in rows("aws-ofi-nccl", "switches")
        if (since == "-" or versions.at_least(version, since))
        and (before == "-" or not versions.at_least(version, before))
    ]
    plain = (re.sub("^--disable-", "--enable-", name).removeprefix("--").replace("-", "_") for name in switches)
    return {name for name in plain if name != "prefix"}


@pytest.mark.parametrize("version", real_parts.parameters("aws-ofi-nccl"))
def test_configure_takes_the_switches_of_the_real_one(version: str) -> None:
    configure = real_parts.member(real_parts.tarballs("aws-ofi-nccl")[version], "configure")
    options = re.search(r"^ac_user_opts='([^']*)'", configure, re.MULTILINE)
    assert options, "this is no configure as autoconf makes it"
    assert configure_switches(version) == set(options[1].split()) - OF_AUTOTOOLS


@pytest.mark.parametrize("version", real_parts.parameters("nccl-tests"))
def test_the_programs_are_the_real_ones(version: str) -> None:
    tarball = real_parts.tarballs("nccl-tests")[version]
    real = assigned_names(real_parts.member(tarball, "src/Makefile"), "BIN_FILES_LIST")
    ours = assigned_names((paths.DATA / "dockerfiles" / "stand-ins" / "nccl-tests" / "Makefile").read_text(), "NAMES")
    if not versions.at_least(version, "2.19.0"):
        ours -= {"alltoallv"}  # the stand-in has the programs of the newest
    assert ours == real


def assigned_names(makefile: str, variable: str) -> set[str]:
    """Return the words of a variable of a Makefile."""
    match = re.search(rf"^{variable} *:= *(.*)$", makefile, re.MULTILINE)
    assert match, f"the Makefile has no {variable}"
    return set(match[1].split())


@pytest.mark.parametrize("version", real_parts.parameters("efa-installer"))
def test_the_installer_takes_the_flags_of_the_real_one(version: str) -> None:
    script = real_parts.member(real_parts.tarballs("efa-installer")[version], "efa_installer.sh")
    switches = [
        long
        for _, long, since, *_ in rows("efa-installer", "flags")
        if since == "-" or versions.at_least(version, since)
    ]
    assert [flag for flag in switches if flag not in script] == []
