"""How an image wants to be run: described, labelled, and insisted on."""

import json

import pytest
from rich.console import Console

from rdma_images import describe, facts, labels, matrix, paths, plan, running, yamlfile
from rdma_images.facts.nccl_logs import NcclLogs

KNOWN = facts.load()
OURS = matrix.load()


def image(target, **changes):
    (made,) = plan.plan(OURS, KNOWN, [target], changes={k.replace("_", "-"): v for k, v in changes.items()}).images
    return made


def described(*images):
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(describe.text(images, KNOWN))
    return capture.get()


@pytest.mark.parametrize(
    ("target", "changes", "network"),
    [
        ("efa-pytorch", {}, "Libfabric"),
        ("efa-pytorch", {"base": "ubuntu24.04", "aws_ofi_nccl": "1.20.0"}, "Libfabric"),
        ("erdma-pytorch", {}, "IB"),
        ("efa-nccl-tests", {}, "Libfabric"),
    ],
)
def test_the_network_that_is_insisted_on(target, changes, network):
    made = image(target, **changes)
    assert made.environment == {"NCCL_NET": network}
    assert running.lift(made, KNOWN) == "--env=NCCL_NET=Socket"


def test_a_plugin_of_old_has_another_name():
    assert image("efa-pytorch", aws_ofi_nccl="1.11.0").environment == {"NCCL_NET": "AWS Libfabric"}


def test_a_fallback_is_asked_for_and_is_in_the_tag():
    made = image("efa-pytorch", fallback="allow")
    assert made.environment == {}
    assert made.tag.endswith("-fallback")
    assert running.lift(made, KNOWN) is None
    assert "over TCP without an error" in described(made)


def test_what_is_described():
    text = described(image("efa-pytorch"))
    for words in ("vpc.amazonaws.com/efa", "memlock=-1", "IPC_LOCK", "NCCL_NET=Libfabric", "--env=NCCL_NET=Socket"):
        assert words in text
    assert "docker run --gpus=all --device=/dev/infiniband" in text


def test_what_an_erdma_pod_needs():
    """Locked memory is refused to a container that is neither privileged nor allowed it."""
    made = image("erdma-pytorch")
    asked = {setting.what: setting for setting in made.settings}
    assert asked["capabilities"].docker == "--cap-add=IPC_LOCK"
    assert asked["network"].value == "host"
    assert "hostNetwork" in asked["kubernetes"].why
    assert "privileged" in asked["kubernetes"].why
    assert "--cap-add=IPC_LOCK" in describe.command(made)


@pytest.mark.parametrize("target", OURS.targets)
def test_every_image_says_what_it_asks_for_also_where_that_is_nothing(target):
    asked = {setting.what: setting for setting in image(target).settings}
    assert {"gpus", "devices", "ulimits", "capabilities", "shm", "hugepages", "kubernetes"} <= set(asked)
    if OURS.target(target).fabric == "erdma":
        assert (asked["hugepages"].value, asked["hugepages"].docker) == ("none", "")


def test_two_tables_tell_of_the_lock_on_memory_by_the_same_source():
    """What a log says of it, and what an image asks for: one guide's word, and of the same confidence."""
    logs = yamlfile.load(paths.FACTS / "nccl-logs.yaml", NcclLogs)
    asked = KNOWN.running.settings["erdma-ulimits"]
    assert logs.cite(logs.causes["no-memory"]) == KNOWN.running.cite(asked)
    assert "third party" in asked.why


def test_a_job_variable_is_not_in_the_command():
    assert "--env" not in describe.command(image("erdma-pytorch"))


def test_for_programs():
    (told,) = json.loads(describe.as_json([image("erdma-pytorch")], KNOWN))
    assert told["environment"] == {"NCCL_NET": "IB"}
    assert {"what": "kubernetes", "value": "aliyun/erdma"}.items() <= next(
        setting for setting in told["settings"] if setting["what"] == "kubernetes"
    ).items()
    assert all(setting["source"] for setting in told["settings"])


def test_labels_say_the_same():
    made = image("efa-pytorch")
    said = labels.labels(made, "x", labels.Revision("c", 0, None), ())
    for setting in made.settings:
        assert said[f"io.rdma-images.run.{setting.what}"] == setting.value
    assert "--disable-ngc" in said["io.rdma-images.efa-installer.flags"]


def test_nothing_obsolete_is_asked_for():
    """What an image sets or asks for is not among the variables that facts/ call harmful or obsolete."""
    from rdma_images import paths, yamlfile
    from rdma_images.facts.environment import Environment

    rows = yamlfile.load(paths.FACTS / "environment.yaml", Environment).variables.values()
    for target in OURS.targets:
        made = image(target)
        asked = {s.what.removeprefix("variable."): s.value for s in made.settings if s.what.startswith("variable.")}
        versions = {component.name: component.version for component in made.components.values()}
        assert [row.name for row in rows if row.speaks_of(made.environment | asked, made.fabric, versions)] == []
