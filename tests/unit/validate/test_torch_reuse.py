"""When an image is taken to import torch as another one does, whose topmost layer alone is another."""

import pytest

from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import ImportedTorch, Leftovers, Measured, MeasuredLayer
from rdma_images.validate import torch_reuse

pytestmark = pytest.mark.usefixtures("state")
TORCH = ImportedTorch(version="", cuda=None, file="", compiled_nccl="", nccl=[], mapped=[])


def layer(*names: str, count: int | None = None) -> MeasuredLayer:
    """Return a topmost layer that holds `names`."""
    number, none = len(names) if count is None else count, Leftovers()
    return MeasuredLayer(
        digest="sha256:2", bytes=1, unpacked=1, file_count=number, largest_folder="/", leftovers=none, names=[*names]
    )


def image(*layers: str, **variables: str) -> ImageConfig:
    """Return an image of these layers, lowest first."""
    return ImageConfig(ref="x", digest="sha256:1", platform="linux/amd64", environment=variables, layers=list(layers))


LEADS = image("a", PYTHONPATH="/workspace/lib:/srv/own", START="/home/trainer/.config/start.py", PATH="/usr/local/bin")


@pytest.mark.parametrize(
    "name",
    [
        "/workspace/train.py",
        "/workspace/src/torch.py",  # no process of the probes imports from there
        "/opt/app/src/model.py",
        "/usr/local/bin/start.sh",  # an import starts no program
        "/opt/",
        "/workspace/lib/",
        "/workspace/latest",
        "/home/trainer/config.yaml",
    ],
)
def test_a_script_changes_no_import_wherever_it_lies(name: str) -> None:
    assert torch_reuse.reason_to_import(layer(name), LEADS) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/torch.py", "may load"),
        ("/torch/__init__.py", "may load"),
        ("/opt/venv/site-packages/torch.py", "may load"),
        ("/opt/other/lib/python3/dist-packages/x.py", "may load"),
        ("/usr/lib/python3.13/json/__init__.py", "may load"),
        ("/opt/venv/x.pth", "may load"),
        ("/usr/local/bin/python3", "may load"),
        ("/opt/venv/pyvenv.cfg", "may load"),
        ("/workspace", "may load"),  # a link in the place of a folder
        ("/workspace/ops/libnccl.so.2", "may load"),
        ("/etc/ld.so.conf.d/x.conf", "may load"),
        ("/workspace/lib/torch.py", "where a variable leads"),
        ("/workspace/lib", "where a variable leads"),  # in its place
        ("/home/trainer/.config/start.py", "where a variable leads"),
        ("/workspace/.wh.lib", "removes files"),
        ("/workspace/.wh..wh..opq", "removes files"),
    ],
)
def test_what_an_import_may_read_is_named(name: str, words: str) -> None:
    reason = torch_reuse.reason_to_import(layer("/workspace/train.py", name), LEADS)
    assert words in reason
    assert name in reason


def test_an_image_with_the_same_lower_layers_takes_over_the_torch() -> None:
    top = (layer("/opt/app/src/model.py"),)
    torch_reuse.save(image("a", "b"), Measured(torch=TORCH, layers=top))
    assert torch_reuse.find_reusable(image("a", "c"), lambda: top) == (TORCH, torch_reuse.REUSED)
    for other in (image("x", "b"), image("a", "b", LD_PRELOAD="/x")):
        earlier = torch_reuse.find_reusable(other, lambda: top)
        assert earlier.torch is None
        assert "no image with the same lower layers" in earlier.reason


def test_a_layer_that_matters_is_the_reason_to_import_torch_again() -> None:
    fine, changed = (layer("/opt/app/model.py"),), (layer("/opt/app/libx.so"),)
    torch_reuse.save(image("a", "b"), Measured(torch=TORCH, layers=fine))
    torch, reason = torch_reuse.find_reusable(image("a", "c"), lambda: changed)
    assert (torch, reason) == (None, "its topmost layer holds /opt/app/libx.so, which the loader or Python may load")
    torch_reuse.save(image("z", "c"), Measured(torch=TORCH, layers=changed))
    assert torch_reuse.find_reusable(image("z", "d"), lambda: fine).torch is None
    large = (layer("/opt/app/model.py", count=501),)
    assert torch_reuse.find_reusable(image("a", "c"), lambda: large).reason == "its topmost layer holds 501 files"


def test_layers_that_cannot_be_read_are_a_reason() -> None:
    def damaged() -> tuple[MeasuredLayer, ...]:
        raise ValueError("a damaged tar")

    torch_reuse.save(image("a", "b"), Measured(torch=TORCH, layers=(layer("/srv/x"),)))
    assert torch_reuse.find_reusable(image("a", "c"), damaged) == (None, "its layers could not be read: a damaged tar")
