"""Facts: every value has a source, and nothing unconfirmed is shipped."""

import re
import shutil
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, versions, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.facts import public
from rdma_images.facts import table as facts_table
from rdma_images.facts.environment import Environment
from rdma_images.facts.faults import Fault
from rdma_images.facts.nccl_logs import NcclLogs


@pytest.fixture(scope="module")
def all_facts() -> facts.Facts:
    return facts.load()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(paths.FACTS, tmp_path / "facts")


def refused(folder: Path, name: str, old: str, new: str) -> str:
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RefusedError) as error:
        facts.load(folder).check()
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("torch.yaml", "source: wheel", "source: whel", "unknown source 'whel': did you mean wheel?"),
        ("torch.yaml", "source: wheel", "sauce: wheel", "unknown key 'sauce'"),
        ("torch.yaml", "nccl-on: [linux/amd64, linux/arm64]", "nccl-on: [linux/riscv]", "'linux/riscv', but must be"),
        ("nccl.yaml", "net: [6,", "net: [six,", "valid integer"),
        ("cuda.yaml", "confidence: vendor", "confidence: UNVERIFIED", "'UNVERIFIED', but must be 'artefact', 'vendor'"),
        ("cuda.yaml", "read: 2026-11-21", "read: someday", "valid date"),
        ("nccl.yaml", "  2.32.3:", "  abc:", "'abc' is not a version"),
        ("efa-installer.yaml", "libfabric: 2.7.0amzn2.0", "libfabric: newest", "'newest' is not a version"),
        ("cuda.yaml", "  12:\n", "  13:\n", "'13' is written twice"),
        (
            "bases.yaml",
            "sources:\n",
            "sources:\n  spare: {what: x, confidence: vendor, read: 2026-11-21}\n",
            "no row names the source 'spare': remove it",
        ),
        ("erdma.yaml", "sources: {codenames: ack}", "sources: {codename: ack}", "no value 'codename' in this row"),
    ],
)
def test_what_does_not_hold_together(folder: Path, name: str, old: str, new: str, sentence: str) -> None:
    error = refused(folder, name, old, new)
    assert sentence in error
    assert f"{name}:" in error


def test_third_party_values_say_so(all_facts: facts.Facts) -> None:
    """A third party's word may refuse, and then the reason says whose word it is; or it may order what is proposed."""
    for table in (
        all_facts.bases,
        all_facts.torch,
        all_facts.cuda,
        all_facts.nccl,
        all_facts.efa,
        all_facts.plugin,
        all_facts.erdma,
        all_facts.running,
    ):
        for _, row in table.rows():
            for source in {row.source, *row.sources.values()}:
                if table.sources[source].confidence == "third-party" and row is not all_facts.erdma.working:
                    assert "third party" in row.model_dump()["why"]


def test_torch_pins_a_known_nccl_of_its_cuda(all_facts: facts.Facts) -> None:
    for release in all_facts.torch.releases.values():
        assert versions.major(release.cuda) in all_facts.nccl.releases[release.nccl].cuda


def test_the_newest_torch_has_a_cuda_base(all_facts: facts.Facts) -> None:
    """Of its CUDA, and with a Python that it has wheels for."""
    newest = all_facts.torch.releases[max(all_facts.torch.releases, key=versions.key)]
    fitting = [base for base in all_facts.bases.bases.values() if base.cuda and base.python in newest.python]
    assert newest.cuda in {base.cuda.rpartition(".")[0] for base in fitting if base.cuda}


def test_installers_bring_known_plugins(all_facts: facts.Facts) -> None:
    brought = {release.plugin for release in all_facts.efa.releases.values()} - {None}
    assert brought <= set(all_facts.plugin.releases)


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
    assert " ".join(all_facts.efa.flags_for(version)) == flags


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
    assert all_facts.plugin.network_names(version) == names
    assert all_facts.plugin.net_name(version) == names[0]


def test_blank_cells_of_the_changelog_are_the_row_below(all_facts: facts.Facts) -> None:
    release = all_facts.efa.releases
    assert release["1.43.3"].plugin == release["1.43.2"].plugin == "1.16.3"
    assert release["1.46.0"].rdma_core == release["1.45.0"].rdma_core == "60.amzn0"
    assert release["1.37.0"].plugin is None
    assert release["1.49.0"].plugin is None, "not stated by a vendor, so not known"


