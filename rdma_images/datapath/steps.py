"""Run the checks in order: what is loaded, then the device, then one exchange after the other."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from rdma_images.core.check import Check
from rdma_images.core.image import Fabric
from rdma_images.core.progress import Progress
from rdma_images.datapath import library_checks
from rdma_images.datapath.checks import CheckDefinition, fail_check, hardware_checks, pass_check, skip_check
from rdma_images.datapath.exchange import WRONG_DATA, Exchange, packets, perform
from rdma_images.datapath.guests import TwoGuests
from rdma_images.datapath.rdma_files import OUTSIDE, SHELL

Step = tuple[CheckDefinition, Callable[[TwoGuests], Check]]
GUESTS = CheckDefinition(
    "guests",
    "Two machines with the image's files start, and stay up until all checks are done",
    "answers from both",
    "read datapath-console.log beside the report",
)
# More than the default limit of 64 KiB for locked memory, and many packets of the largest MTU.
_PINGPONG = "ibv_rc_pingpong -d rxe0 -g 1 -s 131072 -n 10 -c"
_RPING = "rping -C 10 -V -v -S 1000"
# Without -F perftest ends with an error where it cannot measure the processor's speed, as on a busy machine.
_WRITE = "ib_write_bw -d rxe0 -x 1 -s 4096 -n 20 -F"
# ofi_rxm sizes its completion queue by the number of peers, 256 unless set; the emulated adapter's has 32,767 entries.
_LIBFABRIC = "FI_UNIVERSE_SIZE=16 fi_pingpong -I 10 -S 1024 -c"
_RDMA_CORE = "https://github.com/linux-rdma/rdma-core"
RC = Exchange(
    CheckDefinition(
        id="rc-pingpong",
        title="Two hosts exchange messages over a reliable connection of libibverbs",
        expected="10 messages of 131,072 bytes each way, data checked",
        fix="take libibverbs and its providers from one rdma-core, and let programs lock memory without limit",
        source=_RDMA_CORE,
    ),
    tool="ibv_rc_pingpong",
    server=f"exec {_PINGPONG}",
    client=f"exec {_PINGPONG} {{server}}",
    listens=("tcp", 18515),
)
RDMA_CM = Exchange(
    CheckDefinition(
        id="rdma-cm",
        title="Two hosts connect through librdmacm, and read and write each other's memory",
        expected="10 RDMA reads and writes of 1,000 bytes, data checked",
        fix="install librdmacm of the same rdma-core as libibverbs",
        source=_RDMA_CORE,
    ),
    tool="rping",
    server=f"exec {_RPING} -s",
    client=f"exec {_RPING} -c -a {{server}}",
    listens=("cm", 7174),
)
WRITE = Exchange(
    CheckDefinition(
        id="perftest",
        title="perftest writes to another host's memory",
        expected="20 RDMA writes of 4,096 bytes",
        fix="install perftest built against the image's rdma-core",
        source="https://github.com/linux-rdma/perftest",
    ),
    tool="ib_write_bw",
    server=f"exec {_WRITE}",
    client=f"exec {_WRITE} {{server}}",
    listens=("tcp", 18515),
)
MPI_SUBJECT = CheckDefinition(
    "mpi",
    "Two ranks of Open MPI, on two hosts, exchange messages over libfabric's verbs provider",
    "messages of up to 768 bytes, data checked",
    "install an Open MPI whose ofi transport is built with the image's libfabric",
    "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/ofi.html",
)
MPI_SECONDS = 150.0  # 45 were too few on two cores at a load of 13
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


def exchange_over_mpi(guests: TwoGuests) -> Check:
    """Check that all that two ranks send arrives, through the adapter."""
    if not guests.rdma_files.is_from_image("mpirun"):
        return skip_check(MPI_SUBJECT, "the image has no MPI")
    exports = "; ".join(f"export {name}='{value}'" for name, value in _ENVIRONMENT.items())
    # Answers to our stand-in for ssh: what it is given is a command line.
    daemon = guests.session.script(f"exec {OUTSIDE}/busybox nc -l -p 2222 -e {SHELL}")
    guests.client.start(daemon, MPI_SECONDS)
    packets_before = packets(guests.server)
    result = guests.run(f"{exports}; exec {_RANKS}", MPI_SECONDS)
    packets_moved = packets(guests.server) - packets_before
    if result.status or WRONG_DATA.search(result.output) or "Integrity check passed" not in result.output:
        lines = [line.strip() for line in result.output.splitlines() if re.search(r"\w", line)]
        return fail_check(MPI_SUBJECT, f"mpirun ended with status {result.status}: {' / '.join(lines)[-400:]}")
    if not packets_moved:
        return fail_check(MPI_SUBJECT, "the ranks exchanged their messages, but not through the RDMA adapter")
    return pass_check(MPI_SUBJECT, f"{MPI_SUBJECT.expected}, with the image's {guests.rdma_files.tools['mpirun']}")


def _run_libfabric(name: str, title: str, provider: str, endpoint: str, fix: str) -> Exchange:
    """Return libfabric's own pingpong over one provider and one kind of endpoint."""
    command = f"{_LIBFABRIC} -p '{provider}' -e {endpoint}"
    expected = f"10 messages of 1,024 bytes each way over {provider}, data checked"
    return Exchange(
        CheckDefinition(name, title, expected, fix, source="https://ofiwg.github.io/libfabric/"),
        tool="fi_pingpong",
        server=command,
        client=f"{command} {{server}}",
        listens=("tcp", 47592),
        rdma="verbs" in provider,
    )


