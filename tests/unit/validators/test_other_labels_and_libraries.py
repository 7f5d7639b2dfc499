"""What single validators make of the good case with other labels, libraries or packages."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdma_images.inspection.inspection import Inspection, InstalledNccl
from rdma_images.inspection.measurements import Libraries, MeasuredPackages, Tree
from rdma_images.validate.validator import Requirement, SkippedError, UnmetError
from validators.efa import test_libfabric as efa_libfabric
from validators.efa import test_plugin as efa_plugin
from validators.efa_or_erdma import test_libraries as fabric_libraries
from validators.efa_or_erdma import test_verbs as fabric_verbs
from validators.images_only import test_labels as image_labels
from validators.nccl import test_nccl as nccl_nccl
from validators.support import in_use

GOOD = (Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json").read_text()
NCCL = "/opt/venv/site-packages/nvidia/nccl/lib/libnccl.so.2"
PLUGIN = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"
FABRIC = "/opt/amazon/efa/lib/libfabric.so.1.27.0"
LIB = "/usr/lib/x86_64-linux-gnu"
PROVIDER = "libibverbs/libefa-rdmav34.so"
FILE = {"size": 1, "target": ""}

Change = tuple[tuple[str, ...], Any]  # the steps to a value, and another one: None takes it away


def edited(*changes: Change) -> Inspection:
    data = json.loads(GOOD)
    for (*steps, last), value in changes:
        node = data
        for step in steps:
            node = node[step]
        node[last] = value
        if value is None:
            del node[last]
    return Inspection.model_validate(data)


def labels(**values: str) -> list[Change]:
    """Return `rehearsal` is the label of that name, any other one a component's."""
    names = {n: n if n == "rehearsal" else f"component.{n.replace('_', '-')}" for n in values}
    return [(("subject", "labels", f"io.rdma-images.{names[n]}"), value) for n, value in values.items()]


def changed_file(path: str, about: dict[str, Any] | None) -> Change:
    return ("measured", "tree", "files", "library_files", path), about


def variable(name: str, value: str) -> Change:
    return ("subject", "environment", name), value


def library(*steps: str, value: Any) -> Change:
    return ("measured", "tree", "libraries", *steps), value


def parts(inspection: Inspection) -> tuple[Tree, Libraries, MeasuredPackages]:
    tree, packages = inspection.measured.tree, inspection.measured.packages
    assert tree
    assert packages
    return tree, tree.libraries, packages


def broken(validator: Any, *arguments: Any) -> str:
    """Return what a validator finds at fault; "" where it passes."""
    require = Requirement()
    try:
        validator(*arguments, require)
    except UnmetError:
        assert require.expected
        assert require.fix
        return require.actual
    return ""


@pytest.mark.parametrize(
    ("stand_in_labels", "expected"),
    [
        ({"rehearsal": "efa-installer-1.50.0"}, ""),
        ({"rehearsal": "efa-installer-1.50.0,base-debian13"}, ""),
        ({"rehearsal": "erdma-apt-jammy/erdma,erdma-apt-key", "erdma_apt": "jammy"}, ""),
        ({"rehearsal": ""}, "that is not named: libfabric1-aws 2.1.0-1.1+standin, libnccl-ofi 1.21.1+standin"),
        ({"rehearsal": "base-debian13"}, "that is not named"),
        ({"rehearsal": "efa-installer-1.50.0,base-ubuntu24.04"}, "no stand-in is known for base-ubuntu24.04"),
        ({"rehearsal": "efa-installer-1.50.0,base"}, "no stand-in is known for base"),
        ({"rehearsal": "efa-installer-1.50.0,pytorch-2.4.0"}, "no stand-in is known for pytorch-2.4.0"),
        ({"rehearsal": "erdma-apt-jammy/erdma,efa-installer-1.50.0"}, "stand-in is known for erdma-apt-jammy/erdma"),
    ],
)
def test_a_rehearsal_says_what_stood_in(stand_in_labels: dict[str, str], expected: str) -> None:
    case = edited(*labels(**stand_in_labels))
    message = broken(image_labels.test_rehearsal, case, parts(case)[2])
    assert expected in message
    assert bool(expected) == bool(message)


