"""Which wheels become which layers."""

from rdma_images.inputs.wheels import Lock, LockRequest, Wheel, total_size
from rdma_images.render import wheel_layers


def wheel(name: str, size: int, tags: str = "py3-none-manylinux_2_28_x86_64") -> Wheel:
    file = f"{name.replace('-', '_')}-1.0-{tags}.whl"
    return Wheel(name=name, version="1.0", file=file, sha256="0" * 64, size=size)


def lock(*wheels: Wheel) -> Lock:
    return Lock(request=LockRequest(requirements=("torch==1.0",), python="3.13", platform="linux/amd64"), wheels=wheels)


def test_what_changes_most_lies_highest() -> None:
    layers = wheel_layers.wheel_layers(
        lock(
            wheel("torch", 500_000_000),
            wheel("numpy", 15_000_000),
            wheel("triton", 280_000_000),
            wheel("nvidia-cudnn-cu13", 510_000_000),
            wheel("nvidia-nccl-cu13", 210_000_000),
            wheel("jinja2", 100_000),
        )
    )
    assert [layer.stage for layer in layers] == [
        "wheel-nvidia-cudnn-cu13",
        "wheel-nvidia-nccl-cu13",
        "wheel-triton",
        "wheels-small",
        "wheel-torch",
    ]


def test_every_wheel_is_in_one_layer() -> None:
    wheels = (wheel("torch", 500_000_000), wheel("numpy", wheel_layers.LARGE - 1), wheel("triton", wheel_layers.LARGE))
    layers = wheel_layers.wheel_layers(lock(*wheels))
    assert sorted(w.name for layer in layers for w in layer.wheels) == ["numpy", "torch", "triton"]
    assert sum(total_size(layer.wheels) for layer in layers) == sum(w.size for w in wheels)


def test_a_layer_knows_no_more_of_python_than_its_wheels_do() -> None:
    def python(*tags: str) -> str | None:
        return wheel_layers.WheelLayer("a", tuple(wheel(f"w{i}", 1, tag) for i, tag in enumerate(tags))).python

    assert python("py3-none-any") is None
    assert python("py2.py3-none-any") is None
    assert python("cp313-cp313-manylinux_2_28_x86_64") == "3.13"
    assert python("cp312-abi3-manylinux_2_28_x86_64") == "3.12"
    assert python("py3-none-any", "cp310-abi3-linux_x86_64", "cp39-cp39-linux_x86_64") == "3.10"
