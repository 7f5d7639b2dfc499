"""Rehearsals: what stands in for what, and what an image then is made of."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import stand_ins
from rdma_images.build.bake_targets import Contexts
from rdma_images.build.build_secrets import secret_texts
from rdma_images.components.base import BaseDetails
from rdma_images.core.image import Image
from rdma_images.core.source import Supply
from rdma_images.engine.debian import bootstrap
from rdma_images.inputs import availability, pins, reachable, sources
from rdma_images.inputs.mirrors import Mirrors
from rdma_images.inputs.project import Project
from rdma_images.plan import matrix, planner

FACTS = facts.load()
OURS = matrix.load()
CUDA = "cuda13.2.1-devel-ubuntu24.04"


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    """Return a machine that can bootstrap Debian, and reaches nothing but its archive."""
    monkeypatch.setattr(bootstrap, "is_possible", lambda name, *_: name.startswith("debian"))
    monkeypatch.setattr(bootstrap, "base_tar", lambda name, *_: tmp_path / f"{name}.tar")
    monkeypatch.setattr(reachable, "ask_registry", lambda *_: (False, "no route to host"))
    monkeypatch.setattr(reachable, "ask_download", lambda *_: (False, "no route to host"))
    monkeypatch.setattr(reachable, "ask_index", lambda *_: (True, "200"))
    monkeypatch.setattr(reachable, "ask_apt", lambda address, *_: ("aliyun" not in address, ""))
    monkeypatch.setattr(sources, "_debian", lambda: ("http://archive.example.com/debian", ""))
    loaded = Project(OURS, FACTS)
    monkeypatch.setattr(Project, "mirrors", Mirrors(ca_bundle=tmp_path / "ca"))
    return loaded


def plan_images(target: str, **changes: str) -> tuple[Image, ...]:
    return planner.plan(OURS, FACTS, [target], changes=changes).images


def supplies(image: Image, project: Project) -> tuple[Supply, ...]:
    return availability.find_supplies(sources.sources(image, FACTS), project.mirrors, rehearse=True)


def supplied(image: Image, project: Project) -> dict[str, Supply]:
    return {supply.source.id: supply for supply in supplies(image, project)}


def test_an_image_stands_on_its_bases_stand_in(project: Project) -> None:
    (before,) = plan_images("erdma-pytorch")
    (image,) = availability.with_stand_in_bases([before], project.facts, project.mirrors)
    details = image.details(BaseDetails)
    assert details
    assert details.stand_in == "debian13"
    assert image.version("python") == "3.13"
    assert "stands in" in image.components["python"].decided_by
    assert image.id == before.id


def test_packages_without_wheels_for_a_stand_ins_python_get_another_debian(project: Project) -> None:
    (image,) = availability.with_stand_in_bases(plan_images("erdma-sglang"), project.facts, project.mirrors)
    assert image.version("python") == "3.11"
    assert supplied(image, project)["base-ubuntu24.04"].via == "stand-in"
    assert {s.id for s in sources.sources(image, FACTS) if s.kind == "apt"} >= {"debian-bookworm"}


def test_its_apt_archives_are_the_stand_ins(project: Project) -> None:
    (image,) = availability.with_stand_in_bases(plan_images("erdma-pytorch"), project.facts, project.mirrors)
    assert {s.id for s in sources.sources(image, FACTS) if s.kind == "apt"} >= {"debian-trixie"}
    assert not any(s.component == "ubuntu" for s in sources.sources(image, FACTS))


def test_a_base_in_reach_stays(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "ask_registry", lambda *_: (True, "sha256:1"))
    monkeypatch.setattr(pins, "bases", lambda: {"docker.io/library/ubuntu:22.04": f"sha256:{'a' * 64}"})
    (before,) = plan_images("erdma-pytorch")
    assert availability.with_stand_in_bases([before], project.facts, project.mirrors) == (before,)


def test_a_base_that_cannot_be_made_here_stays_missing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "is_possible", lambda *_: False)
    (before,) = plan_images("erdma-pytorch")
    assert availability.with_stand_in_bases([before], project.facts, project.mirrors) == (before,)
    with pytest.raises(availability.UnreachableSourcesError, match=r"base-ubuntu22\.04"):
        availability.require_reachable(list(supplied(before, project).values()))


def test_a_key_and_its_repository_are_stood_in_for_together(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "ask_download", lambda *_: (True, "200"))
    monkeypatch.setattr(pins, "downloads", lambda: {"erdma-apt-key": f"sha256:{'a' * 64}"})
    (image,) = availability.with_stand_in_bases(plan_images("erdma-pytorch"), project.facts, project.mirrors)
    supplies_of_image = supplied(image, project)
    assert {supplies_of_image[i].via for i in ("erdma-apt-jammy/erdma", "erdma-apt-key")} == {"stand-in"}
    assert supplies_of_image["erdma-apt-jammy/erdma"].address == "file:/mnt/erdma-apt"


def test_the_repository_comes_over_the_bases_archives(project: Project) -> None:
    (image,) = availability.with_stand_in_bases(plan_images("erdma-pytorch"), project.facts, project.mirrors)
    secrets = secret_texts(supplies(image, project), project.mirrors)
    assert "erdma" not in secrets["apt-sources"]
    over = secrets["apt-sources-erdma-apt"].splitlines()
    assert any("archive.example.com" in line for line in over)
    assert over[-1] == "deb [signed-by=/etc/apt/keyrings/erdma.asc] file:/mnt/erdma-apt jammy/erdma main"
    assert 'sourceparts "/dev/null"' in secrets["apt-config-erdma-apt"]


def test_where_the_bases_own_archives_stay_the_repository_is_beside_them(project: Project) -> None:
    """Ubuntu's own sources have no address here: the stage mounts the one line among them."""
    (image,) = plan_images("erdma-pytorch")
    secrets = secret_texts(supplies(image, project), project.mirrors)
    assert secrets["apt-sources"] == ""
    assert len(secrets["apt-sources-erdma-apt"].splitlines()) == 1
    assert "sourceparts" not in secrets["apt-config-erdma-apt"]


