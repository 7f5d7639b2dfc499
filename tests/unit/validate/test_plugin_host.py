"""NCCL's part, played towards a plugin that is made of callbacks, and what is folded from its events."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rdma_images.validate.probes import network, plugin_host

HOST = Path(plugin_host.__file__).read_text()
# A network plugin in the host's own process: its table, init and devices are ctypes objects, mapped by a file name.
PLUGIN = """
import ctypes, os, sys, types
host = types.ModuleType("host"); exec(compile(sys.argv[1], "host.py", "exec"), host.__dict__)
NAME = ctypes.c_char_p(b"Libfabric")
def init(log):
    say = ctypes.CFUNCTYPE(None)(log)
    say(ctypes.c_int(2), ctypes.c_ulong(0), b"a.c", ctypes.c_int(7), b"%s of %d is %.1f, %s %d %d %d %d",
        b"share", ctypes.c_int(3), ctypes.c_double(0.5), b"x", *map(ctypes.c_int, (1, 2, 3, 4)))
    return RESULT
def devices(number):
    number[0] = 4
    return 0
INIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(init)
DEVICES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(devices)
address = lambda thing: ctypes.cast(thing, ctypes.c_void_p).value
table = (ctypes.c_void_p * 3)(address(NAME), address(INIT), address(DEVICES))
content = host.shared_object("libours-net.so", {"ncclNetPlugin_v8": ctypes.addressof(table)}, os.uname().machine)
file = os.memfd_create("x"); os.write(file, content)
kept = ctypes.CDLL("/proc/self/fd/%d" % file)
host.run_plugin({"name": "libours-net.so", "looks_for": {"ncclNetPlugin_v": [6, 7, 8, 11], "ncclTunerPlugin_v": [5]}})
"""


def played(program: str) -> dict[str, object]:
    completed = subprocess.run([sys.executable, "-c", program, HOST], capture_output=True, text=True, check=False)
    return network.sum_events(completed.stdout, completed.returncode, completed.stderr)


def test_a_plugin_is_started_and_its_words_are_kept() -> None:
    answer = played(PLUGIN.replace("RESULT", "0"))
    assert answer["interfaces"] == {"ncclNetPlugin_v": 8, "ncclTunerPlugin_v": 0}
    assert (answer["network"], answer["result"], answer["devices"]) == ("Libfabric", 0, 4)
    assert answer["log"] == [{"level": 2, "text": "share of 3 is 0.5, x 1 2 3 4"}]
    assert answer["end_reason"] == ""


def test_devices_of_a_plugin_that_refuses_are_not_counted() -> None:
    answer = played(PLUGIN.replace("RESULT", "2"))
    assert (answer["result"], answer["devices"]) == (2, None)


def test_a_plugin_that_ends_its_process_is_known_by_its_last_words() -> None:
    answer = played(PLUGIN.replace("RESULT", "os.kill(os.getpid(), 11)"))
    assert (answer["end_reason"], answer["last_step"], answer["result"]) == ("SIGSEGV", "log", None)


def test_a_library_that_does_not_open_says_why() -> None:
    answer = network.run_host({"do": "plugin", "name": "libnccl-net-nobody.so", "looks_for": {}, "cuda_stub": ""}, {})
    assert "libnccl-net-nobody.so: cannot open shared object file" in str(answer["error"])


@pytest.mark.parametrize(("function", "answer"), [("cudaRuntimeGetVersion", 13020), ("cuDriverGetVersion", 13020)])
def test_the_stand_in_of_cudas_runtime_answers_who_opens_it_by_name(function: str, answer: int) -> None:
    program = """
import ctypes, json, sys, types
host = types.ModuleType("host"); exec(compile(sys.argv[1], "host.py", "exec"), host.__dict__)
host.map_stand_in("libcudart.so", host.cuda_stand_ins(13020))
runtime, number, entry, found = ctypes.CDLL("libcudart.so"), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(9)
if FUNCTION.startswith("cuda"):
    getattr(runtime, FUNCTION)(ctypes.byref(number))
else:
    asked = (FUNCTION.encode(), ctypes.byref(entry), 2020, ctypes.c_uint64(0), ctypes.byref(found))
    runtime.cudaGetDriverEntryPointByVersion(*asked)
    ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(entry.value)(ctypes.addressof(number))
    assert found.value == 0
    runtime.cudaGetDriverEntryPoint(b"cuCtxGetDevice", ctypes.byref(entry), ctypes.c_uint64(0), ctypes.byref(found))
    assert ctypes.CFUNCTYPE(ctypes.c_int)(entry.value)() == 100
print(number.value)
""".replace("FUNCTION", repr(function))
    completed = subprocess.run([sys.executable, "-c", program, HOST], capture_output=True, text=True, check=False)
    assert (completed.stdout.strip(), completed.stderr) == (str(answer), "")


def test_events_that_are_cut_short_are_left_out() -> None:
    lines = [json.dumps({"step": "init"}), '{"step": "log", "lev']
    assert network.sum_events("\n".join(lines), None, "")["last_step"] == "init"