def test_a_contradiction_of_many_rows_is_told_once(folder: Path) -> None:
    text = refused(folder, "gpus.yaml", "\n  H200:", "\n  H2000:")
    assert text.count("'H200' has no row in") == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        (
            "nccl.yaml",
            "\n  2.30.7:",
            "\n  2.30.77:",
            r"torch\.yaml:\d+: nccl '2\.30\.7' has no row in .*nccl",
        ),
        ("aws-ofi-nccl.yaml", "\n  1.21.1:", "\n  1.21.111:", r"installer\.yaml:\d+: plugin '1\.21\.1' has no row in"),
        (
            "gpus.yaml",
            "\n  H200:",
            "\n  H2000:",
            r"instances\.yaml:\d+: gpu 'H200' has no row in .*gpus\.yaml:\d+\ndid you mean H2000",
        ),
        (
            "torch.yaml",
            "cuda: 13.2",
            "cuda: wheel",
            r"torch\.yaml:\d+: .*cuda: 'wheel' is not a version",
        ),
        (
            "cuda.yaml",
            "capabilities: [7.5, 8.0, 8.6, 8.7, 8.8, 8.9, 9.0, 10.0, 10.3, 11.0, 12.0, 12.1],",
            "",
            r"cuda\.yaml:\d+: a toolkit without capabilities",
        ),
        ("running.yaml", "  nothing:", "  nothings:", r"running\.yaml:\d+: there is no 'nothing': add it"),
        ("bases.yaml", "python: 3.13", "python: wheel", r"bases\.yaml:\d+: .*python: 'wheel' is not a version"),
        ("efa-installer.yaml", "{version}", "{vresion}", r"installer\.yaml:\d+: .*: '.*' is no address of a version"),
    ],
)
def test_files_that_contradict_each_other(folder: Path, name: str, old: str, new: str, sentence: str) -> None:
    assert re.search(sentence, refused(folder, name, old, new))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{says: "(", why: x, source: logs}', r"causes\.bad\.says: '\(' is no regular expression"),
        ('{says: "a", why: "{nobody}", source: logs}', "causes.bad: why names what is no group of says: 'nobody'"),
    ],
)
def test_a_pattern_that_is_none(tmp_path: Path, row: str, sentence: str) -> None:
    path = tmp_path / "nccl-logs.yaml"
    path.write_text((paths.FACTS / path.name).read_text().replace("\ncauses:\n", f"\ncauses:\n  bad: {row}\n", 1))
    with pytest.raises(RefusedError, match=rf"nccl-logs\.yaml:\d+: {sentence}"):
        yaml_file.load(path, NcclLogs)


NONBLOCKING, FLUSH = "TORCH_NCCL_USE_COMM_NONBLOCKING", "NCCL_GDRCOPY_FLUSH_ENABLE"
VLLM_WINDOWS = "VLLM_USE_NCCL_SYMM_MEM"
EFA_2_30 = {"nccl": "2.30.7", "aws-ofi-nccl": "1.20.0", "efa-installer": "1.47.0"}
ERDMA_2_20 = {"nccl": "2.20.5"}
TUNER = "/opt/aws-ofi-nccl/install/lib/libnccl-ofi-tuner.so"
OF_THE_PLUGIN = """
1.1.2 1.1.3 1.4.0 1.7.0 1.7.2 1.7.3 1.7.4 1.8.0 1.8.1 1.9.0 1.9.1 1.9.2 1.10.0 1.11.1 1.12.0 1.13.0 1.13.1 1.13.2 1.14.0
1.14.2 1.15.0 1.16.0 1.16.1 1.16.2 1.16.3 1.17.0 1.17.1 1.17.2 1.18.0 1.19.1 1.19.2 1.20.0 1.21.0 1.21.1
"""


