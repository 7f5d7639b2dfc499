"""Dockerfiles that add a fabric to an image that exists."""

import re
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import yaml_file
from rdma_images.core.image import ExistingImage
from rdma_images.inputs.wheels import Lock
from rdma_images.plan import onto_records, planner
from rdma_images.plan.matrix import Matrix
from rdma_images.render import dockerfiles, labels
from tests.support import locks
from tests.support.existing_images import DIGEST, REF, existing, ngc

FACTS = facts.load()
TEXT = (
    "targets:\n  mine:\n    summary: mine\n    fabric: {}\n    onto: {}\n    default: {}\n    debian-packages: [tmux]\n"
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path))


def rendered(base: ExistingImage, default: str = "{efa-installer: 1.50.0}", more: str = "", fabric: str = "efa") -> str:
    onto_records.write(base)
    (image,) = planner.plan(
        yaml_file.loads(TEXT.format(fabric, REF, default) + more, Matrix, "matrix.yaml"), FACTS
    ).images
    return dockerfiles.render(
        image, Lock(request=locks.wheels(image).request, wheels=()), locks.toolkit(image), locks.TOOLS
    )


def image_stages(text: str) -> str:
    return text[text.index("FROM base AS with-onto") :]


def test_every_stage_stands_on_the_one_before() -> None:
    text = image_stages(rendered(existing(system="ubuntu24.04")))
    assert re.findall(r"^FROM (.*)$", text, re.MULTILINE) == [
        "base AS with-onto",
        "with-onto AS with-efa-installer",
        "with-efa-installer AS image",
    ]


def test_a_plugin_is_compiled_where_the_installer_brings_none() -> None:
    text = image_stages(rendered(existing(system="debian12"), "{efa-installer: 1.50.0, aws-ofi-nccl: 1.21.1}"))
    assert "AS build-aws-ofi-nccl" in text
    assert "dpkg --purge libnccl-ofi" in text


def test_user_and_shell_come_back() -> None:
    text = image_stages(rendered(existing(user="1000:100", shell=("/bin/bash", "-c"))))
    assert text.index("USER root") < text.index("RUN ")
    assert 'SHELL ["/bin/sh", "-c"]' in text
    assert text.rstrip().endswith('SHELL ["/bin/bash", "-c"]\nUSER 1000:100')


def test_nothing_of_the_entry_point_or_the_folder_is_written() -> None:
    text = image_stages(rendered(ngc()))
    assert not re.search(r"^(ENTRYPOINT|CMD|WORKDIR) ", text, re.MULTILINE)


def test_the_user_of_the_target_is_made_by_root() -> None:
    text = image_stages(rendered(existing(user="1000"), more="    user: trainer\n"))
    assert "USER 1000\n" not in text[: text.index("AS image")]
    assert "USER 1000:1000" in text
    assert "WORKDIR /workspace" in text


def test_folders_of_other_plugins_leave_the_loaders_path() -> None:
    text = image_stages(rendered(ngc()))
    assert "'\\|^/opt/hpcx/nccl_rdma_sharp_plugin/lib/*$|d'" in text
    assert "rm -f /usr/lib/x86_64-linux-gnu/libnccl-net.so" in text
    assert 'LD_LIBRARY_PATH="/usr/local/cuda/lib64"' in text


def test_the_link_of_cuda_leads_into_the_image() -> None:
    text = image_stages(rendered(ngc()))
    assert "ln -sf /usr/local/cuda/lib64/libcudart.so.13 /usr/lib/" in text
    assert "/opt/venv" not in text


def test_erdma() -> None:
    text = image_stages(rendered(existing(system="ubuntu22.04"), "{}", fabric="erdma"))
    assert "from=erdma-apt" in text
    assert 'NCCL_NET="IB"' in text
    assert "libcudart" not in text


def test_labels_name_the_image_below() -> None:
    onto_records.write(existing())
    text = TEXT.format("efa", REF, "{efa-installer: 1.50.0}")
    (image,) = planner.plan(yaml_file.loads(text, Matrix, "matrix.yaml"), FACTS).images
    image_labels = labels.labels(image, "mine", labels.Revision("c", 0, None), ())
    assert image_labels["org.opencontainers.image.base.name"] == "team/training"
    assert image_labels["org.opencontainers.image.base.digest"] == DIGEST
