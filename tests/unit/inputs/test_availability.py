"""Preflight asks all sources at once, explains failures, and replaces only those."""

import io
import ssl
from pathlib import Path

import pytest
from rich.console import Console

from rdma_images import facts
from rdma_images.components.aws_ofi_nccl import PluginDetails
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.image import Component, Image
from rdma_images.core.source import UNPINNED, Source, Supply
from rdma_images.engine.debian import bootstrap, host_apt
from rdma_images.inputs import availability, download_store, reachable, sources
from rdma_images.inputs.mirrors import Mirrors
from tests.support.images import planned_image
from tests.support.loopback import Answer, Site

CLOSED = "http://127.0.0.1:9"  # discard: nothing listens there


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    # Patient, for a busy machine; a test of the patience itself shortens it.
    monkeypatch.setattr(reachable, "TIMEOUT_SECONDS", (30, 30))


def mirrors(**addresses: str) -> Mirrors:
    by_variable = {name: (address, "mirrors.yaml:1") for name, address in addresses.items()}
    return Mirrors(Path(ssl.get_default_verify_paths().openssl_cafile), by_variable)


def download(address: str, name: str = "efa-installer", pin: str = "sha256:" + "0" * 64) -> Source:
    return Source(f"{name}-1.0", name, "download", address, pin, context=name)


def only(source: Source, rehearse: bool = False, **addresses: str) -> Supply:
    return availability.find_supplies([source], mirrors(**addresses), rehearse)[0]


def test_a_download_that_is_there_says_how_large_it_is(site: Site) -> None:
    site.answers["/tool"] = Answer(bytes(2_500_000))
    supply = only(download(f"{site.address}/tool"))
    assert (supply.via, supply.reachable, supply.detail) == ("upstream", True, "2.50 MB")


@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_is_asked_for_one_byte(site: Site, ranges: bool) -> None:
    site.answers["/tool"] = Answer(bytes(1000), ranges=ranges)
    assert only(download(f"{site.address}/tool")).detail == "1.00 kB"
    (request,) = site.requests
    assert (request.method, request.headers["range"]) == ("GET", "bytes=0-0")


def test_a_host_that_says_nothing_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "TIMEOUT_SECONDS", (0.5, 0.5))
    site.answers["/tool"] = Answer(silent_for=30)
    assert only(download(f"{site.address}/tool")).detail == "no answer in time"


def test_what_does_not_answer_or_is_not_there_says_why(site: Site) -> None:
    site.answers["/tool"] = Answer(status=404)
    assert only(download(f"{site.address}/tool")).detail == "answered 404 Not Found"
    assert only(download(f"{CLOSED}/tool")).detail == "connection refused"
    assert only(download("http://nobody.invalid/tool")).detail == "unknown host"
    assert only(download("/none/tool")).detail == "/none/tool: No such file or directory"


def test_what_was_verified_before_needs_no_answer(tmp_path: Path) -> None:
    source = download(f"{CLOSED}/tool")
    (tmp_path / "tool").write_bytes(b"content")
    cached = download_store.save(source, tmp_path / "tool", "tool")
    supply = only(source)
    assert (supply.via, supply.address, supply.reachable) == ("cache", str(cached), True)


def test_a_rehearsal_replaces_what_is_out_of_reach_and_only_that(site: Site) -> None:
    missing, available = download(f"{CLOSED}/tool"), download(f"{site.address}/tool")
    site.answers["/tool"] = Answer(b"x")
    assert only(missing, rehearse=False).via == "upstream"
    supply = only(missing, rehearse=True)
    assert (supply.via, supply.address, supply.reachable) == ("stand-in", "dockerfiles/stand-ins/efa-installer", True)
    assert "connection refused" in supply.detail
    assert availability.stand_in_ids([supply, only(available, rehearse=True)]) == ("efa-installer-1.0",)
    assert only(available, rehearse=True).via == "upstream"


def test_a_rehearsal_cannot_replace_what_has_no_stand_in() -> None:
    supply = only(download(f"{CLOSED}/tool", "no-such-thing"), rehearse=True)
    assert (supply.via, supply.reachable) == ("upstream", False)


def test_what_nobody_pinned_is_not_to_be_had(site: Site) -> None:
    supply = only(download(f"{site.address}/tool", pin=UNPINNED))
    assert (supply.reachable, supply.detail) == (False, "not locked")
    with pytest.raises(availability.UnreachableSourcesError, match="`invoke lock`"):
        availability.require_reachable([supply])


