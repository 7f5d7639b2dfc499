"""Facts: every value has a source, and nothing unconfirmed is shipped."""

import re
import shutil
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, versions, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.facts import public
from rdma_images.facts.environment import Environment
from rdma_images.facts.nccl_logs import NcclLogs


@pytest.fixture(scope="module")
def known() -> facts.Facts:
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


def test_third_party_values_say_so(known: facts.Facts) -> None:
    """A third party's word may refuse, and then the reason says whose word it is; or it may order what is proposed."""
    for table in (
        known.bases,
        known.torch,
        known.cuda,
        known.nccl,
        known.efa,
        known.plugin,
        known.erdma,
        known.running,
    ):
        for _, row in table.rows():
            for source in {row.source, *row.sources.values()}:
                if table.sources[source].confidence == "third-party" and row is not known.erdma.working:
                    assert "third party" in row.model_dump()["why"]


def test_torch_pins_a_known_nccl_of_its_cuda(known: facts.Facts) -> None:
    for release in known.torch.releases.values():
        assert versions.major(release.cuda) in known.nccl.releases[release.nccl].cuda


def test_the_newest_torch_has_a_cuda_base(known: facts.Facts) -> None:
    """Of its CUDA, and with a Python that it has wheels for."""
    newest = known.torch.releases[max(known.torch.releases, key=versions.key)]
    fitting = [base for base in known.bases.bases.values() if base.cuda and base.python in newest.python]
    assert newest.cuda in {base.cuda.rpartition(".")[0] for base in fitting if base.cuda}


def test_installers_bring_known_plugins(known: facts.Facts) -> None:
    brought = {release.plugin for release in known.efa.releases.values()} - {None}
    assert brought <= set(known.plugin.releases)


def test_interfaces_have_no_gap_at_the_new_end(known: facts.Facts) -> None:
    """What NCCL accepts is a row of numbers: a hole would be a misread string."""
    for release in known.nccl.releases.values():
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
def test_flags_by_installer_version(known: facts.Facts, version: str, flags: str) -> None:
    assert " ".join(known.efa.flags_of(version)) == flags


@pytest.mark.parametrize(
    ("version", "name"), [("1.11.0", "AWS Libfabric"), ("1.12.0", "Libfabric"), ("1.21.1", "Libfabric")]
)
def test_name_that_nccl_knows_the_plugin_by(known: facts.Facts, version: str, name: str) -> None:
    assert known.plugin.net_name(version) == name


def test_blank_cells_of_the_changelog_are_the_row_below(known: facts.Facts) -> None:
    release = known.efa.releases
    assert release["1.43.3"].plugin == release["1.43.2"].plugin == "1.16.3"
    assert release["1.46.0"].rdma_core == release["1.45.0"].rdma_core == "60.amzn0"
    assert release["1.37.0"].plugin is None
    assert release["1.49.0"].plugin is None, "not stated by a vendor, so not known"


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
            "torch.yaml",
            "cuda: 13.2",
            "cuda: wheel",
            r"torch\.yaml:\d+: .*cuda: 'wheel' is not a version",
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


EFA_2_30 = {"nccl": "2.30.7", "aws-ofi-nccl": "1.20.0", "efa-installer": "1.47.0"}
ERDMA_2_20 = {"nccl": "2.20.5"}
TUNER = "/opt/aws-ofi-nccl/install/lib/libnccl-ofi-tuner.so"


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
        ("efa", EFA_2_30, "NCCL_NET_PLUGIN=", ["harmful"]),
        ("efa", EFA_2_30 | {"nccl": "2.27.7"}, "NCCL_NET_PLUGIN=", []),
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
    assert [v.effect for v in table.variables.values() if v.speaks_of(environment, fabric, components)] == effects


@pytest.mark.parametrize(
    ("installer", "plugin", "on", "told"),
    [
        ("1.48.0", "1.20.0", "aarch64", ["on GB200"]),
        ("1.48.0", "1.20.0", "x86_64", []),
        ("1.49.0", "1.20.0", "aarch64", []),
        ("1.49.0", "1.21.0", "x86_64", ["GIN goes"]),
        ("1.50.0", "1.21.1", "aarch64", []),
    ],
)
def test_what_an_installer_lacks(known: facts.Facts, installer: str, plugin: str, on: str, told: list[str]) -> None:
    rows = [row for row in known.plugin.faults if row.of == "efa-installer"]
    versions = {"nccl": "2.30.7", "aws-ofi-nccl": plugin}
    assert [row.why[:8] for row in rows if row.said(versions | {"efa-installer": installer}, on)] == told


