"""What takes space in the image, and what has no business in it."""

import re
from collections.abc import Mapping

import pytest

from rdma_images import paths, yamlfile
from rdma_images.facts.base import Bases
from rdma_images.validate.case import Case, name_of
from rdma_images.validate.measured import Files, Libraries
from rdma_images.validate.plugin import Judge, unmeasured
from rdma_images.yamlfile import Strict

LAYERS = "a file that a later layer removes is still pulled, and still readable, with the layer that brought it"
CUDA = re.compile(
    r"(lib(?:cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|nvJitLink|nvrtc)\.so\.\d+)(?:\.[\d.]+)?"
)
STUB_SIZE = 1 << 20  # bytes: the driver's libcuda is over 20 MiB, the toolkit's stub under 100 KiB
SHOWN = 8


class Budgets(Strict):
    """validators/budgets.yaml: bytes to pull, by target."""

    bytes_to_pull: dict[str, int]


def left_in(case: Case, kind: str) -> list[str]:
    """The leftovers of a kind in any layer; where there are no layers to read, in the file system that they make."""
    layers, tree = case.measured.layers, case.measured.tree
    if layers is None and (tree is None or "layers" in case.measured.lost):
        unmeasured(case, "layers")
    found: Mapping[str, str] = getattr(tree.files.leftovers, kind) if tree and layers is None else {}
    said = [f"{path} ({why})" for path, why in found.items()]
    for number, layer in enumerate(layers or (), 1):
        said += [f"{path} ({why}, layer {number})" for path, why in getattr(layer.leftovers, kind).items()]
    return said


def some(entries: list[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return ", ".join(entries[:SHOWN]) + more


def megabytes(size: int) -> str:
    """Bytes for people."""
    return f"{size / 1e6:,.0f} MB"


@pytest.mark.validator("layers.secrets", source=LAYERS)
def test_secrets(case: Case, judge: Judge) -> None:
    """No secret lies in any layer."""
    found = left_in(case, "secret")
    judge(
        not found,
        expected="none",
        found=some(found) or "none",
        mend="replace the secret, which is known to everybody who pulled the image; use --mount=type=secret in builds",
    )


@pytest.mark.validator("layers.caches", source=LAYERS, severity="warning")
def test_caches(case: Case, judge: Judge) -> None:
    """No package manager's cache lies in any layer."""
    found = left_in(case, "cache")
    judge(
        not found,
        expected="none",
        found=some(found) or "none",
        mend="use --mount=type=cache, or remove them in the same RUN: rm -rf /var/lib/apt/lists/*, pip --no-cache-dir",
    )


@pytest.mark.validator("layers.temporary", source=LAYERS, severity="warning")
def test_temporary(case: Case, judge: Judge) -> None:
    """No temporary file lies in any layer."""
    found = left_in(case, "temporary")
    judge(not found, expected="none", found=some(found) or "none", mend="remove them in the RUN that makes them")


@pytest.mark.validator("files.writable", source="CWE-732: whoever runs in the container can change what others run")
def test_writable(files: Files, judge: Judge) -> None:
    """Nothing but sticky folders is writable for everybody."""
    judge(
        not files.world_writable,
        expected="none",
        found=some(files.world_writable) or "none",
        mend=f"chmod o-w {' '.join(files.world_writable[:SHOWN])}",
    )


def toolkit_of_base(case: Case) -> str | None:
    """The folder of the CUDA toolkit for which the image's base was taken, on purpose beside the wheels'; else None."""
    name = case.expected.components.get("base") or case.subject.label("component.base") or ""
    base = yamlfile.load(paths.FACTS / "bases.yaml", Bases).bases.get(name)
    return f"/usr/local/cuda-{base.cuda.rpartition('.')[0]}/" if base and base.cuda else None


@pytest.mark.validator("cuda.single", source="two copies of one CUDA library in a process each keep their own state")
def test_cuda_single(case: Case, files: Files, judge: Judge) -> None:
    """Each CUDA library is in the image once, but for those of the toolkit that its base was taken for."""
    toolkit = toolkit_of_base(case)
    copies: dict[str, list[str]] = {}
    for path, file in files.libraries.items():
        if "/stubs/" in path or (toolkit and path.startswith(toolkit)):
            continue
        if not file.target and (match := CUDA.fullmatch(name_of(path))):
            copies.setdefault(match.group(1), []).append(path)
    if not copies:
        pytest.skip("the image has no CUDA libraries")
    twice = {name: found for name, found in copies.items() if len(found) > 1}
    judge(
        not twice,
        expected=f"{len(copies)} libraries, each once" + (f", beside the base's own in {toolkit}" if toolkit else ""),
        found="; ".join(f"{name}: {', '.join(found)}" for name, found in twice.items()) or "each once",
        mend="keep the wheels' and leave the toolkit out, or the other way round",
    )


@pytest.mark.validator("cuda.stub", source="CUDA toolkit: the libcuda in its stubs folder is for linking only")
def test_cuda_stub(files: Files, libraries: Libraries, judge: Judge) -> None:
    """The loader does not find a stub of the driver."""
    answer = libraries.resolved["libcuda.so.1"]
    about = files.libraries.get(answer.file)
    size = f"{about.size} bytes" if about else "mounted into the container"
    stub = bool(answer.file) and ("/stubs/" in answer.file or (about is not None and about.size < STUB_SIZE))
    judge(
        not stub,
        expected="no libcuda.so.1 (the runtime brings the driver's), or a whole one",
        found=f"{answer.file}, {size}" if answer.file else "none",
        mend="take the stubs folder out of ld.so.conf.d and LD_LIBRARY_PATH, run ldconfig",
    )


@pytest.mark.validator("size.budget", source="validators/budgets.yaml", severity="warning")
def test_budget(case: Case, judge: Judge) -> None:
    """The image takes no more to pull than its target's budget."""
    budgets = yamlfile.load(paths.VALIDATORS / "budgets.yaml", Budgets).bytes_to_pull
    target = case.expected.target or case.subject.label("target") or ""
    budget = budgets.get(target) or pytest.skip(f"no budget is set for {target or 'an image without a target'}")
    layers = case.measured.layers
    size = sum(layer.bytes for layer in layers) if layers else case.subject.bytes
    sizes = case.measured.tree.files.sizes if case.measured.tree else {}
    largest = ", ".join(f"{place} {megabytes(taken)}" for place, taken in list(sizes.items())[:SHOWN])
    judge(
        size <= budget,
        expected=f"at most {megabytes(budget)}",
        found=f"{megabytes(size)}; unpacked, most is in {largest}",
        mend="take out what the target does not need, or raise the budget in validators/budgets.yaml with a reason",
    )
