"""NIXL in an image: bytes go to another process or machine, by its backend for EFA and by UCX's. And NVSHMEM's start.

TCP and an emulated adapter stand in place of the fabric's, and a library with the names that NIXL's plugins need in
place of CUDA's driver.
"""

import base64
import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import engine as engines
from rdma_images.datapath import exchange, export, guest_files, guests
from rdma_images.datapath.checks import CheckDefinition
from rdma_images.engine import docker_command
from tests.support import fake_nccl
from tests.support.built_targets import ref

pytestmark = [pytest.mark.e2e, pytest.mark.part("datapath")]

DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
PORT = 18519
# torch is imported first, as servers do it: the plugin for libfabric takes the CUDA runtime that torch has loaded.
TRANSFER = """
import contextlib, hashlib, json, os, select, socket, sys
with contextlib.suppress(ImportError):  # the emulated machines have none
    import torch
import numpy
from nixl_cu13._api import nixl_agent, nixl_agent_config

BACKEND, SERVER, SIZE, PORT = sys.argv[1], sys.argv[2:], 1 << 20, 18519
data = numpy.frombuffer(os.urandom(SIZE) if SERVER else bytes(SIZE), "uint8").copy()
digest = hashlib.sha256(data).hexdigest()
agent = nixl_agent("client" if SERVER else "server", nixl_agent_config(backends=[]))
agent.create_backend(BACKEND)
place = (data.ctypes.data, SIZE, 0)
agent.register_memory([(*place, "")], "DRAM", backends=[BACKEND])

def is_there(peer):
    return not select.select([peer], [], [], 0)[0] or peer.recv(1, socket.MSG_PEEK)

if SERVER:
    peer = socket.create_connection((*SERVER, PORT))
    lines = peer.makefile("rw")
    metadata, remote_place = json.loads(lines.readline())
    remote = agent.add_remote_agent(bytes.fromhex(metadata))
    descriptors = [agent.get_xfer_descs([tuple(each)], "DRAM") for each in (place, remote_place)]
    transfer = agent.initialize_xfer("WRITE", *descriptors, remote, b"written", backends=[BACKEND])
    state = agent.transfer(transfer)
    while state == "PROC" and is_there(peer):
        state = agent.check_xfer_state(transfer)
    print(digest, file=lines, flush=True)
    answer = lines.readline().strip()
    print(state, answer, flush=True)
    os._exit((state, answer) != ("DONE", "equal"))
with socket.create_server(("", PORT)) as listener:
    peer, _ = listener.accept()
lines = peer.makefile("rw")
print(json.dumps([agent.get_agent_metadata().hex(), place]), file=lines, flush=True)
while is_there(peer) and not any(agent.get_new_notifs().values()):
    pass
sent = lines.readline().strip() or sys.exit("the client ended first")
answer = "equal" if sent == hashlib.sha256(data).hexdigest() else "data mismatch"
print(answer, file=lines, flush=True)
print(answer, flush=True)
os._exit(answer != "equal")
"""
# As NVSHMEM's host library starts its transport: NVIDIA/nvshmem, src/host/transport/transport.cpp.
NVSHMEM = """
import ctypes, glob, os
(path,) = glob.glob("/opt/venv/site-packages/nvidia/nvshmem/lib/nvshmem_transport_libfabric.so.*")
transport, driver = ctypes.c_void_p(), (ctypes.c_void_p * 256)()
ctypes.CDLL(path).nvshmemt_init(ctypes.byref(transport), driver, int(path.rpartition(".")[2]) * 10000)
print(*(line.split()[-1] for line in open("/proc/self/maps") if "/libfabric." in line), flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Yield the name of efa-pytorch with NIXL."""
    name = ref("--target", "efa-pytorch", "--set", "nixl=1.5.0")
    yield name
    docker_command.remove_images(engines.ensure(), name)


def said(image: str, script: str, *options: str) -> str:
    """Return what a shell script says in a container."""
    command = ["docker", "run", "--rm", *options, image, "sh", "-ec", script]
    environ = engines.ensure().environ()
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def transfer(image: str, folder: Path, *variables: str) -> str:
    """Return what two processes say that transfer through libfabric, in a container with these variables."""
    (folder / "transfer").write_text(TRANSFER)
    # With nothing but a loopback, libfabric's tcp has no address for NIXL's endpoints.
    options = ["--network=host", f"--volume={folder}:/parts:ro", *(f"--env={each}" for each in variables)]
    options.append(f"--volume={fake_nccl.folder()}/libcuda.so.1:{DRIVER}:ro")
    listening = f"until grep -q :{PORT:X} /proc/net/tcp*; do kill -0 $!; sleep 0.1; done"
    start = "python /parts/transfer LIBFABRIC"
    return said(image, f"{start} & {listening}; {start} 127.0.0.1", *options)


