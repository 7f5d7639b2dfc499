"""Messages of NCCL and the libraries below it: the part that failed, by the source file or the words of the message."""

import pytest

from rdma_images.facts import facts_file
from rdma_images.facts.failures import Failures
from rdma_images.nccl_logs.verdict import Verdict, judge_lines, load_wordings

NODE = "node-1:42:43 [3] "
UCX = "[1700000000.123456] [node-1:42 :0] "
NVSHMEM = "/src/nvshmem/src/"
VERBS = NODE + "misc/ibvwrap.cc:160 NCCL WARN Call to "
EFA = "libfabric:42:1700000000:efa:cq:"
# The row of facts/failures.yaml that each line is told by.
LINES = {
    "nccl-cuda": NODE + "include/alloc.h:99 NCCL WARN Cuda failure 1 'invalid argument'",
    "cuda-ending": NODE + "include/alloc.h:243 NCCL WARN Cuda failure 'driver shutting down'",
    "nccl-call": NODE + "misc/argcheck.cc:40 NCCL WARN Reduce : sendbuff 0x7f is not a valid pointer",
    "nccl-connection": NODE + "misc/socket.cc:500 NCCL WARN ncclSocketConnect: wrong socket state 3",
    "nccl-net-socket": NODE + "transport/net_socket.cc:300 NCCL WARN NET/Socket : unable to allocate requests",
    "nccl-proxy": NODE + "proxy.cc:1519 NCCL WARN [Proxy Service 2] Failed to execute operation Connect, retcode 3",
    "nccl-shm": NODE + "transport/shm.cc:590 NCCL WARN Invalid argument desc 0x7f, hptr 0x7f",
    "nccl-p2p": NODE + "transport/p2p.cc:275 NCCL WARN failed to peer with device 1(=b0000): 711 exhausted",
    "nccl-nvls": NODE + "transport/nvls.cc:251 NCCL WARN Cuda failure 1 'invalid argument'",
    "nccl-mnnvl": NODE + "mnnvl.cc:60 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system.",
    "nccl-ib": NODE + "transport/net_ib/p2p.cc:90 NCCL WARN NET/IB : unable to allocate requests",
    "nccl-collnet": NODE + "transport/coll_net.cc:400 NCCL WARN Child comms (nRanks 8) fails to share parent comms",
    "nccl-gin": NODE + "gin/gin_host.cc:120 NCCL WARN No GIN-capable devices found.",
    "nccl-plugin": NODE + "plugin/net.cc:120 NCCL WARN Comm config netName (IB) does not match the parent (Socket)",
    "nccl-topology": NODE + "graph/search.cc:1100 NCCL WARN Could not find NIC for rank 3 in NVLS graph",
    "nccl-driver": NODE + "misc/cudawrap.cc:100 NCCL WARN CUDA Driver version found is 11000. Minimum requirement is",
    "nccl-own-gpu": NODE + "misc/nvmlwrap.cc:181 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found",
    "nccl-rings": NODE + "graph/rings.cc:38 NCCL WARN Error : ring 0 does not loop back to start (14 != 0)",
    "nccl-graph-file": "NCCL_GRAPH_FILE set by environment to x\n"
    + NODE
    + "graph/search.cc:703 NCCL WARN XML Import Channel : dev 1 not found.",
    "nccl-gdrcopy": NODE + "misc/gdrwrap.cc:160 NCCL WARN gdr_pin_buffer(addr 7f3a, size 65536) failed: 12",
    "nccl-memory": NODE + "misc/utils.cc:200 NCCL WARN Unrecoverable error detected: malloc(size=4096) returned null.",
    "nccl-system": NODE + "include/utils.h:60 NCCL WARN Thread join failed: x",
    "nccl-shape": NODE + "bootstrap.cc:77 NCCL WARN Message truncated : received 256 bytes instead of 4",
    "nccl-stranger": NODE + "misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3",
    "nccl-retries": NODE + "misc/socket.cc:540 NCCL WARN socketStartConnect: exceeded retries (34)",
    "nccl-subnet": NODE + "socket.cc:2 NCCL WARN No interface found in the same subnet as remote address 10.0.0.2<1>",
    "nccl-comm-id": NODE + "bootstrap.cc:100 NCCL WARN Invalid NCCL_COMM_ID",
    "nccl-copies": NODE + "misc/argcheck.cc:60 NCCL WARN Error: corrupted comm object detected",
    "nccl-no-network": NODE + "net.cc:600 NCCL WARN Error: network AWS not found.",
    "nccl-link-types": NODE + "net_ib.cc:9 NCCL WARN NET/IB : Try selecting NICs of only one link type",
    "plugin-call": NODE + "nccl_net_ofi_devices:9 NCCL WARN NET/OFI Error accessing plugin.",
    "plugin-gpu": NODE + "nccl_net_ofi_gpu_init:9 NCCL WARN NET/OFI Failed to query CUDA runtime version.",
    "plugin-registration": NODE + "reg_mr:9 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0",
    "plugin-topology": NODE + "nccl_ofi_topo_create:9 NCCL WARN NET/OFI Unable to load hardware topology.",
    "plugin-connection": NODE + "connect:9 NCCL WARN NET/OFI CM connect failed",
    "ucx-rdma": UCX + "        ib_md.c:310  UCX  ERROR ibv_alloc_pd() failed",
    "ucx-node": UCX + "      mm_iface.c:984  UCX  ERROR mm_iface failed",
    "ucx-gpu": UCX + " cuda_ipc_cache.c:150  UCX  ERROR failed to open ipc mem handle. addr:0x7f",
    "ucx-tcp": UCX + "        tcp_ep.c:310  UCX  ERROR tcp_ep 0x7f (fd=3): failed to prepare AM data",
    "ucx-memlock": UCX + "       rc_iface.c:520 UCX  ERROR Please set max locked memory (ulimit -l)",
    "ucx-no-transport": UCX + "        select.c:630  UCX  ERROR   no active messages transport to x",
    "nvshmem-bootstrap": NVSHMEM + "host/bootstrap/bootstrap_loader.cpp:45: NULL value Bootstrap unable to load 'x.so'",
    "nvshmem-transport": NVSHMEM + "modules/transport/ibgda/ibgda.cpp:3577: status: 7 ibgda_create_cq failed.",
    "nvshmem-memory": NVSHMEM + "host/mem/mem_heap.cpp:540: status: 7 cuMemCreate failed",
    "nvshmem-node": NVSHMEM + "host/topo/topo.cpp:500: status: 7 cudaDeviceGetAttribute failed",
    "nvshmem-program": NVSHMEM + "host/init/init.cu:1012: status: 7 nvshmem_bootstrap failed",
    "nvshmem-multicast": NVSHMEM + "host/team/team_internal_nvls.cpp:99: status: 7 cuMulticastCreate failed",
    "nvshmem-device": "WARN: device erdma_0 is not enumerated as an mlx5 device. Skipping...",
    "nvshmem-init": NVSHMEM + "host/transport/transport.cpp:1: init failed for transport: IBGDA",
    "nvshmem-peermem": "WARN: neither nv_peer_mem, or nvidia_peermem detected. Skipping transport.",
    "gloo-error": "RuntimeError: [../gloo/transport/tcp/pair.cc:611] Connect timeout [10.0.0.3]:27023",
    "deepep-timeout": "DeepEP timeout for dispatch receivers, rank 3, responsible_channel = 3, tokens: 3",
    "deepep-setup": "RuntimeError: NCCL GIN is unavailable.",
    "deepep-check": "RuntimeError: Failed: Assertion error /DeepEP/csrc/deep_ep.cpp:123 'num_ranks <= 8'",
    "rdma-driver-missing": "libibverbs: Warning: no userspace device-specific driver found for uverbs0",
    "rdma-driver-call": "efa: Failed to create QP",
    "verbs-call": VERBS + "ibv_dereg_mr failed with error Invalid argument errno 22",
    "verbs-device": VERBS + "ibv_query_port failed with error No such device errno 19",
    "verbs-objects": VERBS + "ibv_create_qp failed with error Operation not permitted",
    "verbs-connection": NVSHMEM + "modules/transport/ibrc/ibrc.cpp:1433: status: 7 ibv_modify_qp failed",
    "verbs-registration": VERBS + "ibv_reg_mr_iova2 failed with error Bad address",
    "verbs-dmabuf": VERBS + "ibv_reg_dmabuf_mr failed with error Operation not supported",
    "shm-full": NODE + "shmutils.cc:7 NCCL WARN failed to extend /dev/shm/nccl-x to 96 bytes, No space left on device",
    "efa-no-answer": EFA + "handle_error():9<warn> err: 21, message: Unresponsive receiver",
    "efa-memory": EFA + "efa_cq_handle_error():9<warn> Remote memory registration is invalid",
    "efa-versions": EFA + "efa_rdm_pke_insert_addr():9<warn> Host x received a packet with invalid protocol version 3.",
    "efa-p2p": EFA + "efa_hmem_info_init_iface():9<warn> cuda requires p2p, unset FI_HMEM_DISABLE_P2P",
    "wc-protection": UCX + "ib_mlx5_log.c:179  UCX  ERROR Local protection error on mlx5_0:1/RoCE",
    "wc-remote": UCX + "ib_mlx5_log.c:179  UCX  ERROR Remote access error on mlx5_0:1/RoCE",
    "wc-not-ready": "poll: RNR retry counter exceeded (13)",
    "wc-flushed": "poll: Work Request Flushed Error (5)",
    "efa-memlock": EFA + "efa_mr_regattr():632<warn> Unable to register MR: Cannot allocate memory",
    "nccl-argument": "RuntimeError: NCCL error: invalid argument (run with NCCL_DEBUG=WARN for details)",
    "gpu-busy": "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "stub-driver": "RuntimeError: CUDA error: CUDA driver is a stub library",
    "peer-mappings": NODE + "transport/p2p.cc:275 NCCL WARN Cuda failure 'peer mapping resources exhausted'",
    "mps": "RuntimeError: CUDA error: MPS server is not ready to accept new MPS client requests",
    "cuda-start": NODE + "init.cc:1 NCCL WARN Cuda failure 999 'unknown error'",
    "torch-build": "RuntimeError: Distributed package doesn't have NCCL built in",
    "torch-device": "RuntimeError: Tensors must be CUDA and dense",
    "mpi-tcp": "WARNING: Open MPI failed to TCP connect to a peer MPI process.",
    "mpi-peer-gone": "An MPI communication peer process has unexpectedly disconnected.",
    "mpi-shm": "A system call failed during shared memory initialization that should not have.",
    "mpi-cuda": "The call to cuIpcOpenMemHandle failed. This is an unrecoverable error and will",
    "mpi-libfabric": "Open MPI failed an OFI Libfabric library call (fi_endpoint).",
    "mpi-components": "No components were able to be opened in the pml framework.",
}  # fmt: skip
FACTS = facts_file.read(Failures)
SOURCES = {"nccl-parts", "ucx-parts", "nvshmem-parts", "gloo-parts", "deepep-parts", "verbs-parts", "efa-errors"} | {
    "wc-status",
    "efa-memlock",
    "cuda-errors",
    "mpi-help",
}
# How torch raises NCCL's last error: without the file of the message.
RAISED = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/job/train.py", line 12, in <module>
[rank3]:     dist.all_reduce(x)
[rank3]:   File "/usr/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 2501, in all_reduce
[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:3384, internal error, NCCL version 2.28.9
[rank3]: ncclInternalError: Internal check failed.
[rank3]: Last error:
[rank3]: """
REPEATED = (
    "nccl-cuda", "nccl-mnnvl", "nccl-shape", "nccl-stranger", "nccl-retries", "nccl-subnet", "nccl-copies",
    "nccl-no-network", "nccl-link-types", "verbs-registration", "verbs-dmabuf", "verbs-device", "shm-full",
    "plugin-registration", "plugin-topology",
)  # fmt: skip


def verdict_on(text: str) -> Verdict:
    return judge_lines(text.splitlines(), load_wordings())


def first_lines(name: str) -> str:
    """Return what a row's sentence begins with, up to what the line fills in."""
    return FACTS.failures[name].why.partition("{")[0]


@pytest.mark.parametrize("name", LINES)
def test_a_message_is_classed_by_its_part(name: str) -> None:
    failure = verdict_on(LINES[name]).failure
    assert failure is not None
    assert first_lines(name) in failure.why


def test_every_part_has_a_message() -> None:
    rows = {name for name, row in FACTS.failures.items() if row.why and row.source in SOURCES}
    assert sorted(rows - LINES.keys()) == []


@pytest.mark.parametrize("name", REPEATED)
def test_a_message_that_torch_repeats_is_classed_by_its_words(name: str) -> None:
    message = LINES[name].partition("NCCL WARN ")[2]
    failure = verdict_on(RAISED + message).failure
    assert failure is not None
    assert first_lines(name) in failure.why
    assert failure.rank == "3"


@pytest.mark.parametrize(
    "message",
    [
        "graph/search.cc:9 NCCL WARN Could not find a path for pattern 4, falling back to simple order",
        "init.cc:9 NCCL WARN NCCL_WORK_FIFO_DEPTH=3 is being ignored because it is not a power of 2.",
        "init.cc:9 NCCL WARN minCTAs 64 is larger than #channels upper limit 32, cap it to 32",
        "graph/xml.cc:9 NCCL WARN Could not find real path of /sys/class/net/eth0/device",
        "misc/profiler.cc:9 NCCL WARN Profiler init failed with error (1). Continue without profiler.",
        "NCCL WARN NET/Plugin: Could not find: libnccl-net.so",
        "misc/cudawrap.cc:90 NCCL WARN Failed to find CUDA library in /usr/local/cuda-11.7 (NCCL_CUDA_PATH=x)",
        "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
        "ras/ras.cc:9 NCCL WARN RAS received unknown notification type 3",
        "transport/net_ib/common.cc:9 NCCL WARN NET/IB : mlx5_0:1 GID table changed",
        "register/register.cc:9 NCCL WARN rank 3 deregister NVLS buffer 0x7f dev 3 failed",
        "nccl_ofi_gin_init(void**):55 NCCL WARN NET/OFI GIN only supports RDMA transport protocol.",
        "configure_nvls_option:9 NCCL WARN NET/OFI Unable to set NCCL_NVLS_ENABLE",
        "close:9 NCCL WARN NET/OFI Closing send_comm 0x7f with inflight requests. Invalidating ep for send comm",
    ],
)
def test_a_warning_with_which_nccl_goes_on_is_no_failure(message: str) -> None:
    assert verdict_on(NODE + message).failure is None


def test_the_first_warning_of_a_rank_counts_more_than_what_follows_from_it() -> None:
    lines = (LINES["nccl-proxy"], LINES["nccl-nvls"], LINES["nccl-proxy"], LINES["nccl-gin"], RAISED + "x")
    failure = verdict_on("\n".join(lines)).failure
    assert failure is not None
    assert (failure.layer, failure.network) == ("NVLink SHARP (multicast)", False)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("4", "may not read the memory of a GPU"),
        ("5", "failed before"),
        ("remote access error(10)", "refused a transfer (status 10)"),
        ("12", "did not answer"),
        ("13", "not ready to receive"),
        ("3", "ended with status 3"),
    ],
)
def test_a_status_of_verbs_says_which_side_failed(status: str, words: str) -> None:
    line = f"transport/net_ib/p2p.cc:9 NCCL WARN NET/IB: Got completion from peer x with status={status} opcode=0 len=0"
    assert words in verdict_on(NODE + line).sentence