def test_a_variable_avoids_what_an_installer_lacks(known: facts.Facts) -> None:
    (row,) = [row for row in known.plugin.faults if row.unless]
    versions = {"efa-installer": "1.28.0", "nccl": "2.19.3"}
    said = [row.said(versions, "", {"FI_EFA_SET_CUDA_SYNC_MEMOPS": value}) for value in ("", "1", "0")]
    assert [bool(text) for text in said] == [True, True, False]


@pytest.mark.parametrize(
    ("plugin", "nccl", "environment", "told"),
    [
        ("1.7.0", "2.18.5", {}, "on p5"),
        ("1.7.3", "2.18.5", {}, ""),
        ("1.8.0", "2.18.5", {}, "counts"),
        ("1.8.1", "2.18.5", {}, ""),
        ("1.9.1", "2.20.5", {"NCCL_TUNER_PLUGIN": TUNER}, "its tuner"),
        ("1.9.1", "2.20.5", {"NCCL_TUNER_PLUGIN": ""}, ""),
        ("1.9.1", "2.21.5", {"NCCL_TUNER_PLUGIN": TUNER}, ""),
        ("1.9.2", "2.20.5", {"NCCL_TUNER_PLUGIN": TUNER}, ""),
        ("1.10.0", "2.21.5", {}, "segmentation"),
        ("1.11.0", "2.21.5", {}, ""),
        ("1.13.0", "2.23.4", {}, "small messages"),
        ("1.13.2", "2.23.4", {}, ""),
        ("1.19.1", "2.29.7", {"OFI_NCCL_EAGER_MAX_SIZE": "-1"}, "several receives"),
        ("1.19.1", "2.29.7", {"OFI_NCCL_EAGER_MAX_SIZE": "8192"}, ""),
        ("1.19.1", "2.29.7", {}, ""),
        ("1.19.0", "2.29.7", {"OFI_NCCL_EAGER_MAX_SIZE": "-1"}, ""),
        ("1.17.3", "2.19.4", {}, "NCCL 2.19.4: between"),
        ("1.17.3", "2.20.3", {}, ""),
    ],
)
def test_what_release_notes_say_was_wrong(
    known: facts.Facts, plugin: str, nccl: str, environment: dict[str, str], told: str
) -> None:
    said = [row.said({"aws-ofi-nccl": plugin, "nccl": nccl}, "x86_64", environment) for row in known.plugin.faults]
    found = [text for text in said if text]
    assert len(found) == bool(told)
    assert told in "".join(found)


@pytest.mark.parametrize(("plugin", "least"), [("1.7.4", []), ("1.8.0", ["1.18.0"]), ("1.21.1", ["1.22.0"])])
def test_the_libfabric_that_a_plugin_asks_for(known: facts.Facts, plugin: str, least: list[str]) -> None:
    assert [row.libfabric for row in known.plugin.asks if row.holds(plugin)] == least


def test_no_job_is_advised_what_an_image_must_not_set(known: facts.Facts) -> None:
    table = yaml_file.load(paths.FACTS / "environment.yaml", Environment)
    for advised in known.running.variables.values():
        versions = EFA_2_30 if advised.fabric == "efa" else {"nccl": "2.30.7"}
        environment = {advised.name: advised.value}
        rows = [name for name, v in table.variables.items() if v.speaks_of(environment, advised.fabric, versions)]
        # A job knows its own interfaces; an image that names eth0 does not.
        assert rows == [], f"{advised.name}={advised.value}"


def test_public_files_are_listed_with_the_rows_that_cite_them() -> None:
    found = {(one.facts, one.source, one.path): one for one in public.files()}
    tuner = found["environment.yaml", "tuner", "src/tuner/nccl_ofi_tuner.cpp"]
    assert tuner.address == "https://github.com/aws/aws-ofi-nccl/blob/2daf7d30/src/tuner/nccl_ofi_tuner.cpp"
    assert tuner.rows == ("variables.protocol", "variables.algorithm")
    versions = [one.commit for one in public.files() if one.source == "nccl-plugins"]
    assert versions == ["72d24320", "3ea7eedf"]


def test_every_facts_file_that_names_a_commit_is_listed() -> None:
    naming = {path.name for path in paths.FACTS.glob("*.yaml") if re.search(r" @[0-9a-f]{7,40}\b", path.read_text())}
    assert {one.facts for one in public.files()} == naming
    assert all(one.rows for one in public.files())