@pytest.mark.parametrize(
    ("fabric", "components", "setting", "effects"),
    [
        ("efa", EFA_2_30, "NCCL_TUNER_PLUGIN=libnccl-net-ofi.so", ["obsolete"]),
        ("efa", EFA_2_30, f"NCCL_TUNER_PLUGIN={TUNER}", ["obsolete"]),
        ("efa", EFA_2_30, "NCCL_TUNER_PLUGIN=/opt/mine/libnccl-tuner-mine.so", []),
        ("efa", {**EFA_2_30, "nccl": "2.20.5"}, f"NCCL_TUNER_PLUGIN={TUNER}", []),
        ("efa", {**EFA_2_30, "aws-ofi-nccl": "1.15.0"}, f"NCCL_TUNER_PLUGIN={TUNER}", []),
        ("efa", {**EFA_2_30, "nccl": "2.27.3"}, f"NCCL_TUNER_PLUGIN={TUNER}", ["obsolete", "harmful"]),
        ("efa", EFA_2_30, "NCCL_MIN_NCHANNELS=17", ["slow"]),
        ("efa", EFA_2_30, "NCCL_MIN_NCHANNELS=100", ["slow"]),
        ("efa", EFA_2_30, "NCCL_MIN_NCHANNELS=16", []),
        ("efa", EFA_2_30, "CUDA_LAUNCH_BLOCKING=1", ["slow"]),
        ("efa", EFA_2_30, "CUDA_LAUNCH_BLOCKING=0", []),
        ("efa", EFA_2_30, "OFI_NCCL_DISABLE_DMABUF=0", []),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.13.2"}, "OFI_NCCL_DISABLE_DMABUF=false", ["slow"]),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.13.2"}, "OFI_NCCL_DISABLE_DMABUF=1", []),
        ("erdma", EFA_2_30, "NCCL_IB_HCA==erdma", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_IB_HCA==erdma_0,erdma_1", []),
        ("erdma", EFA_2_30, "NCCL_IB_HCA==bond0", ["harmful"]),
        ("erdma", EFA_2_30, "NCCL_IB_ROCE_VERSION_NUM=1", ["obsolete"]),
        ("erdma", EFA_2_30, "NCCL_IB_ROCE_VERSION_NUM=2", []),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=eth0", ["harmful"]),
        ("efa", EFA_2_30, "NCCL_SOCKET_IFNAME=^lo,docker,veth,eni,pod-id-link0", []),
        ("efa", EFA_2_30, "FI_EFA_SET_CUDA_SYNC_MEMOPS=0", ["obsolete"]),
        ("efa", EFA_2_30, "NCCL_SHM_USE_CUDA_MEMCPY=1", ["obsolete"]),
        ("efa", EFA_2_30 | {"nccl": "2.30.4"}, "NCCL_SHM_USE_CUDA_MEMCPY=1", []),
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
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.7.4"}, "OFI_NCCL_PROTOCOL=rdma", ["harmful"]),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.7.4"}, "OFI_NCCL_PROTOCOL=RDMA", []),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.8.0"}, "OFI_NCCL_PROTOCOL=rdma", []),
        ("efa", {"nccl": "2.30.7"}, "OFI_NCCL_PROTOCOL=rdma", []),
        ("efa", {}, "NCCL_CROSS_NIC=1", []),
        ("efa", {"nccl": "2.25.1"}, "NCCL_CROSS_NIC=1", ["slow"]),
        ("erdma", {}, "NCCL_GIN_TYPE=4", []),
        ("erdma", {}, "NCCL_GIN_TYPE=5", []),
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
        ("efa", EFA_2_30, "NCCL_GIN_TYPE=2", ["harmful"]),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.21.1"}, "NCCL_GIN_TYPE=2", []),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.21.1"}, "NCCL_GIN_TYPE=5", ["harmful"]),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.21.1", "nccl": "2.31.2"}, "NCCL_GIN_TYPE=5", []),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.21.1", "nccl": "2.30.4"}, "NCCL_GIN_TYPE=4", ["harmful"]),
        ("efa", EFA_2_30 | {"aws-ofi-nccl": "1.21.1", "nccl": "2.30.7"}, "NCCL_GIN_TYPE=4", []),
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


@pytest.mark.parametrize(
    ("installer", "plugin", "on", "expected"),
    [
        ("1.48.0", "1.20.0", "aarch64", ["on GB200"]),
        ("1.48.0", "1.20.0", "x86_64", []),
        ("1.49.0", "1.20.0", "aarch64", []),
        ("1.49.0", "1.21.0", "x86_64", ["GIN goes"]),
        ("1.50.0", "1.21.1", "aarch64", []),
        ("1.49.0", "", "x86_64", []),  # a plugin from git, or of another project
    ],
)
def test_what_an_installer_lacks(
    all_facts: facts.Facts, installer: str, plugin: str, on: str, expected: list[str]
) -> None:
    rows = [row for row in all_facts.faults.faults if row.of == "efa-installer"]
    versions = {"nccl": "2.30.7", "aws-ofi-nccl": plugin}
    assert [row.why[:8] for row in rows if row.explanation(versions | {"efa-installer": installer}, on)] == expected


def test_a_variable_avoids_what_an_installer_lacks(all_facts: facts.Facts) -> None:
    (row,) = [row for row in all_facts.faults.faults if row.unless and row.of == "efa-installer"]
    versions = {"efa-installer": "1.28.0", "nccl": "2.19.3"}
    explanations = [row.explanation(versions, "", {"FI_EFA_SET_CUDA_SYNC_MEMOPS": value}) for value in ("", "1", "0")]
    assert [bool(text) for text in explanations] == [True, True, False]