def test_words_of_any_program_in_a_line_of_information_leave_what_its_library_says() -> None:
    failure = verdict_on(EFA + "efa_av_close():9<warn> Unable to close util_av: Connection timed out").failure
    assert failure is not None
    assert failure.why == "libfabric warns, and may go on"


def test_an_error_of_nccl_that_no_row_knows_is_quoted_from_torch() -> None:
    failure = verdict_on(RAISED + "The moon is full").failure
    assert failure is not None
    assert failure.quote.endswith("DistBackendError: … Last error: The moon is full")


def test_a_communicator_that_was_aborted_is_not_of_mpirun() -> None:
    failure = verdict_on("torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.").failure
    assert failure is not None
    assert failure.layer == ""


def test_an_error_of_the_system_is_of_the_part_that_had_it() -> None:
    line = "misc/shmutils.cc:72 NCCL WARN Error: Could not map /dev/shm/x size 3, error: Cannot allocate memory (12)"
    failure = verdict_on(NODE + line).failure
    assert failure is not None
    assert (failure.layer, failure.why.partition(":")[0]) == (
        "shared memory of a node",
        "the host's memory is not enough",
    )


def test_what_nccl_says_by_itself_is_reported_once() -> None:
    lines = (
        "plugin/net.cc:379 NCCL WARN Failed to initialize any NET plugin",
        "plugin/net.cc:400 NCCL WARN Unknown device code index 3",
    )
    result = verdict_on("\n".join(NODE + line for line in lines) + "\n" + RAISED + "x")
    assert result.sentence.startswith("NCCL did not start: NCCL_NET names a network that is not there")
    assert "do not fit each other" not in result.sentence
