"""NCCL's network plugin, libfabric and libibverbs of this image, started as NCCL starts them."""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import Any, Mapping

from rdma_images.validate.probes import loader, plugin_host, tools

START_SECONDS = 20  # seconds for one of them: a plugin starts in less than one
MAX_EVENT_BYTES = 200000  # bytes of events
MAX_COMPLAINTS = 20  # lines on the standard error
GPU = "/dev/nvidiactl"
VERBS = ("libibverbs.so", "libibverbs.so.1")  # as NCCL tries them: src/misc/ibvsymbols.cc, 2.18.5 to 2.30.7
RUNTIME = "libcudart.so"
PRODUCT_VARIABLE = "OFI_NCCL_FORCE_PRODUCT_NAME"  # aws/aws-ofi-nccl src/nccl_ofi_system.c(pp), from 1.5.0
PRODUCT_FILE = "/sys/devices/virtual/dmi/id/product_name"
SOME_PRODUCT = "unknown"  # 1.15.0 to 1.17.3 end with a segmentation fault where the machine names no product
LOG_VARIABLE = "FI_LOG_LEVEL"


def measure_network(request: Mapping[str, Any]) -> dict[str, Any]:
    """Start the plugins, libfabric and libibverbs of a request, each in a process.

    Args:
        request: `names` of plugins, in NCCL's order; `looks_for`, the interfaces of that NCCL by symbol; its file as
            `requiring_file`; `environment`, what a job has beside the container's own; `removed`, the variables that
            it does not have; `product`, the instance type; `providers`, the files of verbs providers.

    Returns:
        `plugins`, one of each name until one starts; `libfabric`, which the last plugin or the loader takes; `verbs`.
    """
    environment = {name: value for name, value in os.environ.items() if name not in request["removed"]}
    environment.update(request["environment"])
    environment.setdefault(LOG_VARIABLE, "warn")
    if request["product"] or not _readable(PRODUCT_FILE):
        environment.setdefault(PRODUCT_VARIABLE, request["product"] or SOME_PRODUCT)
    plugins = []
    for name in request["names"]:
        plugins.append(_plugin(name, request, environment))
        if plugins[-1]["result"] == 0:
            break
    mapped = [path for run in plugins for path in run["mapped"] if os.path.basename(path).startswith("libfabric.so")]
    return {
        "plugins": plugins,
        "libfabric": run_host({"do": "libfabric", "name": (*mapped, "libfabric.so.1")[0]}, environment),
        "verbs": run_host({"do": "verbs", "names": VERBS, "providers": request["providers"]}, environment),
        "has_gpu": os.path.exists(GPU),
    }


def _readable(path: str) -> bool:
    try:
        with open(path) as file:
            return bool(file.read(1))
    except OSError:
        return False


def _plugin(name: str, request: Mapping[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Start one plugin and return the result.

    Without a GPU, a stand-in replaces CUDA's runtime where the image has one.
    """
    name_or_path = loader.search_name(name, request["requiring_file"])
    runtime = ""
    if not os.path.exists(GPU):
        path = loader.resolve_name(name, request["requiring_file"])["file"]
        runtime = loader.resolve_name(RUNTIME, path or None)["file"]
    call = {"do": "plugin", "name": name_or_path, "looks_for": request["looks_for"], "cuda_stub": runtime}
    return {**run_host(call, environment), "name": name}


def run_host(request: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """Run plugin_host on a request, and return the sum of its events."""
    source = getattr(plugin_host, "SOURCE", "") or inspect.getsource(plugin_host)
    command = [sys.executable, "-I", "-S", "-c", source, json.dumps(request)]
    rc, out, err = tools.run_bounded(command, START_SECONDS, MAX_EVENT_BYTES, environment)
    return sum_events(out.decode("utf-8", "replace"), rc, err.decode("utf-8", "replace"))


def sum_events(out: str, rc: int | None, err: str) -> dict[str, Any]:
    """Return the sum of the events: {"path", "error", "interfaces", "result", "log", ...}.

    `last_step` is the one during which the process ended, "" where it came to its end; `end_reason` says how.
    """
    answer: dict[str, Any] = {
        **dict.fromkeys(("name", "path", "error", "network", "version", "cuda_stub", "last_step", "end_reason"), ""),
        **{"interfaces": {}, "result": None, "devices": None, "providers": [], "opened": {}, "log": [], "mapped": []},
    }
    last = ""
    for line in out.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        last = str(event.pop("step", ""))
        _apply_event(answer, last, event)
    if rc != 0:
        answer["last_step"] = last
        ending = tools.signal_name(-rc) if rc is not None and rc < 0 else "exit code %s" % rc
        answer["end_reason"] = "took more than %d s" % START_SECONDS if rc is None else ending
    answer["stderr_tail"] = [line[:500] for line in err.splitlines() if line.strip()][-MAX_COMPLAINTS:]
    return answer


def _apply_event(answer: dict[str, Any], step: str, event: dict[str, Any]) -> None:
    if step == "opened":
        answer["opened"][event["name"]] = event.get("error", "")
        if event.get("path") and not answer["path"]:
            answer.update(path=event["path"], error="")
        elif not answer["path"]:
            answer["error"] = event.get("error", "")
    elif step == "log":
        answer["log"].append({"level": event["level"], "text": event["text"]})
    elif step == "cuda_stub":
        answer["cuda_stub"] = event.get("error") or "stood in"
    elif step == "started":
        answer["result"] = event["result"]
    elif step == "counted":
        answer["devices"] = event["number"] if event["result"] == 0 else -1
    elif step == "name":
        answer["network"] = event["name"]
    elif step == "listed":
        answer.update(result=event["result"], providers=event.get("names", []), devices=event.get("number"))
    else:
        answer.update({key: event[key] for key in ("interfaces", "version") if key in event})
        answer["mapped"] = event.get("files", answer["mapped"])