@pytest.mark.parametrize(
    ("plugin", "others", "environment", "words"),
    [
        (["1.7.0", "1.7.2"], {}, {}, "LL128 off"),
        (["1.8.0"], {}, {}, "identifiers wrongly"),
        (["1.9.0", "1.9.1"], {"nccl": "2.20.5"}, {"NCCL_TUNER_PLUGIN": TUNER}, "cannot use its tuner"),
        ([], {"nccl": "2.20.5"}, {"NCCL_TUNER_PLUGIN": ""}, "cannot use its tuner"),
        ([], {"nccl": "2.21.5"}, {"NCCL_TUNER_PLUGIN": TUNER}, "cannot use its tuner"),
        (["1.16.0", "1.16.1", "1.16.2", "1.16.3"], {"nccl": "2.20.5"}, {}, "refuses the protocol"),
        (
            ["1.9.2", "1.10.0", "1.11.1", "1.12.0", "1.13.0", "1.13.1", "1.13.2", "1.14.0", "1.14.2", "1.15.0"],
            {"nccl": "2.19.3"},
            {"NCCL_TUNER_PLUGIN": TUNER},
            "refuses the plugin's protocol",
        ),
        ([], {"nccl": "2.19.3"}, {}, "refuses the plugin's protocol"),
        ([], {"nccl": "2.21.5"}, {}, "refuses the protocol"),
        ([], {"nccl": "2.18.6"}, {}, "refuses the protocol"),
        (["1.10.0"], {}, {}, "segmentation"),
        (["1.13.0", "1.13.1"], {}, {}, "small all-reduces"),
        (["1.19.1"], {}, {"OFI_NCCL_EAGER_MAX_SIZE": "-1"}, "several receives in one"),
        ([], {}, {"OFI_NCCL_EAGER_MAX_SIZE": "8192"}, "several receives in one"),
        (["1.1.2"], {"nccl": "2.9.6"}, {}, "find each other"),
        ([], {"nccl": "2.8.4"}, {}, "find each other"),
        (["1.1.2", "1.1.3"], {}, {}, "flushes"),
        (["1.1.2", "1.1.3", "1.4.0", "1.7.0", "1.7.2", "1.7.3"], {}, {}, "GPUDirect RDMA does not start"),
        (["1.7.0"], {}, {}, "ever more memory"),
        (["1.7.0", "1.7.2"], {}, {}, "repeat the copy"),
        (["1.7.0", "1.7.2"], {"nccl": "2.18.5"}, {}, "works with this NCCL"),
        ([], {"nccl": "2.18.3"}, {}, "works with this NCCL"),
        ([], {"nccl": "2.18.5"}, {"NCCL_NVLS_ENABLE": "1"}, "works with this NCCL"),
        (["1.7.3", "1.7.4"], {}, {}, "linked into it"),
        ([], {}, {"NCCL_NVLS_ENABLE": "1"}, "linked into it"),
        (
            ["1.7.0", "1.7.2", "1.7.3", "1.7.4"],
            {"libfabric": "1.17.1"},
            {},
            "with NCCL 2.23.4 and libfabric 1.17.1: compiled with a newer",
        ),
        ([], {"libfabric": "1.18.0"}, {}, "compiled with a newer"),
        ([], {}, {}, "compiled with a newer"),
        (["1.7.0", "1.7.2", "1.7.3", "1.7.4", "1.8.0"], {}, {}, "each operation that failed"),
        (["1.7.0", "1.7.2", "1.7.3", "1.7.4", "1.8.0", "1.8.1"], {}, {}, "4,096"),
        (["1.8.0", "1.8.1", "1.9.0", "1.9.1"], {"nccl": "2.19.3"}, {}, "handle for the device"),
        ([], {"nccl": "2.18.6"}, {}, "handle for the device"),
        (["1.9.0", "1.9.1"], {"nccl": "2.20.3"}, {}, "that the user registers are slower"),
        ([], {"nccl": "2.19.4"}, {}, "that the user registers are slower"),
        (["1.10.0"], {"efa-installer": "1.35.0"}, {}, "with this installer's driver"),
        (["1.12.0"], {"efa-installer": "1.36.0"}, {}, "with the driver of this installer"),
        ([], {"efa-installer": "1.34.0"}, {}, "virtual functions"),
        (["1.9.0"], {}, {}, "lacks headers"),
        (["1.10.0", "1.11.1", "1.12.0"], {}, {"OFI_NCCL_ENDPOINT_PER_COMM": "1"}, "crashes with an endpoint"),
        (["1.10.0", "1.11.1", "1.12.0"], {}, {}, "of one page"),
        ([], {}, {"OFI_NCCL_MR_CACHE_DISABLE": "1"}, "of one page"),
        (
            ["1.14.0", "1.14.2", "1.15.0", "1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1", "1.17.2"],
            {},
            {},
            "each other's locks",
        ),
        (["1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1", "1.17.2"], {}, {}, "threads that abort"),
        (["1.14.0", "1.14.2", "1.15.0"], {}, {"OFI_NCCL_ENDPOINT_PER_COMM": "1"}, "posts no receives"),
        ([], {}, {"OFI_NCCL_ENDPOINT_PER_COMM": "0"}, "endpoint"),
        (
            ["1.10.0", "1.11.1", "1.12.0", "1.13.0", "1.13.1", "1.13.2"],
            {},
            {"NCCL_TUNER_PLUGIN": TUNER},
            "between two nodes",
        ),
        ([], {}, {}, "between two nodes"),
        (["1.13.0", "1.13.1"], {}, {"NCCL_TUNER_PLUGIN": TUNER}, "wrong algorithm"),
        ([], {}, {}, "wrong algorithm"),
        (
            ["1.11.1", "1.12.0", "1.13.0", "1.13.1", "1.13.2", "1.14.0", "1.14.2", "1.15.0", "1.16.0"],
            {},
            {},
            "speed of PCI",
        ),
        (["1.14.0", "1.14.2"], {"libfabric": "2.1.0amzn2.0"}, {}, "1,024"),
        ([], {"libfabric": "1.22.0amzn4.0"}, {}, "1,024"),
        ([], {"libfabric": "2.3.0"}, {}, "1,024"),
        (["1.14.0", "1.14.2", "1.15.0", "1.16.0", "1.16.1", "1.16.2", "1.16.3"], {}, {}, "own lock"),
        (["1.14.2", "1.15.0", "1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1"], {}, {}, "as g5"),
        (["1.18.0"], {}, {}, "connection that closes"),
        (
            ["1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1", "1.17.2", "1.18.0", "1.19.1", "1.19.2"],
            {},
            {},
            "lost its EFA",
        ),
        (["1.17.0", "1.17.1", "1.17.2", "1.18.0", "1.19.1", "1.19.2", "1.20.0"], {}, {}, "CUDA graph"),
    ],
)
def test_what_release_notes_say_was_wrong(
    all_facts: facts.Facts, plugin: list[str], others: dict[str, str], environment: dict[str, str], words: str
) -> None:
    """Of all these releases it is so of those named alone."""
    every = OF_THE_PLUGIN.split()
    rows = [row for row in all_facts.faults.faults if row.of == "aws-ofi-nccl"]
    with_all = {"nccl": "2.23.4", **others}
    explanations = {
        v: [row.explanation(with_all | {"aws-ofi-nccl": v}, "x86_64", environment) for row in rows] for v in every
    }
    assert [v for v in every if any(words in text for text in explanations[v])] == plugin


