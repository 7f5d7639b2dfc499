"""Facts: every value has a source, and nothing unconfirmed is shipped."""

import shutil

import pytest

from rdma_images import facts, paths, versions
from rdma_images.errors import RefusedError


@pytest.fixture(scope="module")
def known():
    return facts.load()


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(paths.FACTS, tmp_path / "facts")


def refused(folder, name, old, new):
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
        ("nccl.yaml", "net: [6,", "net: [six,", "valid integer"),
        ("cuda.yaml", "confidence: vendor", "confidence: UNVERIFIED", "'UNVERIFIED', but must be 'artefact', 'vendor'"),
        ("cuda.yaml", "read: 2026-11-21", "read: someday", "valid date"),
        ("nccl.yaml", "  2.32.3:", "  abc:", "'abc' is not a version"),
        ("efa-installer.yaml", "libfabric: 2.7.0amzn2.0", "libfabric: newest", "'newest' is not a version"),
        ("cuda.yaml", "12: {driver: 525", "13: {driver: 525", "'13' is written twice"),
        (
            "bases.yaml",
            "sources:\n",
            "sources:\n  spare: {what: x, confidence: vendor, read: 2026-11-21}\n",
            "no row names the source 'spare': remove it",
        ),
        ("erdma.yaml", "sources: {codenames: ack}", "sources: {codename: ack}", "no value 'codename' in this row"),
    ],
)
def test_what_does_not_hold_together(folder, name, old, new, sentence):
    error = refused(folder, name, old, new)
    assert sentence in error
    assert f"{name}:" in error


def test_third_party_values_say_so(known):
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
                    assert "third party" in row.why


def test_torch_pins_a_known_nccl_of_its_cuda(known):
    for release in known.torch.releases.values():
        assert versions.major(release.cuda) in known.nccl.releases[release.nccl].cuda


def test_the_newest_torch_has_a_cuda_base(known):
    """Of its CUDA, and with a Python that it has wheels for."""
    newest = known.torch.releases[max(known.torch.releases, key=versions.key)]
    fitting = [base for base in known.bases.bases.values() if base.cuda and base.python in newest.python]
    assert newest.cuda in {base.cuda.rpartition(".")[0] for base in fitting}


def test_installers_bring_known_plugins(known):
    brought = {release.plugin for release in known.efa.releases.values()} - {None}
    assert brought <= set(known.plugin.releases)


def test_interfaces_have_no_gap_at_the_new_end(known):
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
def test_flags_by_installer_version(known, version, flags):
    assert " ".join(known.efa.flags_of(version)) == flags


@pytest.mark.parametrize(
    ("version", "name"), [("1.11.0", "AWS Libfabric"), ("1.12.0", "Libfabric"), ("1.21.1", "Libfabric")]
)
def test_name_that_nccl_knows_the_plugin_by(known, version, name):
    assert known.plugin.net_name(version) == name


def test_blank_cells_of_the_changelog_are_the_row_below(known):
    release = known.efa.releases
    assert release["1.43.3"].plugin == release["1.43.2"].plugin == "1.16.3"
    assert release["1.46.0"].rdma_core == release["1.45.0"].rdma_core == "60.amzn0"
    assert release["1.37.0"].plugin is None
    assert release["1.49.0"].plugin is None, "not stated by a vendor, so not known"
