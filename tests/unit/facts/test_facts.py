"""Facts: every value has a source, and nothing unconfirmed is shipped."""

import re
import shutil
from functools import cached_property
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.components import package
from rdma_images.components.gdrcopy import Gdrcopy
from rdma_images.core import paths, versions, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.facts import facts_file
from rdma_images.facts.bases import Base
from rdma_images.facts.environment import Environment, KnownVariables
from rdma_images.facts.fabric_software import InstallerRelease
from rdma_images.facts.faults import PackageFaults
from rdma_images.facts.instances import Instances
from rdma_images.facts.launchers import Launchers
from rdma_images.facts.nccl_logs import NcclLogFacts
from rdma_images.facts.unsupported import Unsupported
from rdma_images.plan.source_builds import SourcePackages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(paths.FACTS, tmp_path / "facts")


def refused(folder: Path, name: str, old: str, new: str) -> str:
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RefusedError) as error:
        facts.load(folder)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("torch.yaml", "source: wheel", "source: whel", "unknown source 'whel': did you mean wheel?"),
        ("torch.yaml", "source: wheel", "sauce: wheel", "unknown key 'sauce'"),
        ("torch.yaml", "nccl-on: [linux/amd64, linux/arm64]", "nccl-on: [linux/riscv]", "'linux/riscv', but must be"),
        ("nccl.yaml", "net: [6,", "net: [six,", "must be a whole number"),
        ("cuda.yaml", "confidence: vendor", "confidence: UNVERIFIED", "'UNVERIFIED', but must be 'artefact', 'vendor'"),
        ("cuda.yaml", "read: 2026-11-21", "read: someday", "valid date"),
        ("nccl.yaml", "  2.32.3:", "  abc:", "'abc' is not a version"),
        ("efa-installer.yaml", "libfabric: 2.7.0amzn2.0", "libfabric: newest", "'newest' is not a version"),
        ("cuda.yaml", "  12:\n", "  13:\n", "'13' is written twice"),
        (
            "erdma.yaml",
            "sources: {platforms: docker}",
            "sources: {platform: docker}",
            "no value 'platform' in this row",
        ),
    ],
)
def test_what_does_not_hold_together(folder: Path, name: str, old: str, new: str, sentence: str) -> None:
    error = refused(folder, name, old, new)
    assert sentence in error
    assert f"{name}:" in error


def test_third_party_values_say_so(all_facts: facts.Facts) -> None:
    """A third party may refuse, and the reason names it; it may order proposals, or say what an installer brings."""
    for name in ("bases", "torch", "cuda", "nccl", "efa_installer", "aws_ofi_nccl", "erdma", "running"):
        table = getattr(all_facts, name)
        for _, row in table.rows():
            for source in {row.source, *row.sources.values()}:
                fills_in = row is all_facts.erdma.nccl or isinstance(row, InstallerRelease | Base)
                if table.sources[source].confidence == "third-party" and not fills_in:
                    assert "third party" in row.model_dump()["why"]


def test_each_source_is_named_by_a_row(all_facts: facts.Facts) -> None:
    names = [name for name, attribute in vars(facts.Facts).items() if isinstance(attribute, cached_property)]
    others = (Environment, KnownVariables, PackageFaults, Launchers, NcclLogFacts, Unsupported, Gdrcopy, SourcePackages)
    tables = [getattr(all_facts, name) for name in names] + [all_facts.table(model) for model in others]
    for table in (*tables, *(package.package_facts(name, all_facts) for name in package.component_names())):
        named = {source for _, row in table.rows() for source in (row.source, *row.sources.values())}
        assert table.sources.keys() == named, table.where()


def test_torch_pins_a_known_nccl_of_its_cuda(all_facts: facts.Facts) -> None:
    for release in all_facts.torch.releases.values():
        assert versions.major(release.cuda) in all_facts.nccl.releases[release.nccl].cuda


def test_the_newest_torch_has_a_cuda_base(all_facts: facts.Facts) -> None:
    """Of its CUDA, and with a Python that it has wheels for."""
    newest = all_facts.torch.releases[max(all_facts.torch.releases, key=versions.sort_key)]
    fitting = [base for base in all_facts.bases.bases.values() if base.cuda and base.python in newest.python]
    assert newest.cuda in {base.cuda.rpartition(".")[0] for base in fitting if base.cuda}


def test_installers_bring_known_plugins(all_facts: facts.Facts) -> None:
    bundled = {release.plugin for release in all_facts.efa_installer.releases.values()} - {None}
    assert bundled <= set(all_facts.aws_ofi_nccl.releases)