def test_the_error_names_every_missing_source_and_the_ways_on(site: Site) -> None:
    site.answers["/tool"] = Answer(b"x")
    source = [download(f"{site.address}/tool", "tool"), download(f"{CLOSED}/efa")]
    supplies = availability.find_supplies(source, mirrors())
    with pytest.raises(availability.UnreachableSourcesError) as error:
        availability.require_reachable(supplies)
    assert error.value.exit_code == 2
    assert error.value.supplies == supplies
    text = str(error.value)
    assert text.startswith("1 unreachable of 2 sources:\n")
    assert f"efa-installer-1.0: {CLOSED}/efa: connection refused" in text
    assert "mirrors.yaml" in text
    assert "--rehearse" in text
    availability.require_reachable(supplies[:1])


def test_what_is_not_locked_is_counted_apart_from_what_is_unreachable(site: Site) -> None:
    sources = [download(f"{site.address}/tool", "tool", pin=UNPINNED), download(f"{CLOSED}/efa")]
    with pytest.raises(availability.UnreachableSourcesError) as error:
        availability.require_reachable(availability.find_supplies(sources, mirrors()))
    assert str(error.value).startswith("1 unreachable, 1 not locked of 2 sources:\n")


def test_the_table_shows_every_source() -> None:
    supplies = availability.find_supplies([download(f"{CLOSED}/tool", "tool")] * 2, mirrors())
    output = io.StringIO()
    Console(file=output, width=200).print(availability.supply_table(supplies))
    assert output.getvalue().count("tool-1.0") == 1
    assert "connection refused" in output.getvalue()


@pytest.fixture
def debian_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a host whose apt uses the test's own archive."""
    archives = [
        host_apt.Archive(f"{site.address}/debian", "bookworm", ("main",), host_apt.KEYRING),
        host_apt.Archive(f"{site.address}/security", "bookworm-security", ("main",), host_apt.KEYRING),
    ]
    monkeypatch.setattr(host_apt, "host_archives", lambda: host_apt.DebianArchives("bookworm", *archives))
    site.answers["/debian/dists/trixie/InRelease"] = Answer(b"signed")
    site.answers["/security/dists/trixie-security/InRelease"] = Answer(b"signed")
    site.answers["/simple/uv/"] = Answer(b"page")
    return site


def of_image(image: Image, **addresses: str) -> dict[tuple[str, str], Supply]:
    supplies = availability.find_supplies(sources.sources(image, facts.load()), mirrors(**addresses))
    return {(supply.source.id, supply.source.context or supply.source.role): supply for supply in supplies}


def test_an_efa_image_on_debian(debian_host: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "is_possible", lambda *_: True)
    supplies = of_image(planned_image(), index=f"{debian_host.address}/simple")
    assert {key: supply.via for key, supply in supplies.items()} == {
        ("base-debian13", "base"): "bootstrap",
        ("base-debian13", "builder"): "bootstrap",
        ("debian-trixie", "base"): "upstream",
        ("debian-security-trixie", "base"): "upstream",
        ("debian-trixie", "builder"): "upstream",
        ("debian-security-trixie", "builder"): "upstream",
        ("package-index", ""): "mirror",
        ("efa-installer-1.50.0", "efa-installer"): "upstream",
    }
    assert all(supply.reachable for supply in supplies.values() if supply.source.kind != "download")
    assert supplies["efa-installer-1.50.0", "efa-installer"].source.pin.startswith("openpgp:")


@pytest.mark.usefixtures("debian_host")
def test_a_base_that_cannot_be_bootstrapped_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "obstacle", lambda *_: "no user namespaces")
    base = sources.source_of_base(planned_image(), facts.load())
    supplied = availability.find_supplies([base], mirrors())
    assert (supplied[0].via, supplied[0].detail) == ("upstream", "not locked; not bootstrapped: no user namespaces")
    with pytest.raises(RdmaImagesError, match="lock what is not locked"):
        availability.require_reachable(supplied)