@pytest.mark.parametrize(
    ("words", "bad", "good"),
    [
        ("are aborted", ["1.13.0", "1.15.0"], ["1.12.1", "1.16.0", "1.21.1"]),
        ("EFA cancelled", ["1.10.0", "1.19.2"], ["1.9.2", "1.20.0"]),
        ("as without an EFA", ["1.16.3", "1.17.1"], ["1.17.2", "1.21.1"]),
        ("larger than the receive", ["1.7.0", "1.9.1"], ["1.6.0", "1.9.2"]),
        ("none of the interfaces", ["1.16.1", "1.20.0"], ["1.16.0", "1.21.0"]),
    ],
)
def test_releases_of_the_plugin_that_have_a_fault(
    all_facts: facts.Facts, words: str, bad: list[str], good: list[str]
) -> None:
    (row,) = [row for row in all_facts.faults.faults if row.of == "aws-ofi-nccl" and words in row.why]
    explanations = [
        bool(row.explanation({"aws-ofi-nccl": v, "nccl": "2.28.9"}, "aarch64", fabric="efa")) for v in (*bad, *good)
    ]
    assert explanations == [True] * len(bad) + [False] * len(good)


@pytest.mark.parametrize(
    ("only_with", "value", "is_so"),
    [
        ("CONF=grow:True", "grow:True", True),
        ("CONF=grow:True", "max_split_size_mb:512,grow:True", True),
        ("CONF=grow:True", "max_split_size_mb: 512, grow: True", True),
        ("CONF=grow:True", "grow:False,max_split_size_mb:512", False),
        ("CONF", "0", True),
        ("CONF", "", False),
    ],
)
def test_a_variable_that_a_fault_depends_on_may_hold_a_list(only_with: str, value: str, is_so: bool) -> None:
    row = Fault(only_with=only_with, why="", fix="", source="x")
    assert row.is_avoided({"CONF": value}) == (not is_so)


def test_a_fault_beside_an_nccl_is_none_beside_an_older_one(all_facts: facts.Facts) -> None:
    (row,) = [row for row in all_facts.faults.faults if "as without an EFA" in row.why]
    explanations = [row.explanation({"aws-ofi-nccl": "1.17.1", "nccl": nccl}) for nccl in ("2.27.7", "2.28.3")]
    assert [bool(text) for text in explanations] == [False, True]


@pytest.mark.parametrize(
    ("words", "bad", "good", "machine", "environment"),
    [
        ("deadlocks", ["1.11.2"], ["1.12.0"], "x86_64", {}),
        ("not ready", ["1.18.0", "1.18.2amzn1.0"], ["1.17.1", "1.18.3", "1.19.0"], "x86_64", {}),
        ("doorbell", ["2.3.0", "2.3.1amzn4.0"], ["2.1.0", "2.4.0amzn1.0"], "aarch64", {}),
        ("doorbell", [], ["2.3.0"], "x86_64", {}),
        ("atomic", ["1.22.0", "2.4.0"], ["2.5.0"], "x86_64", {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}),
        ("atomic", [], ["2.4.0"], "x86_64", {"FI_EFA_ENABLE_SHM_TRANSFER": "1"}),
    ],
)
def test_what_libfabric_says_was_wrong(
    all_facts: facts.Facts, words: str, bad: list[str], good: list[str], machine: str, environment: dict[str, str]
) -> None:
    (row,) = [row for row in all_facts.faults.faults if row.of == "libfabric" and words in row.why]
    explanations = [
        bool(row.explanation({"libfabric": v, "nccl": "2.27.7"}, machine, environment)) for v in (*bad, *good)
    ]
    assert explanations == [True] * len(bad) + [False] * len(good)