def test_interfaces_have_no_gap_at_the_new_end(all_facts: facts.Facts) -> None:
    """What NCCL accepts is a row of numbers: a hole would be a misread string."""
    for release in all_facts.nccl.releases.values():
        assert list(release.net) == list(range(min(release.net), max(release.net) + 1))


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("1.29.1", "-y --skip-kmod --skip-limit-conf --no-verify"),
        ("1.47.0", "-y --skip-kmod --skip-limit-conf --no-verify --mpi=openmpi4"),
        ("1.48.0", "-y --skip-kmod --skip-limit-conf --no-verify --mpi=openmpi4 --disable-build-ngc --disable-ngc"),
        ("1.50.0", "-y --skip-kmod --skip-limit-conf --no-verify --mpi=openmpi4 --disable-build-ngc --disable-ngc"),
    ],
)
def test_flags_by_installer_version(all_facts: facts.Facts, version: str, flags: str) -> None:
    assert " ".join(map(str, all_facts.efa_installer.flags_for(version))) == flags


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.11.0", ["AWS Libfabric"]),
        ("1.12.1", ["AWS Libfabric"]),
        ("1.13.0", ["Libfabric", "AWS Libfabric", "OFI"]),
        ("1.21.1", ["Libfabric", "AWS Libfabric", "OFI"]),
    ],
)
def test_names_that_the_plugin_answers_to(all_facts: facts.Facts, version: str, names: list[str]) -> None:
    assert all_facts.aws_ofi_nccl.network_names(version) == names


def test_blank_cells_of_the_changelog_are_the_row_below(all_facts: facts.Facts) -> None:
    release = all_facts.efa_installer.releases
    assert release["1.43.3"].plugin == release["1.43.2"].plugin == "1.16.3"
    assert release["1.46.0"].rdma_core == release["1.45.0"].rdma_core == "60.amzn0"
    assert release["1.37.0"].plugin is None


def test_a_contradiction_of_many_rows_is_reported_once(folder: Path) -> None:
    text = refused(folder, "gpus.yaml", "\n  H200:", "\n  H2000:")
    assert text.count("'H200' has no row in") == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("nccl.yaml", "\n  2.30.7:", "\n  2.30.77:", r"torch\.yaml:\d+: nccl '2\.30\.7' has no row in .*nccl"),
        ("aws-ofi-nccl.yaml", "\n  1.21.1:", "\n  1.21.111:", r"installer\.yaml:\d+: plugin '1\.21\.1' has no row in"),
        (
            "gpus.yaml",
            "\n  H200:",
            "\n  H2000:",
            r"instances\.yaml:\d+: gpu 'H200' has no row in .*gpus\.yaml:\d+\ndid you mean H2000",
        ),
        ("torch.yaml", "cuda: 13.2", "cuda: wheel", r"torch\.yaml:\d+: .*cuda: 'wheel' is not a version"),
        (
            "bases.yaml",
            "stand-in: debian13",
            "stand-in: debian31",
            r"stand_in 'debian31' has no row in .*\ndid you mean",
        ),
        ("bases.yaml", "python: 3.13", "python: wheel", r"bases\.yaml:\d+: .*python: 'wheel' is not a version"),
        ("efa-installer.yaml", "{version}", "{vresion}", r"installer\.yaml:\d+: .*: '.*' is no address of a version"),
    ],
)
def test_files_that_contradict_each_other(folder: Path, name: str, old: str, new: str, sentence: str) -> None:
    assert re.search(sentence, refused(folder, name, old, new))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{pattern: "(", why: x, source: logs}', r"causes\.bad\.pattern: '\(' is no regular expression"),
        ('{pattern: "a", why: "{nobody}", source: logs}', "causes.bad: why names a group that pattern lacks: 'nobody'"),
    ],
)
def test_a_pattern_that_is_none(tmp_path: Path, row: str, sentence: str) -> None:
    path = tmp_path / "nccl-logs.yaml"
    path.write_text((paths.FACTS / path.name).read_text().replace("\ncauses:\n", f"\ncauses:\n  bad: {row}\n", 1))
    with pytest.raises(RefusedError, match=rf"nccl-logs\.yaml:\d+: {sentence}"):
        yaml_file.load(path, NcclLogFacts)


EFA_2_30 = {"nccl": "2.30.7", "aws-ofi-nccl": "1.20.0", "efa-installer": "1.47.0"}
ERDMA_2_20 = {"nccl": "2.20.5"}
TUNER = "/opt/aws-ofi-nccl/install/lib/libnccl-ofi-tuner.so"


