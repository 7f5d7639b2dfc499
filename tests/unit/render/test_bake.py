"""The bake file: one graph, helpers without images, secrets and outputs apart."""

from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.image import Image
from rdma_images.render import bake


@pytest.fixture(autouse=True)
def amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdma_images.engine.platforms.platform.machine", lambda: "x86_64")


@pytest.fixture
def file(image: Image) -> dict[str, dict[str, dict[str, object]]]:
    target = bake.ImageTarget(
        image=image,
        dockerfile=paths.image_folder(image.id) / "Dockerfile",
        ref="rdma-images/efa-pytorch:x",
        contexts={"builder": "target:builder-debian13", "base": "target:base-debian13-arm64"},
        labels={"io.rdma-images.target": "efa-pytorch"},
        created=1_700_000_000,
    )
    tar = Path("/somewhere/debian13.tar")
    helpers = [
        bake.bootstrap_helper("base", "debian13", tar, "linux/arm64"),
        bake.bootstrap_helper("builder", "debian13", tar),
    ]
    return bake.bake_file([target], helpers)


def test_a_base_of_a_foreign_platform_says_so(file: dict[str, dict[str, dict[str, object]]]) -> None:
    assert file["target"]["base-debian13-arm64"]["platforms"] == ["linux/arm64"]
    assert "platforms" not in file["target"]["builder-debian13"]
    helper = bake.bootstrap_helper("base", "debian13", Path("/somewhere/debian13.tar"), "linux/amd64")
    assert helper.name == "base-debian13"
    assert "platforms" not in bake.bake_file([], [helper])["target"][helper.name]


def test_a_variable_of_a_dockerfile_is_left_to_the_dockerfile() -> None:
    """bake reads every string as a template of its own, and knows no such variable."""
    helper = bake.HelperTarget("x", Path("/somewhere"), inline="FROM ${ONE}\nENV A=$B C=%{d}\n")
    inline = bake.bake_file([], [helper])["target"]["x"]["dockerfile-inline"]
    assert inline == "FROM $${ONE}\nENV A=$B C=%%{d}\n"


def test_each_target_gets_its_own_secrets(file: dict[str, dict[str, dict[str, object]]], image: Image) -> None:
    name = bake.bake_target_name(image.id)
    secrets = {target: {"netrc": Path(f"/run/{target}/netrc")} for target in file["target"]}
    run = bake.with_run(file, secrets, {name: "type=image,name=x"})
    assert run["target"]["base-debian13-arm64"]["secret"] == ["type=file,id=netrc,src=/run/base-debian13-arm64/netrc"]
    assert run["target"][name]["output"] == ["type=image,name=x"]


def test_the_network_file_names_every_target_with_its_context(file: dict[str, dict[str, dict[str, object]]]) -> None:
    network = bake.network_file(file)
    assert network["services"].keys() == file["target"].keys()
    for name, service in network["services"].items():
        assert service["build"] == {"context": file["target"][name]["context"], "network": "host"}


@pytest.mark.parametrize(("builder", "kind"), [(None, "image"), ("remote", "docker")])
def test_zstd_never_goes_without_oci_media_types(builder: str | None, kind: str) -> None:
    output = bake.bake_output("x", "containerd", builder, "zstd").split(",")
    assert {f"type={kind}", "name=x", "compression=zstd", "oci-mediatypes=true"} <= set(output)


def test_layers_of_an_image_that_exists_are_not_compressed_again() -> None:
    assert "force-compression=true" in bake.bake_output("x", "containerd", None, "zstd")
    assert "force-compression" not in bake.bake_output("x", "containerd", None, "zstd", keeps_layers=True)


@pytest.mark.parametrize("builder", [None, "remote"])
def test_an_engine_that_cannot_keep_compressed_layers_gets_an_archive(builder: str | None) -> None:
    assert bake.bake_output("x", "classic", builder, "zstd") == "type=docker,name=x"
