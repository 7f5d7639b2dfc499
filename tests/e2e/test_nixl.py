"""NIXL in an image that has it: bytes go from one process to another, by its backend for EFA and by UCX's.

TCP stands in place of the adapters, and a library with the names that NIXL's plugins need in place of CUDA's driver.
"""

import subprocess

import pytest

from rdma_images import engine as engines
from tests.e2e.test_targets import ref
from tests.support import fake_nccl

pytestmark = pytest.mark.e2e

DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
# torch is imported first, as servers do it: the plugin for libfabric takes the CUDA runtime that torch has loaded.
TRANSFER = """
import hashlib, multiprocessing, sys, time
import torch
from nixl_cu13._api import nixl_agent, nixl_agent_config

BACKEND, SIZE = sys.argv[1], 8 << 20

def agent(name, data):
    agent = nixl_agent(name, nixl_agent_config(backends=[]))
    agent.create_backend(BACKEND)
    place = (data.data_ptr(), SIZE, 0)
    agent.register_memory([(*place, "")], "DRAM", backends=[BACKEND])
    return agent, place

def receive(pipe):
    data = torch.zeros(SIZE, dtype=torch.uint8)
    receiver, place = agent("receiver", data)
    pipe.send((receiver.get_agent_metadata(), place))
    while not any(receiver.get_new_notifs().values()):
        time.sleep(0.001)
    pipe.send(hashlib.sha256(data.numpy()).hexdigest())
    pipe.recv()

pipe, other_end = multiprocessing.Pipe()
multiprocessing.Process(target=receive, args=(other_end,), daemon=True).start()
data = torch.randint(256, (SIZE,), dtype=torch.uint8)
sender, place = agent("sender", data)
metadata, remote_place = pipe.recv()
remote = sender.add_remote_agent(metadata)
descriptors = [sender.get_xfer_descs([each], "DRAM") for each in (place, remote_place)]
transfer = sender.initialize_xfer("WRITE", *descriptors, remote, b"written", backends=[BACKEND])
state = sender.transfer(transfer)
while state == "PROC":
    state = sender.check_xfer_state(transfer)
print(state, pipe.recv() == hashlib.sha256(data.numpy()).hexdigest(), flush=True)
pipe.send("end")
"""


@pytest.fixture(scope="module")
def image() -> str:
    """Return the name of efa-pytorch with NIXL."""
    return ref("--target", "efa-pytorch", "--set", "nixl=1.5.0")


def transfer(image: str, backend: str, *variables: str) -> str:
    """Return the last line of a transfer by NIXL's `backend`, in a container with these variables."""
    environ = engines.ensure().environ()
    # With nothing but a loopback, libfabric's tcp has no address for NIXL's endpoints.
    command = ["docker", "run", "--rm", "--interactive", "--network=host"]
    command += [f"--volume={fake_nccl.folder()}/libcuda.so.1:{DRIVER}:ro", *(f"--env={each}" for each in variables)]
    command += [image, "timeout", "200", "python", "-", backend]
    done = subprocess.run(
        command, env=environ, input=TRANSFER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout.splitlines()[-1]


def test_nixl_writes_through_libfabric(image: str) -> None:
    # Debian's libfabric, the stand-in for AWS's, brings a second libnuma, which ends the process unless it comes first.
    variables = ("FI_PROVIDER=tcp", "LD_PRELOAD=libnuma.so.1")
    assert transfer(image, "LIBFABRIC", *variables) == "DONE True"


def test_nixl_takes_no_other_network_where_there_is_no_adapter(image: str) -> None:
    assert "NIXL_ERR" in transfer(image, "LIBFABRIC", "LD_PRELOAD=libnuma.so.1")


def test_nixl_writes_through_ucx(image: str) -> None:
    assert transfer(image, "UCX", "UCX_TLS=tcp") == "DONE True"