@pytest.mark.parametrize(
    ("fabric", "components", "setting", "effects"),
    [
        ("efa", EFA_2_30, "NCCL_TUNER_PLUGIN=/opt/mine/libnccl-tuner-mine.so", []),
        ("efa", {**EFA_2_30, "nccl": "2.20.5"}, f"NCCL_TUNER_PLUGIN={TUNER}", []),
        ("efa", {**EFA_2_30, "nccl": "2.27.3"}, f"NCCL_TUNER_PLUGIN={TUNER}", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_IB_HCA==erdma", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_IB_HCA==erdma_0,erdma_1", []),
        ("erdma", EFA_2_30, "NCCL_IB_HCA==bond0", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=eth0", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=^lo,docker,veth,eni,pod-id-link0", []),
        ("erdma", EFA_2_30, "NCCL_IB_GID_INDEX=1", ["slow"]),
        ("erdma", EFA_2_30, "NCCL_IB_HCA=^mlx5", []),
        ("erdma", EFA_2_30, "NCCL_IB_HCA=bond0", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_IB_HCA=erdma_0,erdma_1", []),
        ("erdma", EFA_2_30, "NCCL_NET=IB", []),
        ("efa", EFA_2_30, "NCCL_NET=", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_NET=socket", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_NET=AWS Libfabric", []),
        ("efa", EFA_2_30, "NCCL_NET=OFI", []),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.12.1"}, "NCCL_NET=AWS Libfabric", []),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.12.1"}, "NCCL_NET=Libfabric", ["harmful"]),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.13.0"}, "NCCL_NET=Libfabric", []),
        ("efa", EFA_2_30, "NCCL_NET_PLUGIN=", ["harmful"]),
        ("efa", EFA_2_30 | {"nccl": "2.26.5"}, "NCCL_NET_PLUGIN=", []),
        ("efa", EFA_2_30, "FI_PROVIDER=efa", []),
        ("efa", EFA_2_30, "FI_PROVIDER=EFA", ["slow"]),
        ("efa", EFA_2_30, "FI_PROVIDER=^efa", ["harmful"]),
        ("efa", EFA_2_30, "FI_HMEM=system", ["harmful"]),
        ("efa", EFA_2_30, "FI_HMEM=system;cuda", []),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=^docker0", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=lo", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=^lo,docker,eth", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=^=lo,eth0", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=^lo,eth1", []),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=^lo,ens6", []),
        ("erdma", EFA_2_30, "NCCL_SOCKET_IFNAME=ens6", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_SOCKET_IFNAME=eth0,enp1s0f0np0", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_SOCKET_IFNAME=eth,en,ib0", []),
        ("efa", EFA_2_30, "NCCL_GIN_TYPE=2", ["harmful"]),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.21.1"}, "NCCL_GIN_TYPE=2", []),
        ("efa", EFA_2_30, "NCCL_GIN_ENABLE=0", []),
        ("efa", EFA_2_30, "NVIDIA_DRIVER_CAPABILITIES=all", []),
        ("efa", EFA_2_30, "NVIDIA_DRIVER_CAPABILITIES=compute", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_IB_GID_INDEX=-1", []),
        ("erdma", ERDMA_2_20, "NCCL_IB_GID_INDEX=1", []),
    ],
)
def test_what_a_variable_does(fabric: str, components: dict[str, str], setting: str, effects: list[str]) -> None:
    table = yaml_file.load(paths.FACTS / "environment.yaml", Environment)
    environment = dict([setting.split("=", 1)])
    assert [v.effect for v in table.variables.values() if v.applies_to(environment, fabric, components)] == effects


def test_gloo_takes_names_with_commas_between_them() -> None:
    table = yaml_file.load(paths.FACTS / "environment.yaml", Environment)
    rows = [row for row in table.variables.values() if row.name == "GLOO_SOCKET_IFNAME"]
    assert all("init.cpp" in table.cite(row) for row in rows)


@pytest.mark.parametrize(("plugin", "minimum"), [("1.7.4", []), ("1.8.0", ["1.18.0"]), ("1.21.1", ["1.22.0"])])
def test_the_libfabric_that_a_plugin_asks_for(all_facts: facts.Facts, plugin: str, minimum: list[str]) -> None:
    assert [row.value for row in all_facts.aws_ofi_nccl.min_libfabric if row.holds(plugin)] == minimum


def test_no_job_is_advised_what_an_image_must_not_set(all_facts: facts.Facts) -> None:
    table = yaml_file.load(paths.FACTS / "environment.yaml", Environment)
    for advised in all_facts.running.variables.values():
        image_versions = EFA_2_30 if advised.fabric == "efa" else {"nccl": "2.30.7"}
        environment = {advised.name: advised.value}
        rows = [
            name for name, v in table.variables.items() if v.applies_to(environment, advised.fabric, image_versions)
        ]
        # A job knows its own interfaces; an image that names eth0 does not.
        assert rows == [], f"{advised.name}={advised.value}"


def test_a_table_read_alone_is_the_one_of_all_facts() -> None:
    assert facts_file.read(Instances) is facts.load().instances