TCP = _run_libfabric(
    "libfabric-tcp",
    "libfabric exchanges messages over tcp: the control for those over verbs",
    "tcp",
    "rdm",
    "libfabric itself does not work in the image: reinstall it",
)


MSG = _run_libfabric(
    "libfabric-msg",
    "libfabric exchanges messages over verbs between connected endpoints",
    "verbs",
    "msg",
    "install the libibverbs and librdmacm that this libfabric was built with",
)


RDM = _run_libfabric(
    "libfabric-rdm",
    "libfabric exchanges messages over verbs between reliable datagram endpoints, the kind that NCCL's plugin uses",
    "verbs;ofi_rxm",
    "rdm",
    "install the libibverbs and librdmacm that this libfabric was built with",
)


def _with_tool(exchange: Exchange, guests: TwoGuests) -> Check:
    """Run an exchange for which the image may lack the tool."""
    if exchange.tool not in guests.rdma_files.tools:
        return skip_check(exchange.subject, f"the image has no {exchange.tool}")
    return perform(guests, exchange)


def _libfabric(exchange: Exchange, provider: str, guests: TwoGuests) -> Check:
    """Run an exchange over a provider of libfabric, where the image has it."""
    if guests.libfabric is None:
        return skip_check(exchange.subject, "the image has no libfabric")
    if guests.libfabric.status == 0 and f"{provider}:" not in guests.libfabric.output.split():
        return skip_check(exchange.subject, f"the image's libfabric was built without its {provider} provider")
    return perform(guests, exchange)


FILES: tuple[Step, ...] = (
    (library_checks.LIBIBVERBS, library_checks.libibverbs),
    (library_checks.PROVIDERS, library_checks.providers),
    (library_checks.MEMLOCK, library_checks.check_memlock),
    (library_checks.DEVICE, library_checks.device),
)


EXCHANGES: tuple[Step, ...] = (
    (RC.subject, partial(_with_tool, RC)),
    (RDMA_CM.subject, partial(_with_tool, RDMA_CM)),
    (WRITE.subject, partial(_with_tool, WRITE)),
    (TCP.subject, partial(_libfabric, TCP, "tcp")),
    (MSG.subject, partial(_libfabric, MSG, "verbs")),
    (RDM.subject, partial(_libfabric, RDM, "verbs")),
    (MPI_SUBJECT, exchange_over_mpi),
)


def all_skipped(reason: str, fabric: Fabric | None) -> tuple[Check, ...]:
    """Return every check skipped, for one reason."""
    return (*(skip_check(subject, reason) for subject, _ in (*FILES, *EXCHANGES)), *hardware_checks(fabric))


def after_lost_guest(checks: list[Check], error: Exception, fabric: Fabric | None) -> tuple[Check, ...]:
    """Return the checks done before a guest was lost, that failure, and the rest skipped."""
    checked = {check.id for check in checks}
    remaining = (check for check in all_skipped("the guests were lost before", fabric) if check.id not in checked)
    return (*checks, fail_check(GUESTS, str(error)), *remaining)


def run_steps(guests: TwoGuests, fabric: Fabric | None, progress: Progress) -> Iterator[Check]:
    """Yield every check of the tier, each with the seconds it took. Raises GuestError when a guest is lost."""
    for step in FILES:
        yield (check := _run_step(step, guests, progress))
    no_device = check.outcome == "failed"
    for step in EXCHANGES:
        reason = f"no device to try it on: see {check.id}"
        yield skip_check(step[0], reason) if no_device else _run_step(step, guests, progress)
    yield from hardware_checks(fabric)


def _run_step(step: Step, guests: TwoGuests, progress: Progress) -> Check:
    """Take a step, report its result, and note how long it took."""
    subject, function = step
    start_time = time.monotonic()
    check = function(guests)
    progress(f"datapath: {subject.title}: {check.outcome}")
    return replace(check, seconds=round(time.monotonic() - start_time, 3))