def test_a_rehearsal_without_packages_of_a_stand_in_is_reported() -> None:
    case = edited((("measured", "packages", "dpkg"), {"libfabric1-aws": "2.6.0amzn1.0"}))
    assert "no package is of a stand-in for efa-installer-1.50.0" in broken(
        image_labels.test_rehearsal, case, parts(case)[2]
    )
    unknown = edited((("measured", "packages", "dpkg"), {}))
    assert not broken(image_labels.test_rehearsal, unknown, parts(unknown)[2])


def test_a_rehearsal_silences_only_what_its_source_brings() -> None:
    everything = "efa-installer,python,pytorch,cuda,base,libfabric,rdma-core,cudnn,nccl,aws-ofi-nccl"
    false = labels(rehearsal=everything, python="3.9", pytorch="2.4.0", cuda="12.8", base="ubuntu24.04")
    case = edited(*false)
    system, packages = case.measured.system, parts(case)[2]
    assert broken(image_labels.test_python, case, system).endswith("says 3.9, and the image has 3.13.5")
    assert broken(image_labels.test_pytorch, case).endswith("and the image has 2.15.0+cu132")
    assert broken(image_labels.test_cuda, case).endswith("and the image has 13.2")
    assert broken(image_labels.test_base, case, system).endswith("and the image has debian13")
    assert broken(image_labels.test_libfabric, case).endswith("and the image has 2.1.0")
    assert broken(image_labels.test_rdma_core, case, packages).endswith("and the image has 56.1")
    with pytest.raises(SkippedError, match=r"took the place of efa-installer-1\.50\.0"):
        image_labels.test_libfabric(edited(), Requirement())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ""),
        (labels(aws_ofi_nccl="1.18.0"), "1.18.0, and the image has 1.21.1+standin"),
        ([(("measured", "packages", "dpkg", "libnccl-ofi"), "1.18.0-1")], "1.21.1, and the image has 1.18.0"),
        (
            [library("plugins", PLUGIN, "version", value="1.20.0")],
            "1.21.1, and the image has 1.20.0",
        ),  # before the package's
    ],
)
def test_the_label_of_the_plugin(changes: list[Change], expected: str) -> None:
    case = edited(*changes)
    message = broken(image_labels.test_aws_ofi_nccl, case, *parts(case)[1:])
    assert message.endswith(expected)
    assert bool(message) == bool(expected)


def test_the_label_of_an_installer_that_did_not_run() -> None:
    case = edited((("measured", "packages", "efa_installer"), ""))
    assert broken(image_labels.test_efa_installer, case, parts(case)[2]).endswith("has none")
    assert not broken(image_labels.test_efa_installer, edited(), parts(edited())[2])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ""),
        ([(("measured", "torch"), None)], ""),
        (
            [library("nccl", NCCL, "banner", value="2.30.7+cuda12.9")],
            "is built for CUDA 12.9, and the image has CUDA 13.2: they do not mix",
        ),
        (
            [(("measured", "torch"), None), *labels(cuda="12.8")],
            "is built for CUDA 13.3, and the image has CUDA 12.8: they do not mix",
        ),
    ],
)
def test_nccl_is_for_the_images_cuda(changes: list[Change], expected: str) -> None:
    case = edited(*changes)
    message = broken(nccl_nccl.test_cuda, case, *parts(case)[:2], InstalledNccl(NCCL, "2.30.7"))
    assert message.endswith(expected)
    assert bool(expected) == bool(message)


