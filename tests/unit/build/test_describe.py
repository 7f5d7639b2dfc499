"""How an image wants to be run: described, labelled, and insisted on."""

from dataclasses import replace

import pytest
from rich.console import Console

from rdma_images import facts
from rdma_images.build import describe
from rdma_images.core import paths, yaml_file
from rdma_images.core.image import Image
from rdma_images.facts.environment import Environment
from rdma_images.facts.nccl_logs import NcclLogFacts
from rdma_images.plan import image_settings, matrix, planner
from rdma_images.render import labels

FACTS = facts.load()
OURS = matrix.load()
EFA = {"NCCL_NET": "Libfabric", "FI_PROVIDER": "efa"}
ON_TCP = "--env=NCCL_NET=Socket --env=FI_PROVIDER=tcp"


def planned_image(target: str, **changes: str) -> Image:
    (image,) = planner.plan(OURS, FACTS, [target], changes={k.replace("_", "-"): v for k, v in changes.items()}).images
    return image


def described(*images: Image) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(describe.describe_images(images, FACTS))
    return capture.get()


@pytest.mark.parametrize(
    ("target", "changes", "insisted", "lift"),
    [
        ("efa-pytorch", {}, EFA, ON_TCP),
        ("efa-pytorch", {"base": "ubuntu24.04", "aws_ofi_nccl": "1.20.0"}, EFA, ON_TCP),
        ("efa-pytorch", {"aws_ofi_nccl": "1.11.1"}, EFA | {"NCCL_NET": "AWS Libfabric"}, ON_TCP),
        ("erdma-pytorch", {}, {"NCCL_NET": "IB"}, "--env=NCCL_NET=Socket"),
        ("efa-nccl-tests", {}, EFA, ON_TCP),
    ],
)
def test_the_network_that_is_insisted_on(
    target: str, changes: dict[str, str], insisted: dict[str, str], lift: str
) -> None:
    """On EFA by both variables: NCCL_NET alone lets the plugin take libfabric's tcp provider."""
    image = planned_image(target, **changes)
    assert image.environment == insisted
    assert image_settings.tcp_docker_options(image, FACTS) == lift


def test_a_fallback_is_asked_for_and_is_in_the_tag() -> None:
    image = planned_image("efa-pytorch", fallback="allow")
    assert image.environment == {}
    assert image.tag.endswith("-fallback")
    assert image_settings.tcp_docker_options(image, FACTS) is None
    assert "falls back to TCP without an error" in described(image)


@pytest.mark.parametrize("target", ["efa-pytorch", "erdma-nccl-tests"])
def test_slurm_users_are_told_which_enroot_reads_the_layers(target: str) -> None:
    image = planned_image(target)
    assert "4.0; 3.4.1 with --compression gzip" in described(image)
    label_values = labels.image_labels(image, "x", labels.Revision("c", 0, None), ())
    assert label_values["io.rdma-images.run.enroot"] == "4.0; 3.4.1 with --compression gzip"


def test_what_is_described() -> None:
    text = described(planned_image("efa-pytorch"))
    for words in ("vpc.amazonaws.com/efa", "memlock=-1", "IPC_LOCK", "NCCL_NET=Libfabric and FI_PROVIDER=efa", ON_TCP):
        assert words in text
    assert "docker run --rm -it \\\n       --gpus=all \\\n       --device=/dev/infiniband \\\n" in text
    assert "python packages  numpy" in text


def test_what_an_erdma_pod_needs() -> None:
    """Locked memory is refused to a container that is neither privileged nor allowed it."""
    image = planned_image("erdma-pytorch")
    settings_by_name = {setting.name: setting for setting in image.run_settings}
    assert settings_by_name["capabilities"].docker == "--cap-add=IPC_LOCK"
    assert settings_by_name["network"].value == "host"
    assert "privileged" in settings_by_name["kubernetes"].why
    assert "--cap-add=IPC_LOCK" in describe.command(image)


@pytest.mark.parametrize("target", OURS.targets)
def test_every_image_says_what_it_asks_for_also_where_that_is_nothing(target: str) -> None:
    settings_by_name = {setting.name: setting for setting in planned_image(target).run_settings}
    assert {"gpus", "devices", "ulimits", "capabilities", "shm", "hugepages", "kubernetes"} <= set(settings_by_name)
    if OURS.target(target).fabric == "erdma":
        assert (settings_by_name["hugepages"].value, settings_by_name["hugepages"].docker) == ("none", "")


def test_two_tables_tell_of_the_lock_on_memory_by_the_same_source() -> None:
    """What a log says of it, and what an image asks for: one guide's word, and of the same confidence."""
    logs = yaml_file.load(paths.FACTS / "nccl-logs.yaml", NcclLogFacts)
    setting = FACTS.running.settings["erdma-ulimits"]
    assert logs.cite(logs.causes["no-memory"], "why") == FACTS.running.cite(setting)
    assert "third party" in setting.why


def test_a_job_variable_is_not_in_the_command() -> None:
    assert "--env" not in describe.command(planned_image("erdma-pytorch"))


def test_labels_say_the_same() -> None:
    image = planned_image("efa-pytorch")
    label_values = labels.image_labels(image, "x", labels.Revision("c", 0, None), ())
    for setting in image.run_settings:
        assert label_values[f"io.rdma-images.run.{setting.name}"] == setting.value
    assert label_values["io.rdma-images.fallback"] == "refuse"
    assert "--disable-ngc" in label_values["io.rdma-images.efa-installer.flags"]


def test_nothing_harmful_is_asked_for() -> None:
    """What an image sets or asks for is not among the variables that facts/ call harmful."""
    rows = yaml_file.load(paths.FACTS / "environment.yaml", Environment).variables.values()
    for target in OURS.targets:
        image = planned_image(target)
        settings_by_name = {
            s.name.removeprefix("variable."): s.value for s in image.run_settings if s.name.startswith("variable.")
        }
        versions = {component.name: component.version for component in image.components.values()}
        assert [
            row.name for row in rows if row.applies_to(image.environment | settings_by_name, image.fabric, versions)
        ] == []


@pytest.mark.parametrize(
    ("target", "changes", "limits"),
    [
        ("efa-pytorch", {}, ["torch-compile"]),
        ("erdma-pytorch", {}, ["torch-compile"]),
        ("efa-pytorch", {"variant": "devel"}, []),
        ("efa-nccl-tests", {}, []),
        ("efa-nccl-tests", {"gdrcopy": "2.4.4"}, ["gpu-initiated"]),
        ("efa-nccl-tests", {"nccl": "2.30.7"}, ["gpu-initiated"]),
        ("erdma-nccl-tests", {}, []),
    ],
)
def test_what_does_not_work_is_said_wherever_a_user_looks(
    target: str, changes: dict[str, str], limits: list[str]
) -> None:
    image = planned_image(target, **changes)
    assert [limit.name for limit in image.limitations] == limits
    label_values = labels.image_labels(image, "x", labels.Revision("c", 0, None), ())
    assert [name for name in label_values if ".limit." in name] == [f"io.rdma-images.limit.{name}" for name in limits]
    text = described(image)
    assert ("does not work" in text) is bool(limits)
    assert all(limit.feature in text for limit in image.limitations)


def test_a_target_that_brings_a_compiler_compiles() -> None:
    image = replace(planned_image("efa-pytorch"), debian_packages=("gcc", "libc6-dev", "libpython3-dev"))
    assert [limit.name for limit in image_settings.limitations(image, FACTS)] == []