def test_nixl_writes_through_libfabric(image: str, tmp_path: Path) -> None:
    # Debian's libfabric, the stand-in for AWS's, brings a second libnuma, which ends the process unless it comes first.
    assert "DONE equal" in transfer(image, tmp_path, "FI_PROVIDER=tcp", "LD_PRELOAD=libnuma.so.1")


def test_nixl_takes_no_other_network_where_there_is_no_adapter(image: str, tmp_path: Path) -> None:
    assert "NIXL_ERR" in transfer(image, tmp_path, "LD_PRELOAD=libnuma.so.1")


def test_nvshmem_asks_the_images_libfabric_and_no_provider_but_efas(image: str) -> None:
    """NVSHMEM itself names no provider: its setting says what it asks of one, and FI_PROVIDER of the image which."""
    options = ("--network=none", "--env=FI_LOG_LEVEL=info", "--env=NVSHMEM_DEBUG=INFO")
    output = said(image, f"python -c '{NVSHMEM}'", *options, "--env=NVSHMEM_LIBFABRIC_PROVIDER=efa")
    assert "/opt/amazon/efa/lib" in output
    assert "GDRCopy library not found" in output  # of EFA alone it asks that
    layers = {"ofi_rxm", "ofi_rxd", "ofi_mrail", "lnx"}  # over another provider
    assert set(re.findall(r"fi_getinfo: provider (\w+)", output)) - layers == {"efa"}
    assert "GDRCopy requested, but unused" in said(image, f"python -c '{NVSHMEM}'", *options)


# Of Python's packages, the machines get numpy, NIXL and CUDA's runtime.
LEFT_OUT = ("*/site-packages/[!.n]*", "*/nvidia/n*", "*/nvidia/cu[!1]*", "*/cu13/lib/lib[!c]*", "*/cu13/lib/libcu[!d]*")


@pytest.fixture
def machines(image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[guests.TwoGuests]:
    """Yield two emulated machines with the image's files, and in /tmp the program and CUDA's driver."""
    parts = guest_files.prepare(print)
    added = {"libcuda.so.1": (fake_nccl.folder() / "libcuda.so.1").read_bytes(), "transfer": TRANSFER.encode()}
    added["half"] = TRANSFER.replace("tuple(each)", "(each[0], SIZE // 2, 0)").encode()
    monkeypatch.setattr(export, "EXCLUDED", (*LEFT_OUT, *export.EXCLUDED[2:]))
    with export.image_disk(image, engines.ensure(), parts) as files, guests.start_guests(parts, files) as pair:
        opened = guests.ready_guests(pair, files)
        for guest, (name, content) in itertools.product(pair, added.items()):
            guest.run(f"echo {base64.b64encode(content).decode()} | base64 -d > /image/tmp/{name}", 60)
        yield opened


@pytest.mark.exhaustive
def test_nixl_writes_from_one_machine_to_another(machines: guests.TwoGuests) -> None:
    def found(backend: str, variables: str, rdma: bool = True, client: str = "transfer") -> str:
        start = f"{variables} exec python /tmp/{{}} {backend}"
        order = exchange.Exchange(
            CheckDefinition("nixl", "Two machines write by NIXL", "1 MiB, data checked"),
            tool="python",
            server=start.format("transfer"),
            client=start.format(client) + " {server}",
            listens=("tcp", PORT),
            rdma=rdma,
            seconds=900,  # only for one that hangs: the program ends when its peer has
        )
        return exchange.perform(machines, order).actual

    runtime = "LD_LIBRARY_PATH=/tmp:/opt/venv/site-packages/nvidia/cu13/lib"
    passed = "1 MiB, data checked, with an outside python"
    assert found("LIBFABRIC", f"FI_PROVIDER=tcp LD_PRELOAD=libnuma.so.1 {runtime}", rdma=False) == passed
    verbs = "UCX_TLS=rc_v,ud_v UCX_NET_DEVICES=rxe0:1"
    images_verbs = f"{verbs} LD_PRELOAD=libibverbs.so.1"
    assert found("UCX", images_verbs) == passed
    assert "data mismatch" in found("UCX", images_verbs, client="half")
    # The wheel's UCX opens its own libibverbs, which finds no provider of the image: facts/packages/nixl.yaml.
    assert "NIXL_ERR_BACKEND" in found("UCX", verbs)
    assert found("UCX", "").endswith("no packet went through the RDMA adapter")
