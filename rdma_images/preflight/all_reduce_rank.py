"""One rank of the all-reduce: a process with one GPU, which calls CUDA's driver and the job's NCCL, and no framework.

It is run with five words: NCCL's path, its rank, the number of ranks, its GPU's number, and the bytes to sum up. It
reads the communicator's id as a line of hexadecimal digits; rank 0 makes it, and writes it first. Then it writes one
line of JSON and waits for the end of its input, since an earlier end would break other ranks' connections.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
import time
from typing import Any

ROUNDS = 5  # that are timed, after one that is not
FLOAT32, SUM = 7, 0  # ncclDataType_t and ncclRedOp_t
PART_BYTES = 8 << 20  # that are read at once: a container's memory may have little room beside the command's
CUDA_CAUSES = {
    34: "the CUDA toolkit's stub, which LD_LIBRARY_PATH or the image puts before the driver's own libcuda.so.1",
    802: "as when nvidia-fabricmanager does not run, or is of another version than the driver",
    803: "as when the image's CUDA compatibility libraries do not fit the node's driver",
    999: "as when nvidia-uvm is not loaded, or the driver was updated without a restart",
}


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which NCCL takes by value."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


class CallError(Exception):
    """CUDA or NCCL returned an error, or is not here."""


def call_cuda(cuda: Any, function: str, *arguments: Any) -> None:
    """Call a function of CUDA's driver. Raises CallError with CUDA's message and its likely cause."""
    code = getattr(cuda, function)(*arguments)
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        cause = ": " + CUDA_CAUSES[code] if code in CUDA_CAUSES else ""
        words = (text.value or b"unknown").decode()
        raise CallError("CUDA's %s ended with error %d, %s%s" % (function, code, words, cause))


def call_nccl(nccl: Any, function: str, *arguments: Any) -> None:
    """Call a function of NCCL. Raises CallError with NCCL's message."""
    code = getattr(nccl, function)(*arguments)
    if code:
        raise CallError("%s: %s" % (function, nccl.ncclGetErrorString(code).decode("utf-8", "replace")))


def load_library(path: str, advice: str) -> Any:
    """Return a library. Raises CallError where it cannot be loaded."""
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise CallError("%s: %s" % (error, advice)) from None


def is_filled(cuda: Any, address: int, size: int, value: float) -> bool:
    """Return whether `size` bytes at an address of the GPU are floats of this value."""
    expected = struct.pack("f", value) * (min(size, PART_BYTES) // 4)
    part = ctypes.create_string_buffer(len(expected))
    for start in range(0, size, PART_BYTES):
        length = min(PART_BYTES, size - start)
        call_cuda(cuda, "cuMemcpyDtoH_v2", part, ctypes.c_uint64(address + start), ctypes.c_size_t(length))
        if part.raw[:length] != expected[:length]:
            return False
    return True


def run_rank(nccl_path: str, rank: int, ranks: int, gpu: int, size: int) -> dict[str, Any]:
    """Take part in the all-reduces, and return `is_right`, `start_seconds` and `seconds` of one of `size` bytes."""
    cuda = load_library("libcuda.so.1", "the container lacks NVIDIA_DRIVER_CAPABILITIES=compute,utility or its runtime")
    nccl = load_library(nccl_path, "NCCL of this image")
    nccl.ncclGetErrorString.restype = ctypes.c_char_p
    pointer, size_type, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    nccl.ncclCommInitRank.argtypes = [pointer, number, UniqueId, number]
    nccl.ncclAllReduce.argtypes = [pointer, pointer, size_type, number, number, pointer, pointer]
    call_cuda(cuda, "cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call_cuda(cuda, "cuDeviceGet", ctypes.byref(device), gpu)
    call_cuda(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call_cuda(cuda, "cuCtxSetCurrent", context)
    unique_id = UniqueId()
    if rank == 0:
        call_nccl(nccl, "ncclGetUniqueId", ctypes.byref(unique_id))
        print(bytes(unique_id).hex(), flush=True)
    line = sys.stdin.readline().strip()
    if not line:
        raise CallError("rank 0 made no communicator: see the lines of the first node")
    unique_id = UniqueId.from_buffer_copy(bytes.fromhex(line))
    started = time.monotonic()
    communicator, buffer = ctypes.c_void_p(), ctypes.c_uint64()
    call_nccl(nccl, "ncclCommInitRank", ctypes.byref(communicator), ranks, unique_id, rank)
    call_cuda(cuda, "cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(size))
    one = struct.unpack("I", struct.pack("f", 1.0))[0]
    call_cuda(cuda, "cuMemsetD32_v2", buffer, ctypes.c_uint(one), ctypes.c_size_t(size // 4))

    def sum_up() -> None:
        call_nccl(nccl, "ncclAllReduce", buffer.value, buffer.value, size // 4, FLOAT32, SUM, communicator, None)

    sum_up()
    call_cuda(cuda, "cuCtxSynchronize")
    start_seconds = time.monotonic() - started
    is_right = is_filled(cuda, buffer.value, size, float(ranks))
    started = time.monotonic()
    for _ in range(ROUNDS):
        sum_up()
    call_cuda(cuda, "cuCtxSynchronize")
    return {"is_right": is_right, "start_seconds": start_seconds, "seconds": (time.monotonic() - started) / ROUNDS}


def main(words: list[str]) -> None:
    """Print the result, or {"error": reason}, and wait for the end of the input."""
    try:
        answer = run_rank(words[0], *map(int, words[1:]))
    except CallError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
