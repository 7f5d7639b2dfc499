"""libfabric, its efa provider, and the verbs library with its providers."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.validate.case import Case, missing_in, name_of
from rdma_images.validate.measured import Files, Libraries, ToolRun
from rdma_images.validate.plugin import Judge

LOADER = "ld.so(8): the order in which the dynamic loader searches"
FI_INFO = "fi_info(1)"
DEVINFO = "ibv_devinfo(1); without a device it ends with 255"
PROVIDERS = "rdma-core: libibverbs opens lib<driver>-rdmav<ABI>.so, named in /etc/libibverbs.d"
BESIDE = "rdma-core installs its libraries into the folder that has the one with its providers"
NO_DEVICE = re.compile(r"No IB devices found|Failed to get IB devices list", re.IGNORECASE)
NO_DATA = 61  # what fi_info ends with where a provider has no device
NAMED = re.compile(r"lib(\w+)-rdmav(\d+)\.so")


@pytest.fixture
def fi_info(case: Case) -> dict[str, ToolRun]:
    """What fi_info printed; skips where it could not run, which has a check of its own."""
    runs = case.measured.tools or pytest.skip(case.measured.missing.get("tools", "fi_info was not run"))
    if runs["fi_info --version"].rc != 0:
        pytest.skip("fi_info does not run: libfabric.fi-info tells")
    return runs


@pytest.mark.validator("libfabric.found", source=LOADER, fabric="efa")
def test_libfabric_found(libraries: Libraries, judge: Judge) -> None:
    """The loader finds libfabric."""
    answer = libraries.resolved["libfabric.so.1"]
    lacks_another = bool(answer.error) and not answer.error.startswith("libfabric.so.1:")
    judge(
        bool(answer.file) or lacks_another,
        expected="libfabric.so.1",
        found=answer.file or answer.error,
        mend="install libfabric with the EFA installer, keep /etc/ld.so.conf.d/efa.conf, and run ldconfig",
    )


@pytest.mark.validator("libfabric.closure", source=LOADER, fabric="efa")
def test_libfabric_closure(case: Case, libraries: Libraries, judge: Judge) -> None:
    """Every library that libfabric needs is found."""
    paths = case.libraries_named("libfabric.so") or pytest.skip("there is no libfabric: libfabric.found tells")
    found = libraries.resolved["libfabric.so.1"].file or paths[0]
    missing = missing_in(libraries, found)
    judge(
        not missing,
        expected="nothing missing",
        found=f"missing: {', '.join(missing)}" if missing else f"complete for {found}",
        mend=f"install what brings {', '.join(missing)} (rdma-core's libraries come with the EFA installer)",
    )


@pytest.mark.validator(
    "libfabric.single", source="two libfabrics in one process each have their own providers", fabric="efa"
)
def test_libfabric_single(case: Case, libraries: Libraries, judge: Judge) -> None:
    """One libfabric is in the image."""
    found = case.libraries_named("libfabric.so") or pytest.skip("there is no libfabric: libfabric.found tells")
    # The one in use has checks of its own, and so has the one that fi_info takes.
    used = {
        c.libraries.get("libfabric.so.1")
        for path, c in libraries.closures.items()
        if "libnccl" in path or "fi_info" in path
    }
    used |= {libraries.resolved["libfabric.so.1"].file, *(p for p in found if p.startswith("/opt/amazon/efa/"))}
    spare = [path for path in found if path not in used] if used & set(found) else found[1:]
    judge(
        not spare,
        expected="one file",
        found=", ".join(found),
        mend=f"remove {', '.join(spare)} or the package that brings it",
    )


@pytest.mark.validator("libfabric.fi-info", source=FI_INFO, fabric="efa")
def test_fi_info(case: Case, libraries: Libraries, judge: Judge) -> None:
    """fi_info is there and runs."""
    runs = case.measured.tools or pytest.skip(case.measured.missing.get("tools", "fi_info was not run"))
    run = runs["fi_info --version"]
    if run.path and run.rc == 127 and missing_in(libraries, run.path):
        pytest.skip("it lacks a library: libfabric.found or libfabric.closure tells")
    judge(
        run.rc == 0 and "libfabric:" in run.out,
        expected="`fi_info --version` prints libfabric's version",
        found=summary(run),
        mend="install libfabric's tools with the EFA installer and put /opt/amazon/efa/bin on the PATH",
    )


@pytest.mark.validator(
    "libfabric.efa", source="fi_info -l lists the providers that libfabric was built with", fabric="efa"
)
def test_lists_efa(fi_info: dict[str, ToolRun], judge: Judge) -> None:
    """libfabric has the efa provider."""
    run = fi_info["fi_info -l"]
    listed = re.findall(r"^(\S+):$", run.out, re.MULTILINE)
    judge(
        "efa" in listed,
        expected="efa in `fi_info -l`",
        found=", ".join(listed) or summary(run),
        mend="install the EFA installer's libfabric, and leave FI_PROVIDER and FI_PROVIDER_PATH unset",
    )


@pytest.mark.validator("libfabric.device", source="fi_info(1): 61 is FI_ENODATA, no device answers", fabric="efa")
def test_asks_efa(fi_info: dict[str, ToolRun], judge: Judge) -> None:
    """Asking for EFA devices gives an answer, or says that there are none."""
    run = fi_info["fi_info -p efa"]
    judge(
        run.rc == 0 or (run.rc == NO_DATA and "No data available" in run.err),
        expected="domains of EFA, or exit code 61 without a device",
        found=summary(run),
        mend="run `fi_info -p efa -t FI_EP_RDM` in the image with FI_LOG_LEVEL=info",
    )


@pytest.mark.validator("libfabric.same", source=LOADER, fabric="efa")
def test_same_libfabric(libraries: Libraries, fi_info: dict[str, ToolRun], judge: Judge) -> None:
    """What fi_info shows is the libfabric that NCCL's plugin gets."""
    tool = fi_info["fi_info --version"].path
    shown = libraries.closures[tool].libraries.get("libfabric.so.1", "") if tool in libraries.closures else ""
    used = libraries.resolved["libfabric.so.1"].file
    if not shown or not used:
        pytest.skip("fi_info's own libraries could not be read")
    judge(
        shown == used,
        expected=used,
        found=f"{tool} takes {shown}",
        mend="remove the second libfabric, or the RUNPATH that leads fi_info to it",
    )


