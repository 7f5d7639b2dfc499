"""What the validators of libraries make of the real loader's answers, where an incident's files could not show them."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from rdma_images.inspection.inspection import NCCL_WHEEL_PATH, Inspection, nccl_in_use
from rdma_images.inspection.measurements import Closure, Libraries
from rdma_images.validate.validator import Requirement, UnmetError
from validators.nccl import test_libraries as nccl_libraries
from validators.nccl import test_nccl as nccl_nccl
from validators.support import in_use, transports
from validators.transports import test_transports as transports_transports

CASE = Inspection.model_validate_json((Path(__file__).parents[2] / "data" / "cases" / "efa-pytorch.json").read_bytes())
LIBFABRIC = "libfabric.so.1"


def answered(faults: Sequence[str] = (), errors: Mapping[str, str] | None = None) -> Inspection:
    """Return the real case, whose libfabric the loader finds faults with; `errors` are of what it opens, by name."""
    data = CASE.model_dump()
    libraries = data["measured"]["tree"]["libraries"]
    file = libraries["resolved"][LIBFABRIC]["file"]
    libraries["closures"][file]["faults"] = list(faults)
    for name, error in (errors or {}).items():
        libraries["resolved"][name]["error"] = error
    return Inspection.model_validate(data)


def loaded(inspection: Inspection) -> str:
    """Return what libraries.load says of the inspection; "" where it passes."""
    tree = inspection.measured.tree
    assert tree
    try:
        nccl_libraries.test_load(inspection, tree.files, tree.libraries, Requirement())
    except UnmetError as failure:
        return str(failure)
    return ""


def test_a_real_image_is_taken_by_the_loader() -> None:
    assert loaded(CASE) == ""


@pytest.mark.parametrize(
    ("error", "words", "fix"),
    [
        (
            "/opt/libfabric.so.1: cannot enable executable stack as shared object requires: Invalid argument",
            "libfabric.so.1: cannot enable executable stack",
            "noexecstack",
        ),
        ("libefa.so.1: cannot open shared object file: No such file or directory", "", ""),
        (
            "/opt/libfabric.so.1: undefined symbol: efadv_query_device",
            "/opt/libfabric.so.1 cannot be loaded: its libraries have no efadv_query_device",
            "one release",
        ),
        (
            "/lib/libc.so.6: version `GLIBC_2.41' not found (required by /opt/libfabric.so.1)",
            "/opt/libfabric.so.1 cannot be loaded: it needs GLIBC_2.41, and /lib/libc.so.6 is older",
            "base with a newer glibc",
        ),
        (
            "/opt/conda/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x)",
            "x cannot be loaded: it needs GLIBCXX_3.4.32, and /opt/conda/lib/libstdc++.so.6 is older",
            "LD_LIBRARY_PATH",
        ),
        (
            "/lib/libibverbs.so.1: version `IBVERBS_PRIVATE_34' not found (required by /lib/libefa.so.1)",
            "/lib/libefa.so.1 cannot be loaded: it needs IBVERBS_PRIVATE_34, and /lib/libibverbs.so.1 is of another",
            "EFA installer",
        ),
        ("/opt/libfabric.so.1: an unknown fault", "an unknown fault", "from its source"),
    ],
)
def test_what_opening_a_library_says_is_reported_with_its_fix(error: str, words: str, fix: str) -> None:
    message = loaded(answered(errors={LIBFABRIC: error}))
    assert words in message
    assert bool(message) == bool(words)
    assert fix in message.rpartition("fix: ")[2]


def test_what_is_opened_by_nobody_is_not_reported() -> None:
    assert loaded(answered(errors={"libmlx5.so.1": "/lib/libmlx5.so.1: undefined symbol: gone"})) == ""


def test_a_version_is_reported_once_and_before_what_lacks_for_want_of_it() -> None:
    version = "/lib/libefa.so.1: version `EFA_1.4' not found (required by /opt/libfabric.so.1)"
    by_link = version.replace("/opt/libfabric.so.1", "/opt/libfabric.so")
    symbol = "undefined symbol: a (/opt/libfabric.so.1)"
    missing = "/opt/libfabric.so.1 cannot be loaded: it needs EFA_1.4, and /lib/libefa.so.1 is older"
    assert f"found: {missing}\n" in loaded(answered([symbol, f"/opt/libfabric.so.1: {version}", version, by_link]))
    missing = "/opt/libfabric.so.1 cannot be loaded: its libraries have no a"
    assert f"found: {missing}\n" in loaded(answered([symbol, "undefined symbol: a"]))


def test_the_plugin_is_the_first_that_opens() -> None:
    def plugin(errors: Mapping[str, str]) -> str | None:
        resolved = {
            name: {"path": f"/opt/{name}", "file": f"/opt/{name}", "error": error} for name, error in errors.items()
        }
        tree = CASE.measured.tree
        assert tree
        libraries = Libraries.model_validate({**tree.libraries.model_dump(), "resolved": resolved})
        subject = CASE.subject.model_copy(update={"environment": {"NCCL_NET_PLUGIN": "a.so,b.so"}})
        nccl = next(iter(libraries.nccl))
        return in_use.plugin_path(CASE.model_copy(update={"subject": subject}), libraries, nccl)

    assert plugin({"a.so": "", "b.so": ""}) == "/opt/a.so"
    assert plugin({"a.so": "undefined symbol", "b.so": ""}) == "/opt/b.so"
    assert plugin({"a.so": "undefined symbol", "b.so": "cut"}) == "/opt/a.so"
    assert plugin({}) is None


@pytest.mark.parametrize(("fabric", "counts"), [("efa", True), ("erdma", False), (None, False)])
def test_the_transport_of_nvshmem_counts_where_it_has_libfabric(fabric: str | None, counts: bool) -> None:
    path = "/opt/venv/site-packages/nvidia/nvshmem/lib/nvshmem_transport_libfabric.so.6"
    data = CASE.model_dump()
    data["expected"]["fabric"] = fabric
    data["measured"]["tree"]["files"]["library_files"][path] = {"size": 1, "target": ""}
    inspection = Inspection.model_validate(data)
    assert inspection.measured.tree
    assert transports.transports(inspection, inspection.measured.tree.files) == [path] * counts


@pytest.mark.parametrize("preload", ["/opt/nccl/libnccl.so.2", "/opt/nccl/libnccl.so", ""])
def test_an_nccl_that_the_image_preloads_is_the_one_in_use(preload: str) -> None:
    data = CASE.model_dump()
    libraries, files = data["measured"]["tree"]["libraries"], data["measured"]["tree"]["files"]["library_files"]
    other, (wheel,) = "/opt/nccl/libnccl.so.2", [path for path in libraries["nccl"] if path.endswith(NCCL_WHEEL_PATH)]
    libraries["nccl"][other] = {**libraries["nccl"][wheel], "banner": "2.99.1+cuda13.0"}
    files[other], files["/opt/nccl/libnccl.so"] = files[wheel], {"size": 1, "target": "libnccl.so.2"}
    data["subject"]["environment"]["LD_PRELOAD"] = preload
    data["measured"]["torch"]["nccl"] = [{"path": other, "version": "2.99.1"}]
    inspection = Inspection.model_validate(data)
    tree = inspection.measured.tree
    assert tree
    check = partial(nccl_nccl.test_loaded, inspection, tree.libraries, Requirement())
    if preload:
        check()
    else:
        with pytest.raises(UnmetError, match=other):
            check()
    without_torch = inspection.model_copy(update={"measured": inspection.measured.model_copy(update={"torch": None})})
    assert nccl_in_use(without_torch) == ((other, "2.99.1") if preload else (wheel, tree.libraries.nccl[wheel].version))


def test_an_nccl_that_only_conda_has_is_in_use_and_of_several_none() -> None:
    data = CASE.model_dump()
    libraries = data["measured"]["tree"]["libraries"]
    about = next(iter(libraries["nccl"].values()))
    data["measured"]["torch"], libraries["nccl"] = None, {"/opt/conda/lib/libnccl.so.2": about}
    libraries["resolved"]["libnccl.so.2"] = {}
    version = about["banner"].partition("+")[0]
    assert nccl_in_use(Inspection.model_validate(data)) == ("/opt/conda/lib/libnccl.so.2", version)
    libraries["nccl"]["/opt/nccl/lib/libnccl.so.2"] = about
    assert nccl_in_use(Inspection.model_validate(data)) is None


def test_a_module_of_python_lacks_nothing_that_python_has_loaded_before() -> None:
    tree = CASE.measured.tree
    assert tree
    missing = ["libtorch.so", "libnccl.so.2", "libcurl.so.4"]
    modules = [f"/opt/venv/site-packages/mooncake/{name}" for name in ("engine.so", "mooncake_client")]
    closures = dict.fromkeys((*modules, "/opt/libuct_ib.so.0"), Closure(missing=missing))
    libraries = tree.libraries.model_copy(update={"closures": closures})
    for path in modules:
        assert transports_transports.lacking_in(tree.files, libraries, path) == ["libcurl.so.4"]
    assert transports_transports.lacking_in(tree.files, libraries, "/opt/libuct_ib.so.0") == missing
