"""Rehearsals: what stands in for what, and what an image then is made of."""

from dataclasses import replace

import pytest

from rdma_images import ask, facts, matrix, mirrors, order, plan, rehearsal, sources, stand_ins, supply
from rdma_images.contexts import Pantry
from rdma_images.mirrors import Mirrors
from rdma_images.secrets import texts
from rdma_images.site import Site

KNOWN = facts.load()
OURS = matrix.load()
CUDA = "cuda13.2.1-devel-ubuntu24.04"


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A machine that can bootstrap Debian, and reaches nothing but its archive."""
    monkeypatch.setattr(ask, "can_bootstrap", lambda name, *_: name.startswith("debian"))
    monkeypatch.setattr(ask, "image", lambda *_: (False, "no route to host"))
    monkeypatch.setattr(ask, "download", lambda *_: (False, "no route to host"))
    monkeypatch.setattr(ask, "index", lambda *_: (True, "200"))
    monkeypatch.setattr(ask, "apt", lambda address, *_: ("aliyun" not in address, ""))
    monkeypatch.setattr(sources, "_debian", lambda: ("http://archive.example.com/debian", ""))
    found = Site(OURS, KNOWN)
    monkeypatch.setattr(Site, "mirrors", Mirrors(ca_bundle=tmp_path / "ca"))
    return found


def planned(target, **changes):
    return plan.plan(OURS, KNOWN, [target], changes=changes).images


def supplies(image, site):
    return supply.supply(sources.sources(image, KNOWN), site.mirrors, rehearse=True)


def supplied(image, site):
    return {one.source.id: one for one in supplies(image, site)}


def test_an_image_stands_on_its_bases_stand_in(site):
    (before,) = planned("erdma-pytorch")
    (image,) = rehearsal.stand([before], site)
    assert image.components["base"].details["stand-in"] == "debian13"
    assert image.version("python") == "3.13"
    assert "stands in" in image.components["python"].decided_by
    assert image.id == before.id


def test_its_apt_archives_are_the_stand_ins(site):
    (image,) = rehearsal.stand(planned("erdma-pytorch"), site)
    assert {s.id for s in sources.sources(image, KNOWN) if s.kind == "apt"} >= {"debian-trixie"}
    assert not any(s.component == "ubuntu" for s in sources.sources(image, KNOWN))


def test_a_base_in_reach_stays(site, monkeypatch):
    monkeypatch.setattr(ask, "image", lambda *_: (True, "sha256:1"))
    monkeypatch.setattr(sources.pins, "bases", lambda: {"docker.io/library/ubuntu:22.04": f"sha256:{'a' * 64}"})
    (before,) = planned("erdma-pytorch")
    assert rehearsal.stand([before], site) == (before,)


def test_a_base_that_cannot_be_made_here_stays_missing(site, monkeypatch):
    monkeypatch.setattr(ask, "can_bootstrap", lambda *_: False)
    (before,) = planned("erdma-pytorch")
    assert rehearsal.stand([before], site) == (before,)
    with pytest.raises(supply.OutOfReachError, match=r"base-ubuntu22\.04"):
        supply.require(list(supplied(before, site).values()))


def test_a_key_and_its_repository_are_stood_in_for_together(site, monkeypatch):
    monkeypatch.setattr(ask, "download", lambda *_: (True, "200"))
    monkeypatch.setattr(sources.pins, "downloads", lambda: {"erdma-apt-key": f"sha256:{'a' * 64}"})
    (image,) = rehearsal.stand(planned("erdma-pytorch"), site)
    found = supplied(image, site)
    assert {found[i].via for i in ("erdma-apt-jammy/erdma", "erdma-apt-key")} == {"stand-in"}
    assert found["erdma-apt-jammy/erdma"].address == "file:/mnt/erdma-apt"


def test_the_repository_comes_over_the_bases_archives(site):
    (image,) = rehearsal.stand(planned("erdma-pytorch"), site)
    made = texts(supplies(image, site), site.mirrors)
    assert "erdma" not in made["apt-sources"]
    over = made["apt-sources-erdma-apt"].splitlines()
    assert any("archive.example.com" in line for line in over)
    assert over[-1] == "deb [signed-by=/etc/apt/keyrings/erdma.asc] file:/mnt/erdma-apt jammy/erdma main"
    assert 'sourceparts "/dev/null"' in made["apt-config-erdma-apt"]


def test_where_the_bases_own_archives_stay_the_repository_is_beside_them(site):
    """Ubuntu's own sources have no address here: the stage mounts the one line among them."""
    (image,) = planned("erdma-pytorch")
    made = texts(supplies(image, site), site.mirrors)
    assert made["apt-sources"] == ""
    assert len(made["apt-sources-erdma-apt"].splitlines()) == 1
    assert "sourceparts" not in made["apt-config-erdma-apt"]