def test_a_mirror_is_asked_before_a_stand_in(project: Project) -> None:
    address = "http://mirrors.cloud.aliyuncs.com/erdma/apt/ubuntu"
    inside = replace(project.mirrors, addresses={"erdma-apt": (address, "mirrors.yaml:2")})
    (image,) = plan_images("erdma-pytorch")
    repository_sources = [s for s in sources.sources(image, FACTS) if s.component == "erdma-apt"]
    (supply,) = availability.find_supplies(repository_sources, inside, rehearse=False)
    assert (supply.via, supply.address) == ("mirror", address)


def test_a_cuda_base_is_stood_in_for_with_what_an_image_meets_of_it(project: Project, tmp_path: Path) -> None:
    """A plain Debian has neither NVIDIA's variables, nor its toolkit, nor its entry point."""
    (image,) = availability.with_stand_in_bases(plan_images("efa-pytorch", base=CUDA), project.facts, project.mirrors)
    build_contexts = Contexts(FACTS, {})
    base = build_contexts.for_image(image, supplies(image, project))["base"].removeprefix("target:")
    helper = build_contexts.helpers[base]
    assert helper.contexts == {"stand-in": "dockerfiles/stand-ins/cuda-base"}
    assert (helper.folder, helper.arguments["TAR"]) == (tmp_path, "debian13.tar")
    arguments = {
        "BASE": CUDA,
        "BASE_CUDA": "13.2.1",
        "BASE_ENTRYPOINT": "nvidia",
        **FACTS.bases.bases[CUDA].environment,
    }
    assert arguments.items() <= helper.arguments.items()
    assert build_contexts.users[base] == image.id
    assert "cuda-base" in map(stand_ins.folder_name, sources.pinned(image, FACTS))


def test_what_is_laid_over_a_base_is_laid_over_a_stand_in_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain,) = availability.with_stand_in_bases(plan_images("erdma-pytorch"), project.facts, project.mirrors)
    assert Contexts(FACTS, {}).for_image(plain, supplies(plain, project))["base"] == "target:base-debian13"
    digest = f"sha256:{'a' * 64}"
    monkeypatch.setattr(reachable, "ask_registry", lambda *_: (True, "sha256:1"))
    monkeypatch.setattr(pins, "bases", lambda: {FACTS.bases.bases[CUDA].image: digest})
    (pulled,) = availability.with_stand_in_bases(plan_images("efa-pytorch", base=CUDA), project.facts, project.mirrors)
    assert Contexts(FACTS, {}).for_image(pulled, supplies(pulled, project))["base"].endswith(f"@{digest}")
