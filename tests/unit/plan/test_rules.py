"""Rules: each refuses what it is about, and nothing else."""

import pytest

from rdma_images import facts
from rdma_images.plan import matrix, rules
from rdma_images.plan.candidate import candidate
from rdma_images.plan.matrix import Target
from rdma_images.plan.refusals import BrokenRule
from tests.support.changed_facts import facts_with

FACTS = facts.load()
OURS = matrix.load()
EFA = OURS.target("efa-pytorch")
ERDMA = OURS.target("erdma-pytorch")
TESTS = OURS.target("erdma-nccl-tests")
BOTH = Target(
    summary="Both fabrics",
    fabric="erdma",
    default={"base": "ubuntu22.04", "pytorch": "2.14.1", "efa-installer": "1.50.0"},
)
OLDER = {"base": "ubuntu22.04", "pytorch": "2.8.0", "aws-ofi-nccl": "1.21.1"}
JAMMY = Target(summary="Jammy", fabric="efa", default=EFA.default | OLDER)
BARE = Target(summary="No CUDA", fabric="efa", default={"base": "debian13", "efa-installer": "1.50.0"})


def broken(target: Target, all_facts: facts.Facts = FACTS, **changes: str) -> dict[str, BrokenRule]:
    changes = {axis.replace("_", "-"): value for axis, value in changes.items()}
    return {
        reason.rule: reason for reason in rules.broken_rules(candidate("mine", target, all_facts, changes), all_facts)
    }


@pytest.mark.parametrize("target", [EFA, ERDMA])
def test_default_rows_break_nothing(target: Target) -> None:
    assert broken(target) == {}


GIN = Target(
    summary="GIN",
    fabric="efa",
    env={"NCCL_GIN_TYPE": "5"},
    default={"base": "debian13", "pytorch": "2.15.0", "nccl": "2.31.2", "efa-installer": "1.50.0"},
)
UCCL = "git+https://github.com/uccl-project/uccl.git@" + "0" * 40


@pytest.mark.parametrize("line", ["deep_ep", "deep_ep @ ./DeepEP", f"deep_ep @ {UCCL}#subdirectory=ep/deep_ep_wrapper"])
@pytest.mark.parametrize("beside", ["numpy", "uccl"])
def test_deep_ep_asks_for_gin_where_it_is_not_uccls(line: str, beside: str) -> None:
    target = GIN.model_copy(update={"env": {}, "python_packages": (line, beside)})
    assert ("gin-needs" in broken(target)) == (beside == "numpy" and "uccl" not in line)


def test_the_component_deep_ep_asks_for_gin_also_beside_uccl() -> None:
    target = GIN.model_copy(update={"env": {}, "python_packages": ("uccl",)})
    assert "gin-needs" in broken(target, deep_ep="2.0")