def test_a_mirror_is_asked_before_a_stand_in(site):
    address = "http://mirrors.cloud.aliyuncs.com/erdma/apt/ubuntu"
    inside = replace(site.mirrors, addresses={mirrors.plain("erdma-apt"): (address, "mirrors.yaml:2")})
    (image,) = planned("erdma-pytorch")
    wanted = [s for s in sources.sources(image, KNOWN) if s.component == "erdma-apt"]
    (found,) = supply.supply(wanted, inside, rehearse=False)
    assert (found.via, found.address) == ("mirror", address)


def pantry(folder):
    return Pantry(KNOWN, lambda source: folder / source.id, lambda base: folder / f"{base}.tar")


def test_a_cuda_base_is_stood_in_for_with_what_an_image_meets_of_it(site, tmp_path):
    """A plain Debian in its place would have neither what NVIDIA's sets, nor its toolkit, nor its entry point."""
    (image,) = rehearsal.stand(planned("efa-pytorch", base=CUDA), site)
    kept = pantry(tmp_path)
    base = kept.contexts(image, supplies(image, site))["base"].removeprefix("target:")
    helper = kept.helpers[base]
    assert helper.contexts == {"stand-in": "dockerfiles/stand-ins/cuda-base"}
    assert (helper.folder, helper.arguments["TAR"]) == (tmp_path, "debian13.tar")
    said = {"BASE": CUDA, "BASE_CUDA": "13.2.1", "BASE_ENTRYPOINT": "nvidia", **KNOWN.bases.bases[CUDA].environment}
    assert said.items() <= helper.arguments.items()
    assert kept.users[base] == image.id
    assert "cuda-base" in order._replaceable(sources.pinned(image, KNOWN))


def test_what_is_laid_over_a_base_is_laid_over_a_stand_in_alone(site, tmp_path, monkeypatch):
    (plain,) = rehearsal.stand(planned("erdma-pytorch"), site)
    assert pantry(tmp_path).contexts(plain, supplies(plain, site))["base"] == "target:base-debian13"
    digest = f"sha256:{'a' * 64}"
    monkeypatch.setattr(ask, "image", lambda *_: (True, "sha256:1"))
    monkeypatch.setattr(sources.pins, "bases", lambda: {KNOWN.bases.bases[CUDA].image: digest})
    (pulled,) = rehearsal.stand(planned("efa-pytorch", base=CUDA), site)
    assert pantry(tmp_path).contexts(pulled, supplies(pulled, site))["base"].endswith(f"@{digest}")


def test_the_stand_in_of_a_cuda_base_sets_what_facts_know_of_any():
    text = (stand_ins.FOLDER / "cuda-base" / "Dockerfile").read_text()
    for base in KNOWN.bases.bases.values():
        for name in base.environment:
            assert f"{name}=${name}" in text
        assert not base.cuda or f"AS entered-by-{base.entrypoint or 'none'}" in text


@pytest.mark.parametrize("component", ["cuda-base", "efa-installer", "aws-ofi-nccl", "erdma-apt-key", "nccl-tests"])
def test_a_change_of_a_stand_in_changes_the_inputs(component, tmp_path, monkeypatch):
    import shutil

    shutil.copytree(stand_ins.FOLDER, tmp_path / "stand-ins")
    monkeypatch.setattr(stand_ins, "FOLDER", tmp_path / "stand-ins")
    before = stand_ins.digest([component])
    (tmp_path / "stand-ins" / component / "Dockerfile").write_text("FROM scratch\n")
    assert stand_ins.digest([component]) != before