REMOVED = changed_file(f"{LIB}/{PROVIDER}", None)
OF_LIB64 = library("verbs_looks_for", value={"x": ["-rdmav34.so", "/lib64/libibverbs/lib%s-rdmav34.so"]})
SILENT = library("verbs_looks_for", value={})
UNSAID = changed_file("/etc/libibverbs.d/efa.driver", None)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ([], True),
        (
            [changed_file("/etc/libibverbs.d/efa.driver", None), changed_file("/root/libibverbs.d/efa.driver", FILE)],
            False,
        ),
        ([REMOVED, changed_file("/root/libefa-rdmav34.so", FILE)], False),
        ([REMOVED, changed_file(f"{LIB}/libefa-rdmav34.so", FILE)], True),  # where the loader finds libibverbs itself
        ([REMOVED, OF_LIB64, changed_file(f"/usr/lib64/{PROVIDER}", FILE)], True),  # /lib64 is a link
        ([REMOVED, OF_LIB64, changed_file(f"/opt/{PROVIDER}", FILE)], False),
        ([REMOVED, SILENT, changed_file(f"/opt/{PROVIDER}", FILE)], True),  # nothing says where libibverbs looks
        ([UNSAID, variable("IBV_DRIVERS", "mlx5;efa")], True),
        ([UNSAID, variable("RDMAV_DRIVERS", "/usr/lib/libibverbs/libefa")], True),
        ([UNSAID, variable("IBV_DRIVERS", "mlx5")], False),
        ([UNSAID, variable("IBV_DRIVERS", "efa"), variable("RDMAV_DRIVERS", "")], False),  # the other is not read
        ([REMOVED, variable("IBV_DRIVERS", "efa")], False),
    ],
)
def test_the_provider_lies_where_libibverbs_looks(changes: list[Change], holds: bool) -> None:
    case = edited(*changes)
    tree, libraries, _ = parts(case)
    assert bool(broken(fabric_verbs.test_provider, case, tree.files, libraries, "efa")) != holds


OPENS = library("opens", value={FABRIC: ["libcudart.so"]})
NO_CUDART = library("resolved", "libcudart.so", value={"path": "", "file": "", "error": "it is not there"})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ""),
        ([OPENS, NO_CUDART], f"{FABRIC} does not know the GPUs' memory: it opens libcudart.so"),
        ([OPENS, NO_CUDART, library("nccl", value={})], ""),  # nothing uses GPUs over it
        ([OPENS, NO_CUDART, library("plugins", PLUGIN, "opens", value=["libcudart.so"])], ""),  # told by chain.holds
        ([library("opens", value={"/opt/other/libfabric.so.1.9.0": ["libcudart.so"]}), NO_CUDART], ""),
        (
            [OPENS, NO_CUDART, library("closures", FABRIC, "missing", value=["libpsm2.so.2"])],
            "libfabric cannot be loaded: it finds no libpsm2.so.2; /opt/amazon",
        ),
    ],
)
def test_libfabric_finds_what_it_opens_for_the_gpus(changes: list[Change], expected: str) -> None:
    case = edited(*changes)
    message = broken(efa_libfabric.test_libfabric_closure, case, parts(case)[1])
    assert message.startswith(expected)
    assert bool(message) == bool(expected)


def efa(installer: str, rdma_core: int, libfabric: str = "") -> list[Change]:
    """Return an image that this EFA installer made, with files of this rdma-core, and with this `libfabric`, if any."""
    named = {"libefa.so.1": f"libefa.so.1.3.{rdma_core}.0", "libibverbs.so.1": f"libibverbs.so.1.14.{rdma_core}.0"}
    files = [library("resolved", name, "file", value=f"{LIB}/{file}") for name, file in named.items()]
    change = library("libfabric", value={FABRIC: libfabric})
    return [*labels(rehearsal=""), (("measured", "packages", "efa_installer"), installer), *files, change]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (efa("1.46.0", 60), ""),
        (efa("1.46.0", 61), ""),
        (
            efa("1.46.0", 59),
            f"{LIB}/libefa.so.1.3.59.0 is of rdma-core 59, older than the EFA installer's 60.amzn0, and tells",
        ),
        (efa("1.46.0", 60, libfabric="2.3.1amzn4.0"), ""),
        (efa("1.46.0", 60, libfabric="2.3.1"), f"{FABRIC} is libfabric 2.3.1"),
        (
            efa("1.46.0", 59, libfabric="2.3.1"),
            f"{FABRIC} is libfabric 2.3.1, not the EFA installer's 2.3.1amzn4.0, with which the",
        ),
        (efa("1.46.0", 59, libfabric="2.3.1amzn4.0"), f"{LIB}/libefa"),
        (efa("1.22.1", 43, libfabric="1.17.1amzn1.0"), ""),  # the changelog leaves AWS's word out
        (efa("1.22.1", 43, libfabric="1.18.0"), f"{FABRIC} is libfabric 1.18.0"),
        (efa("1.99.0", 59, libfabric="2.4.0amzn1.0"), ""),  # of which it is not known what it brought
        (efa("1.99.0", 59, libfabric="2.4.0"), f"{FABRIC} is libfabric 2.4.0"),
    ],
)
def test_libfabric_and_rdma_core_are_the_installers(changes: list[Change], expected: str) -> None:
    case = edited(*changes)
    _, libraries, packages = parts(case)
    message = broken(efa_libfabric.test_libfabric_version, case, libraries, packages)
    assert message.startswith(expected)
    assert bool(message) == bool(expected)


