"""The exchanges that validate an image's data path. Each is small: the emulated wire moves some MB a second."""

from rdma_images.datapath.checks import CheckSubject
from rdma_images.datapath.exchange import Exchange

# More than the default limit of 64 KiB for locked memory, and many packets of the largest MTU.
_PINGPONG = "ibv_rc_pingpong -d rxe0 -g 1 -s 131072 -n 10 -c"
_RPING = "rping -C 10 -V -v -S 1000"
# Without -F perftest ends with an error where it cannot measure the processor's speed, as on a busy machine.
_WRITE = "ib_write_bw -d rxe0 -x 1 -s 4096 -n 20 -F"
# ofi_rxm sizes its completion queue by the number of peers, 256 unless set; the emulated adapter's has 32,767 entries.
_LIBFABRIC = "FI_UNIVERSE_SIZE=16 fi_pingpong -I 10 -S 1024 -c"

_RDMA_CORE = "https://github.com/linux-rdma/rdma-core"

RC = Exchange(
    CheckSubject(
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
    CheckSubject(
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
    CheckSubject(
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


def _libfabric(name: str, title: str, provider: str, endpoint: str, fix: str) -> Exchange:
    """Return libfabric's own pingpong over one provider and one kind of endpoint."""
    command = f"{_LIBFABRIC} -p '{provider}' -e {endpoint}"
    expected = f"10 messages of 1,024 bytes each way over {provider}, data checked"
    return Exchange(
        CheckSubject(name, title, expected, fix, source="https://ofiwg.github.io/libfabric/"),
        tool="fi_pingpong",
        server=command,
        client=f"{command} {{server}}",
        listens=("tcp", 47592),
        rdma="verbs" in provider,
    )


TCP = _libfabric(
    "libfabric-tcp",
    "libfabric exchanges messages over tcp: the control for those over verbs",
    "tcp",
    "rdm",
    "libfabric itself does not work in the image: reinstall it",
)
MSG = _libfabric(
    "libfabric-msg",
    "libfabric exchanges messages over verbs between connected endpoints",
    "verbs",
    "msg",
    "install the libibverbs and librdmacm that this libfabric was built with",
)
RDM = _libfabric(
    "libfabric-rdm",
    "libfabric exchanges messages over verbs between reliable datagram endpoints, the kind that NCCL's plugin uses",
    "verbs;ofi_rxm",
    "rdm",
    "install the libibverbs and librdmacm that this libfabric was built with",
)
