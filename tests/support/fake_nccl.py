"""Libraries in place of CUDA's driver and NCCL, compiled from fake_nccl.c, and a command that uses them."""

import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

# Starts NCCL as rank 0 of two, and stays for as many seconds as the first word says.
COMMAND = """
import ctypes, sys, time
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
nccl, communicator = ctypes.CDLL("libnccl.so.2"), ctypes.c_void_p()
nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
nccl.ncclCommInitRank(ctypes.byref(communicator), 2, Id.from_buffer_copy(bytes([7] * 128)), 0)
print("the command runs", flush=True)
time.sleep(float(sys.argv[1]))
print("the command is done", flush=True)
"""


@cache
def folder() -> Path:
    """Return the folder with libcuda.so.1 and libnccl.so.2, for LD_LIBRARY_PATH."""
    libraries = Path(mkdtemp(prefix="fake-nccl-"))
    libraries.chmod(0o755)
    source = Path(__file__).with_suffix(".c")
    for name in ("libcuda.so.1", "libnccl.so.2"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(libraries / name), str(source)], check=True)
    (libraries / "command.py").write_text(COMMAND)
    return libraries
