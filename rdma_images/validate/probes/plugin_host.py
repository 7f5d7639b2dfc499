"""Do what NCCL does with a network plugin, in a process of its own, which the plugin may end.

It is carried as text and started as `python3 -c SOURCE REQUEST`, so it imports the standard library alone. Each line
that it prints is one event as JSON: what was done last is known where the process is killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any

OPEN_MODE = os.RTLD_NOW | os.RTLD_LOCAL  # NVIDIA/nccl src/plugin/plugin_open.cc: tryOpenLib
DLINFO_LINKMAP = 2
SILENT_LEVELS = (4, 5)  # ncclDebugLogLevel: ABORT and TRACE, which no user's log has
MACHINES = {"x86_64": 62, "aarch64": 183}
GLOBAL_FUNCTION, ABSOLUTE = 0x12, 0xFFF1
PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, READ_WRITE = 1, 2, 0x6474E551, 6
DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 0, 4, 5, 6, 10, 11, 14
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE and cudaErrorNoDevice: no GPU is claimed
# What aws-ofi-nccl takes of CUDA's runtime where it opens it by its name: src/nccl_ofi_cuda.c(pp), 1.5.0 to 1.21.1.
RUNTIME = ("cudaRuntimeGetVersion", "cudaGetDriverEntryPoint", "cudaGetDriverEntryPointByVersion")
UNKNOWN_RUNTIME = 12000
MAX_LOG_LINES, MAX_LINE_BYTES = 200, 500
# fi_getinfo's flag for names of providers alone, and fi_info's first fields: ofiwg/libfabric include/rdma/fabric.h.
FI_PROV_ATTR_ONLY = 1 << 54
FI_VERSION = (1 << 16) | 18
FI_INFO_POINTERS = 14

LOGGER = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p),
    *[ctypes.c_double] * 8,
    *[ctypes.c_uint64] * 16,
)
_kept_alive: list[Any] = []  # what C code may call or read until the process ends


def event(**fields: Any) -> None:
    """Print one event at once."""
    os.write(1, (json.dumps(fields) + "\n").encode())


def shared_object(soname: str, addresses: dict[str, int], machine: str) -> bytes:
    """Return a shared library without code, whose functions are at addresses of this process."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in (soname, *addresses))
    symbols, offset = bytes(24), 1 + len(soname) + 1
    for name, address in addresses.items():
        symbols += struct.pack("<IBBHQQ", offset, GLOBAL_FUNCTION, 0, ABSOLUTE, address, 0)
        offset += len(name) + 1
    count = len(addresses) + 1
    chain = [0, *range(2, count), 0][:count]
    table = struct.pack("<%dI" % (3 + count), 1, count, min(1, count - 1), *chain)
    offset = 64 + 3 * 56
    offsets = [offset]
    for content in (symbols, table, strings):
        offsets.append(-(-(offsets[-1] + len(content)) // 8) * 8)
    at_symbols, at_table, at_strings, at_dynamic = offsets
    pairs = [(DT_SONAME, 1), (DT_HASH, at_table), (DT_STRTAB, at_strings), (DT_SYMTAB, at_symbols)]
    pairs += [(DT_STRSZ, len(strings)), (DT_SYMENT, 24), (DT_NULL, 0)]
    dynamic = b"".join(struct.pack("<QQ", *pair) for pair in pairs)
    size = at_dynamic + len(dynamic)
    headers = b"\x7fELF\2\1\1" + bytes(9)
    headers += struct.pack("<HHIQQQIHHHHHH", 3, MACHINES[machine], 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    for kind, offset, length in ((PT_LOAD, 0, size), (PT_DYNAMIC, at_dynamic, len(dynamic)), (PT_GNU_STACK, 0, 0)):
        headers += struct.pack("<IIQQQQQQ", kind, READ_WRITE, offset, offset, offset, length, length, 4096)
    image = bytearray(headers.ljust(size, b"\0"))
    for offset, part in ((at_symbols, symbols), (at_table, table), (at_strings, strings), (at_dynamic, dynamic)):
        image[offset : offset + len(part)] = part
    return bytes(image)


def map_stand_in(soname: str, functions: dict[str, Any]) -> None:
    """Map a library called `soname` of these callbacks, which dlopen() then returns."""
    _kept_alive.append(functions)
    addresses = {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in functions.items()}
    file = os.memfd_create(soname)
    os.write(file, shared_object(soname, addresses, os.uname().machine))
    library = ctypes.CDLL("/proc/self/fd/%d" % file, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    _kept_alive.append(library)
    for name, address in addresses.items():
        if ctypes.cast(getattr(library, name), ctypes.c_void_p).value != address:
            raise OSError("this loader moves absolute symbols")


def runtime_version(path: str) -> int:
    """Return the version of the CUDA runtime at `path`, told without a driver."""
    number = ctypes.c_int(0)
    try:
        ctypes.CDLL(path).cudaRuntimeGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return UNKNOWN_RUNTIME
    return number.value or UNKNOWN_RUNTIME


def cuda_stand_ins(version: int) -> dict[str, Any]:
    """Return stand-ins of CUDA's runtime functions, whose driver finds no GPU."""
    driver: dict[str, Any] = {}
    to_version = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
    to_entry_of_12 = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.POINTER(ctypes.c_int)
    )
    to_entry_of_13 = ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_uint,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_int),
    )

    def write_version(number: Any) -> int:
        number[0] = version
        return 0

    def refuse() -> int:
        return NO_DEVICE

    def entry(symbol: bytes, function: Any, result: Any) -> int:
        name = symbol.decode("ascii", "replace")
        if name not in driver:
            value = (
                to_version(write_version) if name == "cuDriverGetVersion" else ctypes.CFUNCTYPE(ctypes.c_int)(refuse)
            )
            driver[name] = value
        function[0] = ctypes.cast(driver[name], ctypes.c_void_p).value
        if result:
            result[0] = 0
        return 0

    _kept_alive.append(driver)
    return {
        "cudaRuntimeGetVersion": to_version(write_version),
        "cudaGetDriverEntryPoint": to_entry_of_12(lambda symbol, function, _, result: entry(symbol, function, result)),
        "cudaGetDriverEntryPointByVersion": to_entry_of_13(
            lambda symbol, function, _, __, result: entry(symbol, function, result)
        ),
    }


def mapped_file(library: ctypes.CDLL) -> str:
    """Return the file that the loader mapped for a library."""
    link_map = ctypes.c_void_p()
    dlinfo = ctypes.CDLL(None).dlinfo
    if dlinfo(ctypes.c_void_p(library._handle), DLINFO_LINKMAP, ctypes.byref(link_map)) or not link_map.value:
        return ""
    fields = ctypes.cast(link_map, ctypes.POINTER(ctypes.c_char_p))
    return os.path.realpath((fields[1] or b"").decode("utf-8", "replace"))


def mapped_libraries() -> list[str]:
    """Return the shared libraries that are mapped into this process."""
    with open("/proc/self/maps") as file:
        paths = [line.split(None, 5)[5].strip() for line in file if len(line.split(None, 5)) == 6]
    return list(dict.fromkeys(path for path in paths if re.search(r"/lib[^/]*\.so", path)))


def logger() -> Any:
    """Return NCCL's logger: each message is an event."""
    printf = ctypes.CDLL(None).snprintf
    lines = [0]

    def log(level: int, _: int, file: bytes, line: int, text: bytes, *values: Any) -> None:
        if level in SILENT_LEVELS or lines[0] >= MAX_LOG_LINES:
            return
        lines[0] += 1
        buffer = ctypes.create_string_buffer(MAX_LINE_BYTES)
        # The caller's variable arguments: in both conventions, numbers and pointers are apart from fractions.
        numbers = [ctypes.c_double(value) for value in values[:8]] + [ctypes.c_uint64(value) for value in values[8:]]
        printf(buffer, ctypes.c_size_t(MAX_LINE_BYTES), ctypes.c_char_p(text), *numbers)
        where = "%s:%d" % ((file or b"").decode("utf-8", "replace"), line)
        event(step="log", level=level, where=where, text=buffer.value.decode("utf-8", "replace").strip())

    callback = LOGGER(log)
    _kept_alive.append(callback)
    return callback


def open_library(name: str) -> ctypes.CDLL | None:
    """Open a library as NCCL does, and report the result as events; None if it fails."""
    event(step="open", name=name)
    try:
        library = ctypes.CDLL(name, mode=OPEN_MODE)
    except OSError as error:
        event(step="opened", name=name, error=str(error)[:MAX_LINE_BYTES])
        return None
    event(step="opened", name=name, path=mapped_file(library))
    return library


def newest_interface(library: ctypes.CDLL, prefix: str, numbers: Iterable[int]) -> int:
    """Return the newest of these interfaces that the library has; 0 for none."""
    return next((n for n in sorted(numbers, reverse=True) if hasattr(library, "%s%d" % (prefix, n))), 0)


def run_plugin(request: dict[str, Any]) -> None:
    """Open a plugin, look for the interfaces of this NCCL, and start the newest."""
    if request.get("cuda_stub"):
        try:
            map_stand_in("libcudart.so", cuda_stand_ins(runtime_version(request["cuda_stub"])))
            event(step="cuda_stub", names=list(RUNTIME))
        except (OSError, KeyError, AttributeError) as error:
            event(step="cuda_stub", error=str(error)[:MAX_LINE_BYTES])
    library = open_library(request["name"])
    if library is None:
        return
    interfaces = {kind: newest_interface(library, kind, numbers) for kind, numbers in request["looks_for"].items()}
    event(step="interfaces", interfaces=interfaces)
    version = interfaces.get("ncclNetPlugin_v", 0)
    if version:
        start_plugin(library, version)
    event(step="mapped", files=mapped_libraries())


def start_plugin(library: ctypes.CDLL, version: int) -> None:
    """Call `init` and `devices` of an interface: NVIDIA/nccl src/include/plugin/net/net_v*.h."""
    fields = (ctypes.c_void_p * 3).in_dll(library, "ncclNetPlugin_v%d" % version)
    log, context, config = logger(), ctypes.c_void_p(), (ctypes.c_int * 16)(-1)
    event(step="name", name=read_text(fields[0]))
    arguments: tuple[Any, ...] = (log,)
    if version >= 10:
        arguments = (log, None)
    if version >= 11:
        arguments = (ctypes.byref(context), ctypes.c_uint64(1), ctypes.byref(config), log, None)
    event(step="init")
    result = function_pointer(fields[1])(*arguments)
    event(step="started", result=result)
    event(step="name", name=read_text(fields[0]))  # HPC-X's plugin takes its name, which NCCL_NET has to be, in `init`
    if result == 0:
        number = ctypes.c_int(0)
        event(step="devices")
        result = function_pointer(fields[2])(ctypes.byref(number))
        event(step="counted", result=result, number=number.value)


def read_text(address: int | None) -> str:
    """Return the text at an address."""
    return (ctypes.string_at(address) if address else b"").decode("utf-8", "replace")


def function_pointer(address: int | None) -> Callable[..., int]:
    """Return the function at an address, callable with any arguments."""
    return ctypes.CFUNCTYPE(ctypes.c_int)(address or 0)


def run_libfabric(request: dict[str, Any]) -> None:
    """Open a libfabric, and list its providers as fi_info does.

    Their own log goes to the standard error.
    """
    library = open_library(request["name"])
    if library is None:
        return
    library.fi_version.restype = ctypes.c_uint32
    number = library.fi_version()
    event(step="version", version="%d.%d" % (number >> 16, number & 0xFFFF))
    head = ctypes.POINTER(ctypes.c_void_p * FI_INFO_POINTERS)()
    event(step="list")
    result = library.fi_getinfo(
        ctypes.c_uint32(FI_VERSION), None, None, ctypes.c_uint64(FI_PROV_ATTR_ONLY), None, ctypes.byref(head)
    )
    names: list[str] = []
    while head:
        fields = head.contents
        attributes = ctypes.cast(ctypes.c_void_p(fields[13]), ctypes.POINTER(ctypes.c_char_p))  # fabric_attr
        names.append((attributes[2] or b"").decode("utf-8", "replace"))  # prov_name
        head = ctypes.cast(ctypes.c_void_p(fields[0]), type(head))
    event(step="listed", result=result, names=list(dict.fromkeys(names)))
    event(step="mapped", files=mapped_libraries())


def run_verbs(request: dict[str, Any]) -> None:
    """Open libibverbs as NCCL does, list its devices, and open its providers."""
    library = next(filter(None, map(open_library, request["names"])), None)
    if library is None:
        return
    number = ctypes.c_int(0)
    event(step="list")
    library.ibv_get_device_list.restype = ctypes.c_void_p
    devices = library.ibv_get_device_list(ctypes.byref(number))
    event(step="listed", result=0 if devices else -1, number=number.value)
    for path in request["providers"]:
        open_library(path)


def main() -> None:
    """Do what the request asks: {"do": "plugin", "libfabric" or "verbs", ...}."""
    request = json.loads(sys.argv[1])
    {"plugin": run_plugin, "libfabric": run_libfabric, "verbs": run_verbs}[request["do"]](request)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
