"""Instance types: EC2's rows agree with EC2, and unknown values are refused by name."""

import gzip
import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.facts.instances import Instances

DEBIAN_NAMES = {"x86_64": "amd64", "arm64": "arm64"}


@pytest.fixture(scope="module")
def table() -> Instances:
    return facts.load().instances


def answered() -> Iterator[tuple[str, dict[str, int | str]]]:
    """Return EC2's answer for its types with NVIDIA GPUs and EFA, in the words of our rows."""
    path = resources.files("moto") / "ec2" / "resources" / "instance_types.json.gz"
    for name, answer in json.loads(gzip.decompress(path.read_bytes())).items():
        network, gpus = answer["NetworkInfo"], answer.get("GpuInfo", {}).get("Gpus", [])
        if not network.get("EfaSupported") or not gpus:
            continue
        (gpu,) = gpus
        speed = re.fullmatch(r"(?:(\d+)x )?(\d+) Gigabit", network["NetworkPerformance"])
        assert speed, network["NetworkPerformance"]
        times, gigabits = speed.groups()
        cards = ["efa" in card["InterfaceTypes"] for card in network["NetworkCards"]]
        assert all(cards[1:]), f"{name}: a card beside card 0 takes no EFA, which a row cannot say"
        assert sum(cards) == network["EfaInfo"]["MaximumEfaInterfaces"], f"{name}: not one EFA a card"
        yield (
            name,
            {
                "interfaces": sum(cards),
                "cards": len(cards),
                "first_card": "rdma" if cards[0] else "ena",
                "gpus": gpu["Count"],
                "gpu": gpu["Name"],
                "gpu_memory": gpu["MemoryInfo"]["SizeInMiB"] // 1024,
                "memory": answer["MemoryInfo"]["SizeInMiB"] // 1024,
                "bandwidth": int(times or 1) * int(gigabits),
                "architecture": DEBIAN_NAMES[answer["ProcessorInfo"]["SupportedArchitectures"][0]],
            },
        )


def test_efa_types_are_what_ec2_answers(table: Instances) -> None:
    efa_types = {name: row for name, row in table.types.items() if row.fabric == "efa"}
    answers = dict(answered())
    assert efa_types.keys() == answers.keys()
    for name, row in efa_types.items():
        assert {value: getattr(row, value) for value in answers[name]} == answers[name], name


def test_a_type_is_found_as_each_service_writes_it(table: Instances) -> None:
    assert table.find("ml.p5.48xlarge") is table.types["p5.48xlarge"]
    assert table.find("ebmgn8v.48xlarge") is table.types["ecs.ebmgn8v.48xlarge"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("p5.49xlarge", "unknown instance type 'p5.49xlarge'\ndid you mean p5.4xlarge or p5.48xlarge or"),
        ("ml.p6e-gb200.36xlarge", "p6e-gb200.36xlarge is not certain: EC2 answered 16 EFA on 17 network cards"),
        ("ebmgn7ix.32xlarge", "ecs.ebmgn7ix.32xlarge is not certain"),
        ("h100", "h100 is a GPU, and no instance type\nchoose from those that have it: p5.4xlarge, p5.48xlarge"),
        ("GB200", "choose from those that have it: p6e-gb200.36xlarge"),
        ("h20", "choose from those that have it: ecs.ebmgn8v.48xlarge"),
    ],
)
def test_what_is_not_known_well_enough_is_refused(table: Instances, name: str, sentence: str) -> None:
    with pytest.raises(RefusedError) as error:
        table.find(name)
    assert sentence in str(error.value)


def test_a_row_of_ones_own_settles_a_type(tmp_path: Path) -> None:
    row = "{fabric: efa, interfaces: 4, gpus: 4, gpu: GB300, gpu-memory: 288, memory: 960, bandwidth: 1600"
    own = tmp_path / "instances.yaml"
    own.write_text(f"types:\n  p6e-gb300.36xlarge: {row}, source: ec2}}\n")
    table = yaml_file.load(paths.FACTS / "instances.yaml", Instances, own)
    assert table.find("p6e-gb300.36xlarge").interfaces == 4