@pytest.mark.validator("verbs.ibv-devinfo", source=DEVINFO, fabric="any")
def test_ibv_devinfo(case: Case, libraries: Libraries, judge: Judge) -> None:
    """ibv_devinfo is there and runs."""
    runs = case.measured.tools or pytest.skip(case.measured.missing.get("tools", "ibv_devinfo was not run"))
    run = runs["ibv_devinfo"]
    if run.path and run.rc == 127 and missing_in(libraries, run.path):
        pytest.skip("it lacks a library: libfabric.closure tells")
    judge(
        run.rc == 0 or (run.rc == 255 and bool(NO_DEVICE.search(run.out + run.err))),
        expected="devices, or the message that there are none",
        found=summary(run),
        mend="install ibverbs-utils from the same source as libibverbs (the EFA installer, or Alibaba's repository)",
    )


def folder_of(path: str) -> str:
    """The folder of a file, as it is called where /lib is a link into /usr."""
    folder = str(PurePosixPath(path).parent)
    return f"/usr{folder}" if folder.startswith("/lib") else folder


def providers_of(files: Files, fabric: str) -> list[str]:
    """The verbs providers of a fabric, of any ABI and wherever they lie."""
    return [p for p in files.libraries if (m := NAMED.fullmatch(name_of(p))) and m.group(1) == fabric]


def looked_for(libraries: Libraries) -> set[str]:
    """What the libibverbs that the loader finds looks for; where it finds none, what any does."""
    every = libraries.verbs_looks_for
    in_use = every.get(libraries.resolved["libibverbs.so.1"].file)
    return set(in_use or (word for found in every.values() for word in found))


def opened_in(libraries: Libraries) -> set[str]:
    """The folders in which libibverbs opens providers: its own, then where the loader finds libibverbs itself."""
    own = {folder_of(word) for word in looked_for(libraries) if "/lib%s-rdmav" in word}
    file = libraries.resolved["libibverbs.so.1"].file
    return own | ({folder_of(file)} if own and file else set())


def homes(files: Files, libraries: Libraries, fabric: str) -> set[str]:
    """The folders of the rdma-core whose provider of the fabric libibverbs opens."""
    folders = {folder_of(path) for path in providers_of(files, fabric)} & opened_in(libraries)
    return {str(PurePosixPath(folder).parent) if name_of(folder) == "libibverbs" else folder for folder in folders}


