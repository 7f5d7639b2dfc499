"""Whether NCCL will find, open and understand the plugin that brings it to EFA."""

import pytest

from rdma_images.validate.case import Case, missing_in, name_of
from rdma_images.validate.measured import Libraries, PluginFile
from rdma_images.validate.plugin import Judge

SEARCH = "NVIDIA/nccl src/plugin/plugin_open.cc: the names it tries, and how NCCL_NET_PLUGIN is expanded"
SYMBOLS = "the symbols libnccl.so.2 looks for (its read-only data) and those the plugin exports (its dynamic symbols)"
EFA = "/opt/amazon/efa/"
NET, TUNER = "ncclNetPlugin_v", "ncclTunerPlugin_v"


def names_tried(case: Case, libraries: Libraries, nccl: str) -> list[str]:
    """The file names that this NCCL opens for a network plugin, in its order."""
    default = next((n for n in libraries.nccl[nccl].file_names if n.startswith("libnccl-net")), "libnccl-net.so")
    words = [w for w in case.subject.environment.get("NCCL_NET_PLUGIN", "").split(",") if w]
    expanded = [name for w in words for name in ([w] if "/" in w or w.endswith(".so") else [w, f"libnccl-net-{w}.so"])]
    return expanded or [default]


def plugin_of(case: Case, libraries: Libraries, nccl: str) -> str | None:
    """The file that NCCL opens as its network plugin; also where opening it then fails."""
    for name in names_tried(case, libraries, nccl):
        answer = libraries.resolved.get(name)
        if answer and answer.file:
            return answer.file
        if answer and answer.error and not answer.error.startswith(f"{name}:"):
            called = [p for p in libraries.plugins if name_of(p).startswith("libnccl-net")]
            return called[0] if called else None
    return None


@pytest.fixture
def plugin(case: Case, libraries: Libraries, nccl: tuple[str, str]) -> tuple[str, PluginFile]:
    """The plugin's file and what it exports."""
    path = plugin_of(case, libraries, nccl[0])
    if not path or path not in libraries.plugins:
        pytest.skip("NCCL finds no network plugin: plugin.found tells")
    return path, libraries.plugins[path]


@pytest.mark.validator("plugin.found", source=SEARCH, fabric="efa")
def test_found(case: Case, libraries: Libraries, nccl: tuple[str, str], judge: Judge) -> None:
    """The loader finds a network plugin under a name that NCCL tries."""
    names = names_tried(case, libraries, nccl[0])
    path = None if names == ["none"] else plugin_of(case, libraries, nccl[0])
    there = ", ".join(libraries.plugins) or "no plugin is in the image"
    judge(
        path is not None,
        expected=" or ".join(names),
        found=path or f"nothing by that name; there is: {there}",
        mend="put the plugin's folder into /etc/ld.so.conf.d, give it the link libnccl-net.so, run ldconfig; or set "
        "NCCL_NET_PLUGIN=ofi for libnccl-net-ofi.so",
    )


@pytest.mark.validator("plugin.symbols", source=SYMBOLS, fabric="efa")
def test_symbols(libraries: Libraries, nccl: tuple[str, str], plugin: tuple[str, PluginFile], judge: Judge) -> None:
    """The plugin exports a network interface that this NCCL understands."""
    path, about = plugin
    wanted, offered = libraries.nccl[nccl[0]].looks_for.get(NET, []), about.exports.get(NET, [])
    common = sorted(set(wanted) & set(offered))
    judge(
        bool(common),
        expected=f"one of v{', v'.join(map(str, wanted))}, which NCCL {nccl[1]} looks for",
        found=f"v{', v'.join(map(str, offered))} in {path}" + (f": v{common[-1]} will be used" if common else "")
        if offered
        else f"{path} exports no {NET}N ({about.error or 'it may be another kind of plugin'})",
        mend="install an aws-ofi-nccl that is as new as this NCCL",
    )


@pytest.mark.validator("plugin.tuner", source=SYMBOLS, severity="warning", fabric="efa")
def test_tuner(libraries: Libraries, nccl: tuple[str, str], plugin: tuple[str, PluginFile], judge: Judge) -> None:
    """The plugin's tuner, where it has one, is one that this NCCL understands."""
    wanted = libraries.nccl[nccl[0]].looks_for.get(TUNER, [])
    offered = plugin[1].exports.get(TUNER, [])
    if not offered:
        pytest.skip("the plugin exports no tuner")
    judge(
        bool(set(wanted) & set(offered)),
        expected=f"one of v{', v'.join(map(str, wanted))}" if wanted else f"NCCL {nccl[1]} looks for no tuner",
        found=f"v{', v'.join(map(str, offered))}",
        mend="install an aws-ofi-nccl that is as new as this NCCL; without its tuner NCCL picks algorithms itself",
    )


@pytest.mark.validator(
    "plugin.closure", source="ld.so(8) with LD_TRACE_LOADED_OBJECTS: every library the loader would map", fabric="efa"
)
def test_closure(case: Case, libraries: Libraries, plugin: tuple[str, PluginFile], judge: Judge) -> None:
    """Every library that the plugin needs is found."""
    fabrics = case.libraries_named("libfabric.so")
    # What libfabric itself lacks has a check of its own.
    told = {name for path in fabrics for name in missing_in(libraries, path)}
    told |= set() if fabrics else {"libfabric.so.1"}
    missing = [name for name in missing_in(libraries, plugin[0]) if name not in told]
    judge(
        not missing,
        expected="nothing missing",
        found=f"missing: {', '.join(missing)}" if missing else f"{len(libraries.closures[plugin[0]].libraries)} found",
        mend=f"install what brings {', '.join(missing)}: NCCL goes on over TCP when its plugin cannot be opened",
    )


@pytest.mark.validator(
    "plugin.libfabric", source="the EFA installer puts its libfabric under /opt/amazon/efa", fabric="efa"
)
def test_libfabric(case: Case, libraries: Libraries, plugin: tuple[str, PluginFile], judge: Judge) -> None:
    """The plugin gets the libfabric that was installed for EFA."""
    got = libraries.closures[plugin[0]].libraries.get("libfabric.so.1", "")
    intended = [path for path in case.libraries_named("libfabric.so") if path.startswith(EFA)]
    if not intended or not got:
        pytest.skip("no libfabric is under /opt/amazon/efa" if got else "there is no libfabric: libfabric.found tells")
    judge(
        got in intended,
        expected=" or ".join(intended),
        found=got,
        mend=f"remove {got}, or the ld.so.conf.d entry that puts it first, and run ldconfig",
    )