@pytest.mark.parametrize("changes", [efa("1.99.0", 59), efa("1.19.0", 30, libfabric="1.16.0")])
def test_an_installer_of_which_nothing_is_known_is_compared_with_nothing(changes: list[Change]) -> None:
    case = edited(*changes)
    with pytest.raises(SkippedError, match="it is not known which"):
        efa_libfabric.test_libfabric_version(case, *parts(case)[1:], Requirement())


@pytest.mark.parametrize(
    ("plugin", "libfabric", "reported"),
    [
        ("1.8.1", "1.17.1amzn1.0", True),
        ("1.8.1", "1.18.0", False),
        ("1.7.4", "1.17.1", False),
        ("1.13.0", "1.21.0amzn1.0", True),
        ("1.13.0", "1.22.0amzn1.0", False),
        ("1.21.1", "", False),
        ("", "1.17.1", False),
    ],
)
def test_libfabric_is_as_new_as_the_plugin_asks(plugin: str, libfabric: str, reported: bool) -> None:
    change = library("libfabric", value={FABRIC: libfabric})
    case = edited(change, library("plugins", PLUGIN, "version", value=plugin))
    libraries = parts(case)[1]
    message = broken(efa_plugin.test_libfabric, case, libraries, in_use.FoundPlugin(PLUGIN, libraries.plugins[PLUGIN]))
    assert message.startswith(f"libfabric {libfabric} at {FABRIC} is too old for aws-ofi-nccl {plugin}") == reported
    assert bool(message) == reported


RENAMED, FULL = changed_file(NCCL, None), f"{LIB}/libnccl.so.2.23.4"
ELSEWHERE = library("nccl", value={FULL: {"banner": "2.23.4+cuda12.2"}})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], ""),
        ([RENAMED, ELSEWHERE, changed_file(FULL, FILE)], f"programs ask for libnccl.so.2, and there is only {FULL}, "),
        ([RENAMED, ELSEWHERE, changed_file(FULL, FILE), changed_file(f"{LIB}/libnccl.so.2", FILE)], ""),
        ([RENAMED, ELSEWHERE, changed_file(FULL, FILE), changed_file(f"{LIB}/libnccl.so", FILE)], ""),
        ([RENAMED, ELSEWHERE, changed_file(FULL, FILE), variable("VLLM_NCCL_SO_PATH", FULL)], ""),
        ([RENAMED, ELSEWHERE, changed_file(FULL, FILE), variable("LD_PRELOAD", f"/a:{FULL}")], ""),
        ([RENAMED, library("nccl", value={"/opt/libtorch_cuda.so": {"banner": "2.10.3"}})], ""),
        ([RENAMED, library("nccl", value={})], "NCCL is not installed: no libnccl.so.2 in the whole file system"),
    ],
)
def test_nccl_has_the_name_by_which_it_is_asked_for(changes: list[Change], expected: str) -> None:
    case = edited(*changes)
    tree, libraries, _ = parts(case)
    message = broken(fabric_libraries.test_found, case, tree.files, libraries)
    assert message.startswith(expected)
    assert bool(message) == bool(expected)


@pytest.mark.parametrize(
    "steps", [("closures", FABRIC, "libraries", "libefa.so.1"), ("resolved", "libefa.so.1", "file")], ids=["own", "all"]
)
def test_whoever_asks_for_libefa_gets_the_providers_own(steps: tuple[str, ...]) -> None:
    good, bad = edited(), edited(library(*steps, value="/opt/planted/libefa.so.1"))
    for case, expected in (
        (good, ""),
        (bad, "a process takes /opt/planted/libefa.so.1, of another rdma-core than the provider of EFA"),
    ):
        tree, libraries, _ = parts(case)
        assert broken(fabric_verbs.test_verbs_loader, case, tree.files, libraries, "efa") == expected
