"""Run two ranks of the image's Open MPI, one in each guest, over libfabric's verbs provider."""

import re

from rdma_images.core.pipeline import Check
from rdma_images.datapath.checks import CheckSubject, failed, passed, skipped
from rdma_images.datapath.exchange import WRONG_DATA, packets
from rdma_images.datapath.lab import Lab
from rdma_images.datapath.survey import OUTSIDE, SHELL

SUBJECT = CheckSubject(
    "mpi",
    "Two ranks of Open MPI, on two hosts, exchange messages over libfabric's verbs provider",
    "messages of up to 768 bytes, data checked",
    "install an Open MPI whose ofi transport is built with the image's libfabric",
    "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/ofi.html",
)

SECONDS = 150.0  # 45 were too few on two cores at a load of 13

# Both names of what changed its name from Open MPI 4 to 5. Ranks are started as the guest's root.
_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_plm_rsh_agent": f"{OUTSIDE}/rsh",
    "PRTE_MCA_plm_ssh_agent": f"{OUTSIDE}/rsh",
    "OMPI_MCA_pml": "cm",
    "OMPI_MCA_mtl": "ofi",
    "OMPI_MCA_mtl_ofi_provider_include": "verbs;ofi_rxm",
    "FI_UNIVERSE_SIZE": "16",
    "HOME": "/tmp",
}

# NetPIPE's test of integrity, for each size from 1 to 1,024 bytes that it likes, 5 times.
_RANKS = "mpirun -x FI_UNIVERSE_SIZE --map-by node -np 2 --host guest1,guest2 NPopenmpi -i -u 1024 -n 5 -o /tmp/netpipe"


def exchange(lab: Lab) -> Check:
    """Start the ranks in the first guest and check that all they sent arrived, through the adapter."""
    if not lab.survey.is_of_image("mpirun"):
        return skipped(SUBJECT, "the image has no MPI")
    exports = "; ".join(f"export {name}='{value}'" for name, value in _ENVIRONMENT.items())
    # Answers to our stand-in for ssh: what it is given is a command line.
    daemon = lab.session.script(f"exec {OUTSIDE}/busybox nc -l -p 2222 -e {SHELL}")
    lab.client.start(daemon, SECONDS)
    packets_before = packets(lab.server)
    answer = lab.run(f"{exports}; exec {_RANKS}", SECONDS)
    moved = packets(lab.server) - packets_before
    if answer.status or WRONG_DATA.search(answer.output) or "Integrity check passed" not in answer.output:
        lines = [line.strip() for line in answer.output.splitlines() if re.search(r"\w", line)]
        return failed(SUBJECT, f"mpirun ended with status {answer.status}: {' / '.join(lines)[-400:]}")
    if not moved:
        return failed(SUBJECT, "the ranks exchanged their messages, but not through the RDMA adapter")
    return passed(SUBJECT, f"{SUBJECT.expected}, with the image's {lab.survey.tools['mpirun']}")