@pytest.mark.validator("verbs.provider", source=PROVIDERS, fabric="any")
def test_provider(files: Files, libraries: Libraries, fabric: str, judge: Judge) -> None:
    """The verbs provider of the image's fabric lies where libibverbs opens it, and is announced where it reads."""
    opened, provider = opened_in(libraries), providers_of(files, fabric)
    read = {word for word in looked_for(libraries) if word.endswith("/libibverbs.d")}
    driver = [p for p in files.libraries if p.endswith(f"/libibverbs.d/{fabric}.driver")]
    judge(
        any(not opened or folder_of(p) in opened for p in provider)
        and any(not read or str(PurePosixPath(p).parent) in read for p in driver),
        expected=f"lib{fabric}-rdmav<ABI>.so in {' or '.join(sorted(opened)) or 'any folder'}, "
        f"and {fabric}.driver in {' or '.join(sorted(read)) or 'a libibverbs.d'}",
        found=", ".join(provider + driver) or "neither",
        mend=f"install ibverbs-providers with {fabric} (the EFA installer's, or Alibaba's for eRDMA)",
    )


@pytest.mark.validator("verbs.loader", source=BESIDE, fabric="any")
def test_verbs_loader(case: Case, files: Files, libraries: Libraries, fabric: str, judge: Judge) -> None:
    """Whoever asks for libibverbs, or for libefa, gets the one that the fabric's provider belongs to."""
    home = homes(files, libraries, fabric) or pytest.skip("libibverbs opens no provider: verbs.provider tells")
    intended: dict[str, list[str]] = {}
    for name in ("libibverbs.so.1", *(["libefa.so.1"] if fabric == "efa" else [])):
        beside = [p for p in case.libraries_named(name.removesuffix(".1")) if folder_of(p) in home]
        intended |= {name: beside} if beside else {}
    if not intended:
        pytest.skip("the provider stands alone: there is no library beside it")
    got = {name: {libraries.resolved[name].file} for name in intended}
    for closure in libraries.closures.values():
        for name in intended.keys() & closure.libraries.keys():
            got[name].add(closure.libraries[name])
    other = sorted(p for name, found in got.items() for p in found if p and p not in intended[name])
    judge(
        not other,
        expected=" and ".join(" or ".join(paths) for paths in intended.values()),
        found=", ".join(other) or "the same, for all that need them",
        mend=f"remove {', '.join(other)}, or the ld.so.conf.d entry that puts it first, and run ldconfig",
    )


@pytest.mark.validator("verbs.suffix", source=PROVIDERS)
def test_suffix(files: Files, libraries: Libraries, judge: Judge) -> None:
    """The verbs providers are of the ABI that libibverbs opens."""
    words = {word for found in libraries.verbs_looks_for.values() for word in found if "-rdmav" in word}
    wanted = {word.rpartition("%s")[2] for word in words}
    providers = [p for p in files.libraries if NAMED.fullmatch(name_of(p))]
    if not wanted or not providers:
        pytest.skip("the image has no libibverbs with providers")
    other = [path for path in providers if not any(path.endswith(suffix) for suffix in wanted)]
    judge(
        not other,
        expected=f"every provider ends with {' or '.join(sorted(wanted))}",
        found=", ".join(other) if other else f"all {len(providers)} do",
        mend="install libibverbs and its providers from one source: a provider of another ABI is never opened",
    )


@pytest.mark.validator("verbs.single", source=LOADER, fabric="any")
def test_verbs_single(case: Case, files: Files, libraries: Libraries, fabric: str, judge: Judge) -> None:
    """One libibverbs is in the image."""
    found = case.libraries_named("libibverbs.so") or pytest.skip("the image has no libibverbs")
    # One that the loader takes instead of the providers' own has a check of its own.
    home, used = homes(files, libraries, fabric), libraries.resolved["libibverbs.so.1"].file
    spare = [path for path in found if path != used and folder_of(path) not in home]
    judge(
        not spare or len(found) == 1,
        expected="one file",
        found=", ".join(found),
        mend=f"remove {', '.join(spare)} or the package that brings it",
    )


def summary(run: ToolRun) -> str:
    """One line of what a tool did."""
    if not run.path:
        return "there is no such tool in the image"
    if run.timed_out:
        return f"{run.path} did not end in {run.seconds:.0f} s"
    lines = (run.err or run.out).strip().splitlines()
    return f"{run.path} ended with {run.rc}" + (f": {lines[-1][:300]}" if lines else "")