REFUSED = [
    (GIN, "", "gin-needs", "", "for which the variable NCCL_GIN_TYPE asks, needs gdrcopy >=2.5, which is not"),
    (GIN, "gdrcopy=2.4.4", "gin-needs", "", "needs gdrcopy >=2.5; the image has 2.4.4"),
    (GIN, "gdrcopy=2.5", None, "", ""),
    (EFA, "vllm=0.33.0", "package-needs", "", "vllm 0.33.0 needs pytorch ==2.14.0; the image has 2.15.0"),
    (EFA, "vllm=0.33.0 pytorch=2.14.0", None, "", ""),
    (ERDMA, "deep-ep=2.0", "package-fabric", "", "deep-ep over eRDMA: it needs IBGDA"),
    (EFA, "nccl=2.29.7", "nccl-pin", "nccl pytorch", "pins NCCL 2.30.7"),
    (EFA, "pytorch=2.10.0 nccl=2.27.3", "nccl-pin", "nccl pytorch", "2.27.5"),
    (EFA, "pytorch=2.15.0 nccl=2.27.5", "nccl-cuda", "nccl cuda", "none for CUDA 13"),
    (EFA, "platform=linux/arm64 pytorch=2.10.0", "nccl-on-arm64", "pytorch platform", "for the CPU only"),
    (EFA, "python=3.12", "python-of-base", "python base", "has python 3.13"),
    (EFA, "base=ubuntu22.04", "wheel-python", "pytorch python", "3.11 to 3.15"),
    (EFA, "cuda=12.8", "cuda-of-torch", "cuda pytorch", "bring CUDA 13.2"),
    (EFA, "aws-ofi-nccl=1.12.0", "plugin-installer-fault", "aws-ofi-nccl efa-installer", "it sorts EFA's rails"),
    (EFA, "aws-ofi-nccl=1.20.0", None, "", ""),
    (EFA, "base=ubuntu24.04 efa-installer=1.30.0", "installer-base", "efa-installer base", "from 1.33.0 on"),
    (EFA, "base=ubuntu24.04 efa-installer=1.37.0", "installer-plugin", "efa-installer base platform", "from 1.38.0 on"),
    (JAMMY, "efa-installer=1.36.0", "plugin-compiler", "aws-ofi-nccl efa-installer cuda base platform", "CUDA 13"),
    (EFA, "base=ubuntu24.04 efa-installer=1.47.0", None, "", ""),
    (JAMMY, "aws-ofi-nccl=1.16.2 pytorch=2.3.1", "plugin-nccl-fault", "aws-ofi-nccl nccl", "NCCL 2.20.5: on p4d"),
    (JAMMY, "aws-ofi-nccl=efa-installer efa-installer=1.43.1", None, "", ""),
    (JAMMY, "efa-installer=1.28.0 pytorch=2.3.1", "installer-fault", "efa-installer nccl", "register the GPUs' memory"),
    (EFA, "variant=devel", None, "", ""),
    (EFA, "variant=devel pytorch=2.10.0", "devel-compiler", "variant cuda", "CUDA 13"),
    (TESTS, "", None, "", ""),
    (TESTS, "gpu=sm_70", "gpu-compiler", "gpu cuda", "not for sm_70"),
    (TESTS, "gpu=sm_87", "gpu-of-fabric", "gpu fabric", "theirs are sm_80, sm_86"),
    (TESTS, "gpu=sm_90", None, "", ""),
    (TESTS, "cuda=12.8", "nccl-tests-compiler", "nccl-tests cuda", "CUDA 13 alone"),
    (JAMMY, "efa-installer=1.32.0", "plugin-libfabric", "aws-ofi-nccl efa-installer", "1.21.1 needs 1.22.0"),
    (ERDMA, "pytorch=2.11.0", "nccl-on-erdma", "erdma-apt nccl", "segmentation fault"),
    (ERDMA, "pytorch=2.11.0 nccl=2.29.7", None, "", ""),
    (ERDMA, "pytorch=2.11.0 nccl=2.30.7", None, "", ""),
    (ERDMA, "base=ubuntu24.04", None, "", ""),
    (ERDMA, "base=debian13", "erdma-codename", "erdma-apt base", "not trixie"),
    (ERDMA, "platform=linux/arm64", None, "", ""),
    (BOTH, "", "one-fabric", "fabric efa-installer erdma-apt", "ABI suffixes"),
    (ERDMA, "efa-installer=1.50.0", "axis-of-target", "", "has no efa-installer"),
    (TESTS, "nccl=pytorch", "axis-undecided", "", "has no pytorch that could decide its nccl"),
    (BARE, "variant=devel", "incomplete", "", "a devel image needs cuda"),
]


@pytest.mark.parametrize(("target", "changes", "rule", "compared", "words"), REFUSED)
def test_refused_with_rule_versions_reason_and_source(
    target: Target, changes: str, rule: str | None, compared: str, words: str
) -> None:
    row = dict(change.split("=") for change in changes.split())
    broken_rules = broken(target, FACTS, **row)
    if rule is None:
        assert broken_rules == {}
        return
    versions = candidate("mine", target, FACTS, row).versions
    assert broken_rules[rule].versions == {name: versions[name] for name in compared.split()}
    assert words in broken_rules[rule].reason
    assert broken_rules[rule].source