@pytest.mark.parametrize(
    ("words", "bad", "good", "fabric", "machine", "environment"),
    [
        ("between more than four", ["2.19.4"], ["2.19.3", "2.20.3"], "efa", "x86_64", {}),
        ("with one interface for each GPU trees", ["2.18.1"], ["2.17.1", "2.18.3"], "efa", "x86_64", {}),
        ("two ranks that", ["2.19.1", "2.19.4"], ["2.18.6", "2.20.3"], "erdma", "x86_64", {}),
        ("reports an error", ["2.21.5", "2.25.1"], ["2.20.5", "2.26.2"], "efa", "x86_64", {}),
        ("reports an error", [], ["2.21.5"], "erdma", "x86_64", {}),
        ("reports an error", [], ["2.21.5"], "efa", "x86_64", {"OFI_NCCL_ABORT_ON_ERROR": "1"}),
        ("each address of a device", ["2.21.5", "2.25.1"], ["2.20.5", "2.26.2"], "erdma", "x86_64", {}),
        ("each address of a device", [], ["2.21.5"], "erdma", "x86_64", {"NCCL_IB_GID_INDEX": "1"}),
        ("CAP_SYS_NICE", ["2.24.3", "2.26.2"], ["2.23.4", "2.26.3"], "efa", "x86_64", {}),
        ("more than 80 ranks", ["2.25.1", "2.26.3"], ["2.24.3", "2.26.5"], "efa", "aarch64", {}),
        ("share host memory", ["2.27.3"], ["2.26.6", "2.27.5"], "efa", "aarch64", {}),
        ("before Blackwell", ["2.27.5", "2.27.6"], ["2.27.3", "2.27.7"], "efa", "x86_64", {}),
        ("network plugin does not start", ["2.28.3"], ["2.27.7", "2.28.7"], "efa", "x86_64", {}),
        ("loses the slots", ["2.28.9", "2.29.2"], ["2.28.7", "2.29.3"], "efa", "aarch64", {}),
        ("loses the slots", [], ["2.28.9"], "efa", "x86_64", {}),
        ("has not arrived", ["2.27.7", "2.29.7"], ["2.30.3"], "efa", "aarch64", {"NCCL_GDRCOPY_ENABLE": "1"}),
        ("has not arrived", [], ["2.27.7"], "efa", "aarch64", {}),
        ("CUDA_LAUNCH_BLOCKING", ["2.14.3", "2.16.5"], ["2.17.1"], "efa", "x86_64", {"CUDA_LAUNCH_BLOCKING": "1"}),
        ("can crash at its start", ["2.12.7", "2.12.10"], ["2.11.4", "2.12.12"], "efa", "x86_64", {}),
        ("THREAD_NAME", ["2.12.7", "2.12.10"], ["2.11.4", "2.12.12"], "efa", "x86_64", {"NCCL_SET_THREAD_NAME": "1"}),
        ("THREAD_NAME", [], ["2.12.7"], "efa", "x86_64", {}),
        ("not aligned", ["2.14.3"], ["2.15.5"], "efa", "x86_64", {}),
        ("different sizes", ["2.14.3", "2.17.1"], ["2.18.1"], "efa", "x86_64", {}),
        ("runs out of ports", ["2.14.3", "2.19.3"], ["2.19.4"], "efa", "x86_64", {}),
        ("were split", ["2.19.1", "2.20.3"], ["2.18.6", "2.20.5"], "efa", "x86_64", {}),
        ("were split", [], ["2.19.3"], "efa", "x86_64", {"NCCL_CUMEM_ENABLE": "0"}),
        ("one can take a message", ["2.20.5"], ["2.21.5"], "efa", "x86_64", {}),
        ("of different kinds", ["2.21.5"], ["2.22.3"], "efa", "x86_64", {}),
        ("NUMA", ["2.22.3"], ["2.23.4"], "erdma", "x86_64", {}),
        ("NUMA", [], ["2.22.3"], "efa", "x86_64", {}),
        ("own network IB", ["2.23.4"], ["2.24.3"], "erdma", "x86_64", {}),
        ("own network IB", [], ["2.23.4"], "efa", "x86_64", {}),
        ("registers by DMA-BUF", ["2.20.3", "2.23.4"], ["2.19.4", "2.24.3"], "efa", "x86_64", {}),
        ("registers by DMA-BUF", [], ["2.23.4"], "erdma", "x86_64", {}),
        ("is aborted", ["2.14.3", "2.25.1"], ["2.26.2"], "erdma", "x86_64", {}),
        ("share resources", ["2.18.1", "2.26.6"], ["2.17.1", "2.27.3"], "efa", "x86_64", {}),
        ("GDR_C2C", ["2.26.2"], ["2.25.1", "2.26.3"], "efa", "aarch64", {"NCCL_NET_GDR_C2C": "1"}),
        ("GDR_C2C", [], ["2.26.2"], "efa", "aarch64", {}),
        (
            "with the interface 2",
            ["2.26.2", "2.26.5"],
            ["2.25.1", "2.26.6"],
            "efa",
            "x86_64",
            {"NCCL_PROFILER_PLUGIN": "a"},
        ),
        ("with the interface 2", [], ["2.26.2"], "efa", "x86_64", {}),
        ("RAS", ["2.24.3", "2.26.6"], ["2.23.4", "2.27.3"], "efa", "x86_64", {}),
        ("RAS", [], ["2.24.3"], "efa", "x86_64", {"NCCL_RAS_ENABLE": "0"}),
        (
            "does not start with NCCL_TOPO",
            ["2.21.5", "2.26.6"],
            ["2.20.5", "2.27.3"],
            "efa",
            "aarch64",
            {"NCCL_TOPO_FILE": "/a"},
        ),
        ("does not start with NCCL_TOPO", [], ["2.26.6"], "efa", "x86_64", {"NCCL_TOPO_FILE": "/a"}),
        ("CROSS_NIC=0", ["2.28.3"], ["2.28.7"], "efa", "x86_64", {"NCCL_CROSS_NIC": "0"}),
        ("CROSS_NIC=0", [], ["2.28.3"], "efa", "x86_64", {"NCCL_CROSS_NIC": "1"}),
        ("errors of CUDA", ["2.28.3"], ["2.27.7", "2.28.7"], "efa", "x86_64", {}),
        ("order of operations", ["2.28.3", "2.28.7"], ["2.27.7", "2.28.9"], "efa", "x86_64", {}),
        ("on A100", ["2.25.1", "2.28.9"], ["2.24.3", "2.29.2"], "erdma", "x86_64", {}),
        ("on A100", [], ["2.27.7"], "efa", "x86_64", {}),
        ("COMM_ID", ["2.29.2", "2.29.7"], ["2.28.9", "2.30.3"], "efa", "x86_64", {"NCCL_COMM_ID": "10.0.0.1:2222"}),
        ("COMM_ID", [], ["2.29.7"], "efa", "x86_64", {}),
        ("side by side", ["2.21.5", "2.29.7"], ["2.20.5", "2.30.3"], "efa", "aarch64", {}),
        ("do not block", ["2.26.2", "2.26.5"], ["2.25.1", "2.27.3"], "efa", "x86_64", {NONBLOCKING: "1"}),
        ("do not block", [], ["2.26.2"], "efa", "x86_64", {NONBLOCKING: "0"}),
        ("before that was copied", ["2.18.1", "2.18.5"], ["2.17.1", "2.18.6"], "erdma", "x86_64", {}),
        ("the network failed", ["2.18.1", "2.18.6"], ["2.17.1", "2.19.1"], "efa", "x86_64", {}),
        ("a signal", ["2.12.7", "2.26.6"], ["2.27.3"], "efa", "x86_64", {}),
        ("on g7e", ["2.25.1"], ["2.24.3", "2.26.2"], "efa", "x86_64", {}),
        ("on g7e", [], ["2.25.1"], "erdma", "x86_64", {}),
        ("vLLM's symmetric", ["2.28.3", "2.30.4"], ["2.27.7", "2.30.7"], "efa", "x86_64", {VLLM_WINDOWS: "1"}),
        ("vLLM's symmetric", [], ["2.28.3"], "efa", "x86_64", {VLLM_WINDOWS: "0"}),
        ("torch's symmetric", ["2.28.3", "2.30.4"], ["2.27.7", "2.30.7"], "efa", "x86_64", {"TORCH_SYMMMEM": "NCCL"}),
        ("torch's symmetric", [], ["2.28.3"], "efa", "x86_64", {"TORCH_SYMMMEM": "NVSHMEM"}),
        ("by way of another GPU", ["2.29.7", "2.30.4"], ["2.29.3", "2.30.7"], "efa", "x86_64", {}),
        ("by way of another GPU", [], ["2.29.7"], "efa", "x86_64", {"NCCL_PXN_DISABLE": "1"}),
        ("several GPUs, GDRCopy", ["2.29.7"], ["2.30.3"], "efa", "x86_64", {"NCCL_GDRCOPY_ENABLE": "1"}),
        ("several GPUs, GDRCopy", [], ["2.29.7"], "efa", "x86_64", {}),
        ("data too early", ["2.30.4"], ["2.30.7"], "efa", "x86_64", {FLUSH: "1"}),
        ("data too early", [], ["2.30.4"], "efa", "aarch64", {FLUSH: "1"}),
        ("for x86 alone", ["2.30.4"], ["2.30.7"], "efa", "aarch64", {FLUSH: "1"}),
        ("for x86 alone", [], ["2.30.4"], "efa", "x86_64", {FLUSH: "1"}),
        ("processors near one GPU", ["2.29.2", "2.29.7"], ["2.28.9", "2.30.3"], "efa", "x86_64", {}),
        ("nobody asked for", ["2.31.2"], ["2.30.7", "2.32.3"], "efa", "x86_64", {"NCCL_PROFILER_PLUGIN": "a"}),
        ("nobody asked for", [], ["2.31.2"], "efa", "x86_64", {}),
        ("RUNTIME_CONNECT", ["2.31.2"], ["2.30.7", "2.32.3"], "efa", "x86_64", {"NCCL_RUNTIME_CONNECT": "0"}),
        ("RUNTIME_CONNECT", [], ["2.31.2"], "efa", "x86_64", {}),
    ],
)
def test_what_nccl_says_was_wrong(
    all_facts: facts.Facts,
    words: str,
    bad: list[str],
    good: list[str],
    fabric: str,
    machine: str,
    environment: dict[str, str],
) -> None:
    (row,) = [row for row in all_facts.faults.faults if row.of == "nccl" and words in row.why]
    explanations = [bool(row.explanation({"nccl": v}, machine, environment, fabric)) for v in (*bad, *good)]
    assert explanations == [True] * len(bad) + [False] * len(good)


