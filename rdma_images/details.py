"""What the facts say of a chosen version that later steps need, as plain words in Component.details."""

from dataclasses import replace
from typing import Literal

from rdma_images import versions
from rdma_images.candidate import Candidate
from rdma_images.facts import Facts
from rdma_images.model import Component

TOOLKIT = "/usr/local/cuda"  # where NVIDIA's images, and what compiles CUDA, have it


def detailed(candidate: Candidate, facts: Facts) -> dict[str, Component]:
    """The components of `candidate`, each with its details."""
    makers = {
        "base": _base,
        "cuda": _cuda,
        "nccl": _nccl,
        "efa-installer": _installer,
        "aws-ofi-nccl": _plugin,
        "erdma-apt": _erdma,
        "nccl-tests": _nccl_tests,
    }
    return {
        name: replace(component, details=makers[name](candidate, facts)) if name in makers else component
        for name, component in candidate.components.items()
    }


def plugin_from(candidate: Candidate, facts: Facts) -> Literal["installer", "source"]:
    """Whether the plugin of `candidate` is the one that its installer brings on its base, or is built from source."""
    installer = candidate["efa-installer"]
    system = facts.bases.bases[candidate["base"]].system
    brought = facts.efa.releases[installer].plugin == candidate["aws-ofi-nccl"] and any(
        known.distribution == system and known.platform == candidate["platform"] and known.holds(installer)
        for known in facts.efa.plugin_brought
    )
    return "installer" if brought else "source"


def _base(candidate: Candidate, facts: Facts) -> dict[str, str]:
    """kind, image, distribution, release, codename, glibc; where there is a CUDA its cuda and bin; entrypoint."""
    base = facts.bases.bases[candidate["base"]]
    words = base.model_dump(
        include={"kind", "image", "distribution", "release", "codename", "glibc", "cuda", "entrypoint"}
    )
    has = {name: word for name, word in words.items() if word is not None}
    return has | ({"bin": f"{TOOLKIT}/bin"} if base.cuda else {})


def _cuda(candidate: Candidate, _: Facts) -> dict[str, str]:
    """home and bin: where a devel image has the toolkit."""
    return {"home": TOOLKIT, "bin": f"{TOOLKIT}/bin"} if candidate["variant"] == "devel" else {}


def _nccl(candidate: Candidate, _: Facts) -> dict[str, str]:
    """package: the wheel's name on the package index."""
    return {"package": f"nvidia-nccl-cu{versions.major(candidate['cuda'])}"}


def _installer(candidate: Candidate, facts: Facts) -> dict[str, str]:
    """flags: what efa_installer.sh is called with; bin: its programs' folders; without: its packages to be removed."""
    own = "aws-ofi-nccl" in candidate and plugin_from(candidate, facts) == "source"
    return {
        "flags": " ".join(facts.efa.flags_of(candidate["efa-installer"])),
        "bin": "/opt/amazon/efa/bin /opt/amazon/openmpi/bin",
        "without": "libnccl-ofi" if own else "",
    }


def _plugin(candidate: Candidate, facts: Facts) -> dict[str, str]:
    """from: "installer" or "source"; net-name: for NCCL_NET; files: what it installs; configure: its switches."""
    version = candidate["aws-ofi-nccl"]
    return {
        "from": plugin_from(candidate, facts),
        "net-name": facts.plugin.net_name(version),
        "files": " ".join(file.path for file in facts.plugin.files if file.holds(version)),
        "configure": " ".join(switch.switch for switch in facts.plugin.configure if switch.holds(version)),
    }


def _nccl_tests(candidate: Candidate, _: Facts) -> dict[str, str]:
    """bin; mpi: where their MPI is; where the fabric does not bring it, mpi-packages and (a package's) mpi-headers."""
    bin_ = {"bin": "/opt/nccl-tests/bin"}
    if candidate.fabric == "efa":
        return bin_ | {"mpi": "/opt/amazon/openmpi", "mpi-packages": "", "mpi-headers": ""}
    machine = "aarch64" if candidate["platform"] == "linux/arm64" else "x86_64"
    # Debian's and Ubuntu's place: the list of files of libopenmpi-dev.
    mpi = f"/usr/lib/{machine}-linux-gnu/openmpi"
    return bin_ | {"mpi": mpi, "mpi-packages": "openmpi-bin", "mpi-headers": "libopenmpi-dev"}


def _erdma(_: Candidate, facts: Facts) -> dict[str, str]:
    """packages: what is installed from Alibaba's apt repository."""
    return {"packages": " ".join(facts.erdma.repository.packages)}
