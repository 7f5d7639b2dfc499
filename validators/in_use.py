"""Which of an image's libraries a job uses: those that NCCL opens, what they need, and the fabric's verbs providers."""

import re
from pathlib import PurePosixPath

import pytest

from rdma_images.inspection.inspection import Inspection, base_name, nccl_in_use
from rdma_images.inspection.measurements import Closure, Files, Libraries
from validators.conditions import Broken, broken, broken_named
from validators.settings import started

PROVIDER = re.compile(r"lib(\w+)-rdmav(\d+)\.so")  # of libibverbs: the driver's name, and the ABI
LIBFABRICS = re.compile(r"lib(\w+)-fi\.so")  # providers of libfabric in files of their own
VERBS, FABRIC, EFA, NCCL = "libibverbs.so.1", "libfabric.so.1", "libefa.so.1", "libnccl.so.2"


def names_tried(case: Inspection, libraries: Libraries, nccl: str) -> list[str]:
    """Return the file names that this NCCL opens for a network plugin, in its order."""
    default = next((n for n in libraries.nccl[nccl].file_names if n.startswith("libnccl-net")), "libnccl-net.so")
    words = [w for w in started(case).get("NCCL_NET_PLUGIN", "").split(",") if w]
    if [word.lower() for word in words] == ["none"]:
        return ["none"]
    expanded = [name for w in words for name in ([w] if "/" in w or w.endswith(".so") else [w, f"libnccl-net-{w}.so"])]
    return expanded or [default]


def plugin_of(case: Inspection, libraries: Libraries, nccl: str) -> str | None:
    """Return the file that NCCL opens as its network plugin; where it can open none, the first that it finds."""
    answers = [a for name in names_tried(case, libraries, nccl) if (a := libraries.resolved.get(name)) and a.file]
    return next((answer.file for answer in answers if not answer.error), answers[0].file if answers else None)


def plugin_names(case: Inspection, libraries: Libraries) -> list[str]:
    """Return the names of names_tried; none without an NCCL, or if NCCL_NET_PLUGIN says to take no plugin."""
    nccl = nccl_in_use(case)
    names = names_tried(case, libraries, nccl[0]) if nccl and nccl[0] in libraries.nccl else []
    return [name for name in names if name != "none"]


def folder_of(path: str) -> str:
    """Return the folder of a file, as it is called where /lib is a link into /usr."""
    folder = str(PurePosixPath(path).parent)
    return f"/usr{folder}" if folder.startswith("/lib") else folder


def providers_of(files: Files, fabric: str) -> list[str]:
    """Return the verbs providers of a fabric, of any ABI and wherever they lie."""
    return [p for p in files.libraries if (m := PROVIDER.fullmatch(base_name(p))) and m.group(1) == fabric]


def loads_nccl(files: Files, libraries: Libraries) -> bool:
    """Return whether a program of the image can use NCCL: it is there, or in torch, or in a program of nccl-tests."""
    torch = any(base_name(path).startswith("libtorch_cuda.so") for path in files.libraries)
    return bool(libraries.nccl) or torch or any(libraries.gpu_code.values())


def looked_for(libraries: Libraries) -> set[str]:
    """Return what the libibverbs that the loader finds looks for; if it finds none, what any in the image looks for."""
    every = libraries.verbs_looks_for
    in_use = every.get(libraries.resolved[VERBS].file)
    return set(in_use or (word for words in every.values() for word in words))


def opened_in(libraries: Libraries) -> set[str]:
    """Return the folders in which libibverbs opens providers.

    Its own, then where the loader finds libibverbs itself.
    """
    folders = {folder_of(word) for word in looked_for(libraries) if "/lib%s-rdmav" in word}
    file = libraries.resolved[VERBS].file
    return folders | ({folder_of(file)} if folders and file else set())


def opened_providers(files: Files, libraries: Libraries) -> dict[str, str]:
    """Return the verbs providers that libibverbs opens, by path: the driver that each is for."""
    folders = opened_in(libraries)
    drivers = {path: m.group(1) for path in files.libraries if (m := PROVIDER.fullmatch(base_name(path)))}
    return {path: driver for path, driver in drivers.items() if not folders or folder_of(path) in folders}


def roots(case: Inspection, files: Files, libraries: Libraries) -> list[str]:
    """Return the files that a job opens by themselves.

    NCCL, its plugin, the fabric's libraries and its verbs provider.
    """
    fabric, nccl = case.expected.fabric, nccl_in_use(case)
    paths = [nccl[0]] if nccl else []
    paths += [p for p in [plugin_of(case, libraries, nccl[0])] if p] if fabric == "efa" and nccl else []
    names = {"efa": (FABRIC, EFA, VERBS), "erdma": (VERBS,)}.get(str(fabric), ())
    paths += [libraries.resolved[name].file for name in names if libraries.resolved[name].file]
    paths += [path for path, driver in opened_providers(files, libraries).items() if driver == fabric]
    return list(dict.fromkeys(paths))


def closure(libraries: Libraries, path: str) -> Closure:
    """Return what `path` pulls in; nothing where that was not looked at."""
    return libraries.closures.get(path, Closure())


def culprits(case: Inspection, libraries: Libraries, name: str) -> dict[str, Broken]:
    """Return the files called `name` that are no libraries, by path, unless a library is taken in their place."""
    answer = libraries.resolved.get(name)
    if name == NCCL:
        nccl = nccl_in_use(case)
        taken = nccl[0] if nccl else ""
    else:
        taken = answer.file if answer else ""
    return {} if taken and not broken(case, taken) else broken_named(case, name) | _fault_of(case, taken)


def _fault_of(case: Inspection, path: str) -> dict[str, Broken]:
    fault = broken(case, path) if path else None
    return {path: fault} if fault else {}


def skip_if_broken(case: Inspection, libraries: Libraries, *names: str) -> None:
    """Skip a validator of a library whose file is not a library: libraries.intact reports it."""
    if any(culprits(case, libraries, name) for name in names):
        pytest.skip("a file by that name is no library: see libraries.intact")