@pytest.mark.parametrize(
    ("versions", "environment", "reported"),
    [
        (["2.5.0", "2.5.1+cu124"], {}, True),
        (["2.4.1", "2.5.0a0+e000cf0", "2.6.0a0+df5bbc0", "2.6.0+cu124"], {}, False),
        (["2.5.1+cu124"], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, False),
        (["2.5.1+cu124"], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}, True),
    ],
)
def test_the_restarts_of_torch(
    all_facts: facts.Facts, versions: list[str], environment: dict[str, str], reported: bool
) -> None:
    (row,) = [row for row in all_facts.faults.faults if row.of == "torch"]
    assert [row.holds_for({"torch": v}, "x86_64", environment, "efa") for v in versions] == [reported] * len(versions)


@pytest.mark.parametrize("fabric", ["efa", "erdma"])
def test_no_fault_is_known_of_the_newest(all_facts: facts.Facts, fabric: str) -> None:
    newest = {"nccl": "2.32.3", "aws-ofi-nccl": "1.21.1", "libfabric": "2.6.0", "efa-installer": "1.50.0"}
    newest["torch"] = "2.15.0"
    assert [row.why for row in all_facts.faults.faults if row.explanation(newest, "aarch64", {}, fabric)] == []


@pytest.mark.parametrize(("plugin", "least"), [("1.7.4", []), ("1.8.0", ["1.18.0"]), ("1.21.1", ["1.22.0"])])
def test_the_libfabric_that_a_plugin_asks_for(all_facts: facts.Facts, plugin: str, least: list[str]) -> None:
    assert [row.libfabric for row in all_facts.plugin.asks if row.holds(plugin)] == least


