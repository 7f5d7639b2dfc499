"""What is read of the host's apt, in both of its formats."""

from pathlib import Path

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.engine.debian import host_apt

OS_RELEASE = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_CODENAME=bookworm\n'
DEB822 = """\
# Types: deb-src
Types: deb
URIs: http://archive.example/debian
# Suites: sid
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/own.gpg

Types: deb deb-src
URIs: http://archive.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://archive.example/switched-off
Suites: bookworm
Components: main
Enabled: no
"""


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    (tmp_path / "apt" / "sources.list.d").mkdir(parents=True)
    (tmp_path / "os-release").write_text(OS_RELEASE)
    return tmp_path


def test_deb822_gives_every_suite_of_what_is_enabled() -> None:
    archives = list(host_apt.deb822_archives(DEB822))
    assert [(a.uri, a.suite) for a in archives] == [
        ("http://archive.example/debian", "bookworm"),
        ("http://archive.example/debian", "bookworm-updates"),
        ("http://archive.example/debian-security", "bookworm-security"),
    ]
    assert archives[0].signed_by == "/usr/share/keyrings/own.gpg"
    assert archives[2].signed_by == host_apt.KEYRING


def test_a_key_inside_deb822_is_taken_whole() -> None:
    key = " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----"
    text = f"Types: deb\nURIs: http://a.example/\nSuites: bookworm\nComponents: main\nSigned-By:\n{key}\n"
    (archive,) = host_apt.deb822_archives(text)
    assert "mQINBF" in archive.signed_by
    assert archive.signed_by.endswith("-----END PGP PUBLIC KEY BLOCK-----")


def test_one_line_reads_options_and_leaves_out_sources_and_comments() -> None:
    lines = [
        "deb [arch=amd64 signed-by=/k.gpg] http://a.example/debian bookworm main non-free # ours",
        "deb-src http://a.example/debian bookworm main",
        "# deb http://a.example/debian sid main",
        "deb http://b.example/debian bookworm main",
    ]
    first, second = host_apt.list_archives(lines)
    assert first == host_apt.Archive("http://a.example/debian", "bookworm", ("main", "non-free"), "/k.gpg")
    assert second.signed_by == host_apt.KEYRING


def test_another_suite_comes_from_the_hosts_archives(etc: Path) -> None:
    (etc / "apt" / "sources.list.d" / "debian.sources").write_text(DEB822)
    debian = host_apt.host_archives(etc)
    assert debian.codename == "bookworm"
    sources = debian.sources("trixie")
    assert "URIs: http://archive.example/debian\nSuites: trixie trixie-updates\n" in sources
    assert "URIs: http://archive.example/debian-security\nSuites: trixie-security\n" in sources
    assert "Signed-By: /usr/share/keyrings/own.gpg" in sources
    assert [a.suite for a in host_apt.deb822_archives(sources)] == ["trixie", "trixie-updates", "trixie-security"]


@pytest.mark.parametrize("suite", ["sid", "unstable"])
def test_a_rolling_suite_has_no_other_beside_it(etc: Path, suite: str) -> None:
    (etc / "apt" / "sources.list.d" / "debian.sources").write_text(DEB822)
    assert [a.suite for a in host_apt.deb822_archives(host_apt.host_archives(etc).sources(suite))] == [suite]


def test_a_vendors_archive_is_not_taken_for_debians(etc: Path) -> None:
    (etc / "apt" / "sources.list").write_text("deb http://vendor.example/linux bookworm main\n")
    (etc / "apt" / "sources.list.d" / "debian.sources").write_text(DEB822)
    assert host_apt.host_archives(etc).main.uri == "http://archive.example/debian"


def test_a_host_without_security_archive_has_the_main_one_only(etc: Path) -> None:
    (etc / "apt" / "sources.list").write_text("deb http://a.example/debian bookworm main\n")
    assert "security" not in host_apt.host_archives(etc).sources("trixie")


def test_another_distribution_is_refused_with_the_fix(etc: Path) -> None:
    (etc / "os-release").write_text('PRETTY_NAME="Fedora 41"\nID=fedora\n')
    with pytest.raises(RdmaImagesError, match=r"this host is Fedora 41.*\ninstall Docker 24"):
        host_apt.host_archives(etc)


def test_sources_without_debian_are_refused_with_the_place(etc: Path) -> None:
    with pytest.raises(RdmaImagesError, match=f"{etc}/apt names no archive with the suite bookworm"):
        host_apt.host_archives(etc)