def test_an_installer_whose_checksum_is_known_is_pinned_by_it() -> None:
    older = planned_image(components={"efa-installer": Component("efa-installer", "1.42.0", "matrix")})
    sources_by_id = {source.id: source for source in sources.sources(older, facts.load())}
    assert sources_by_id["efa-installer-1.42.0"].pin == f"sha256:{facts.load().efa_installer.releases['1.42.0'].sha256}"


def test_a_plugin_of_its_own_is_a_source_and_a_bundled_one_is_not() -> None:
    details = PluginDetails(origin="source", net_name="", files=(), configure=(), platform="", platform_headings=())
    with_plugin = planned_image(components={"aws-ofi-nccl": Component("aws-ofi-nccl", "1.21.1", "matrix", details)})
    sources_by_id = {source.id: source for source in sources.sources(with_plugin, facts.load())}
    assert sources_by_id["aws-ofi-nccl-1.21.1"].pin.startswith("sha512:")
    assert sources_by_id["aws-ofi-nccl-1.21.1"].upstream.endswith("/v1.21.1/aws-ofi-nccl-1.21.1.tar.gz")
    assert "aws-ofi-nccl-1.21.1" not in {source.id for source in sources.sources(planned_image(), facts.load())}


def test_an_erdma_image_takes_alibabas_repository_and_key() -> None:
    image = planned_image(
        fabric="erdma",
        axes={"base": "ubuntu22.04"},
        components={
            "efa-installer": None,
            "aws-ofi-nccl": None,
            "erdma-apt": Component("erdma-apt", "jammy", "matrix"),
        },
    )
    sources_by_id = {source.id: source for source in sources.sources(image, facts.load())}
    assert sources_by_id["erdma-apt-jammy/erdma"].suites == ("jammy/erdma",)
    assert sources_by_id["erdma-apt-key"].context == "erdma-apt"


def test_a_pulled_base_is_asked_for_by_its_locked_digest(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = "sha256:" + "a" * 64
    monkeypatch.setattr("rdma_images.inputs.pins.bases", lambda: {"docker.io/library/ubuntu:24.04": digest})
    host = site.address.removeprefix("http://")
    site.answers[f"/v2/hub/library/ubuntu/manifests/{digest}"] = Answer(headers={"Docker-Content-Digest": digest})
    supplies = of_image(planned_image(axes={"base": "ubuntu24.04"}), base=f"{host}/hub/")
    base = supplies["base-ubuntu24.04", "base"]
    assert base.address == f"docker-image://{host}/hub/library/ubuntu:24.04@{digest}"
    assert (base.via, base.reachable, base.source.pin) == ("mirror", True, digest)


def test_a_registry_with_a_token_service(site: Site) -> None:
    """The distribution specification's flow: 401 with a challenge, a token, the request again."""
    host = site.address.removeprefix("http://")
    path = "/v2/library/ubuntu/manifests/24.04"
    challenge = {"WWW-Authenticate": f'Bearer realm="{site.address}/token",service="here"'}
    digest_header = {"Docker-Content-Digest": "sha256:" + "b" * 64}
    site.answers[path] = [Answer(status=401, headers=challenge), Answer(headers=digest_header)]
    for query in (
        "scope=repository%3Alibrary%2Fubuntu%3Apull&service=here",
        "service=here&scope=repository%3Alibrary%2Fubuntu%3Apull",
    ):
        site.answers[f"/token?{query}"] = Answer(b'{"token": "abc"}')
    assert (
        reachable.registry_digest(f"{host}/library/ubuntu:24.04", mirrors()) == digest_header["Docker-Content-Digest"]
    )
    assert site.requests[-1].headers["authorization"] == "Bearer abc"


def test_a_registry_without_the_image_says_so(site: Site) -> None:
    host = site.address.removeprefix("http://")
    assert reachable.ask_registry(f"{host}/library/ubuntu:24.04", mirrors()) == (
        False,
        "the registry has no such image",
    )
    assert not reachable.ask_registry("127.0.0.1:9/library/ubuntu:24.04", mirrors())[0]


def test_the_archive_of_a_host_that_is_not_debian_is_the_bases_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere() -> None:
        raise RdmaImagesError("this host is Fedora")

    monkeypatch.setattr(host_apt, "host_archives", elsewhere)
    archives = [source for source in sources.sources(planned_image(), facts.load()) if source.kind == "apt"]
    assert {archive.upstream for archive in archives} == {""}
    assert all(availability.find_supplies([archive], mirrors())[0].reachable for archive in archives)