def test_no_job_is_advised_what_an_image_must_not_set(all_facts: facts.Facts) -> None:
    table = yaml_file.load(paths.FACTS / "environment.yaml", Environment)
    for advised in all_facts.running.variables.values():
        versions = EFA_2_30 if advised.fabric == "efa" else {"nccl": "2.30.7"}
        environment = {advised.name: advised.value}
        rows = [name for name, v in table.variables.items() if v.applies_to(environment, advised.fabric, versions)]
        # A job knows its own interfaces; an image that names eth0 does not.
        assert rows == [], f"{advised.name}={advised.value}"


def test_public_files_are_listed_with_the_rows_that_cite_them() -> None:
    found = {(file.facts, file.source, file.path): file for file in public.files()}
    tuner = found["environment.yaml", "tuner", "src/tuner/nccl_ofi_tuner.cpp"]
    assert tuner.address == "https://github.com/aws/aws-ofi-nccl/blob/2daf7d30/src/tuner/nccl_ofi_tuner.cpp"
    assert tuner.rows == ("variables.protocol", "variables.algorithm")
    versions = [file.commit for file in public.files() if file.source == "nccl-plugins"]
    assert versions == ["72d24320", "3ea7eedf"]


def test_every_facts_file_that_names_a_commit_is_listed() -> None:
    naming = {path.name for path in paths.FACTS.glob("*.yaml") if re.search(r" @[0-9a-f]{7,40}\b", path.read_text())}
    assert {file.facts for file in public.files()} == naming
    assert all(file.rows for file in public.files())


def test_a_table_is_parsed_once_until_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "nccl-logs.yaml"
    shutil.copy(paths.PROJECT / "facts" / file.name, file)
    first = facts_table.read(NcclLogs, tmp_path)
    assert facts_table.read(NcclLogs, tmp_path) is first
    file.write_text(file.read_text() + "# a note\n")
    assert facts_table.read(NcclLogs, tmp_path) is not first


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"null\n", "must be a mapping"),
        (b"sources: [\n", "not valid YAML"),
        (b"quellen: {}\n", "the file has no 'sources'"),
        (b"sources: {}\n# \xff\n", "not UTF-8"),
    ],
)
def test_public_files_of_broken_facts_are_refused_with_their_line(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "gpus.yaml").write_bytes(content)
    with pytest.raises(RefusedError, match=rf"gpus\.yaml:\d: .*{sentence}"):
        public.files(tmp_path)