def altered(table: str, version: str, **values: str | tuple[int, int] | None) -> facts.Facts:
    """Return the facts with one row changed: for what no release of today does."""
    facts_file = getattr(FACTS, table)
    row = facts_file.releases[version].model_copy(update=values)
    releases = facts_file.releases | {version: row}
    return facts_with(**{table: facts_file.model_copy(update={"releases": releases})})


@pytest.mark.parametrize(
    ("changes", "gaps"),
    [
        ({}, []),
        (
            {"aws-ofi-nccl": "1.7.4"},
            ["which net ABI versions aws-ofi-nccl 1.7.4 exports", "works with CUDA 13; 1.17.1"],
        ),
        ({"aws-ofi-nccl": "1.17.1"}, []),
        ({"aws-ofi-nccl": "1.9.2", "pytorch": "2.8.0"}, []),
        ({"efa-installer": "1.48.0", "aws-ofi-nccl": "1.21.1"}, []),
    ],
)
def test_what_is_not_known_is_said(changes: dict[str, str], gaps: list[str]) -> None:
    unknowns = rules.unknown_facts(candidate("efa-pytorch", EFA, FACTS, changes), FACTS)
    assert len(unknowns) == len(gaps)
    for gap, words in zip(unknowns, gaps, strict=True):
        assert words in gap


CUDA_BASE = FACTS.bases.bases["debian13"].model_copy(update={"cuda": "12.8.1"})
FUTURE = [
    (EFA, altered("nccl", "2.30.7", net=(13, 14)), "plugin-abi", "speaks net ABI v12 at most, NCCL 2.30.7 accepts v13"),
    (EFA, altered("efa_installer", "1.50.0", plugin=None), "installer-plugin", "EFA installer 1.50.0 brings is not"),
    (EFA, altered("aws_ofi_nccl", "1.21.1", min_nccl="2.31.0"), "plugin-nccl", "needs NCCL 2.31.0 or newer"),
    (ERDMA, altered("torch", "2.14.1", nccl="2.18.3", cuda="12.1"), "erdma-nccl", "needs NCCL 2.19"),
    (EFA, altered("torch", "2.15.0", cuda="14.0"), "cuda-driver", "no minimum driver is known for CUDA 14"),
    (
        EFA,
        facts_with(bases=FACTS.bases.model_copy(update={"bases": FACTS.bases.bases | {"debian13": CUDA_BASE}})),
        "cuda-of-base",
        "is of another major",
    ),
    (
        ERDMA.model_copy(update={"default": ERDMA.default | {"platform": "linux/arm64"}}),
        facts_with(erdma=FACTS.erdma.model_copy(update={"suites": {"jammy": FACTS.erdma.suites["focal"]}})),
        "erdma-platform",
        "jammy is known for linux/amd64, not linux/arm64",
    ),
]


@pytest.mark.parametrize(("target", "changed_facts", "rule", "words"), FUTURE, ids=[case[2] for case in FUTURE])
def test_refused_by_facts_that_are_not_those_of_today(
    target: Target, changed_facts: facts.Facts, rule: str, words: str
) -> None:
    assert words in broken(target, changed_facts)[rule].reason


def test_ngc_mode_is_switched_off_where_the_base_would_switch_it_on() -> None:
    nvidia = {"base": "cuda13.1.2-devel-ubuntu22.04", "pytorch": "2.14.1"}
    flags = tuple(flag for flag in FACTS.efa_installer.flags if flag.value != "--disable-ngc")
    changed_facts = facts_with(efa_installer=FACTS.efa_installer.model_copy(update={"flags": flags}))
    assert broken(EFA, FACTS, **nvidia) == {}
    assert "with --disable-ngc, and NCCL then uses TCP" in broken(EFA, changed_facts, **nvidia)["ngc-trap"].reason
    assert broken(EFA, changed_facts, **nvidia, efa_installer="1.46.0") == {}
    assert broken(EFA, changed_facts) == {}


def test_every_rule_is_refused_somewhere_above_and_has_an_id_of_its_own() -> None:
    tested = {*(str(case[2]) for case in REFUSED if case[2]), *(case[2] for case in FUTURE), "ngc-trap"}
    only_unknown = {"plugin-cuda"}
    assert sorted(rule.id for rule in rules.RULES) == sorted(tested | only_unknown)
