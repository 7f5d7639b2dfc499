"""Carry the probes into an image, a pod or a host, run them once, and read their answers.

An image under test may print anything: no answer raises.
"""

import base64
import functools
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError
from testinfra.host import Host

from rdma_images.chain import network_request
from rdma_images.core.paths import PACKAGE
from rdma_images.core.plain import first_error, plain
from rdma_images.inspection.inspection import ImageConfig
from rdma_images.inspection.measurements import PROBE_DECLARATIONS, Measured, probe_names
from rdma_images.inspection.values import MeasuredValue
from rdma_images.validate.probes.measure import GPU_PROBE_SECONDS, MARK, PROBE_SECONDS
from rdma_images.validate.transport import ENDLESS, NOT_FOUND, TIMED_OUT

STATIC = probe_names("static")
PYTHONS = ("python3", "/opt/venv/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3", "/usr/bin/python3")
PACKAGES = ("rdma_images", "rdma_images.preflight", "rdma_images.validate", "rdma_images.validate.probes")
BOOTSTRAP = """
import sys
sys.stdout.write("started\\n"); sys.stdout.flush()
if sys.version_info<(3,8): sys.exit("python "+sys.version.split()[0]+" is older than 3.8")
import base64,importlib.abc,importlib.util,json,zlib
sys.dont_write_bytecode=True
sources=json.loads(zlib.decompress(base64.b64decode("%s")))
class Carried(importlib.abc.MetaPathFinder,importlib.abc.Loader):
    def find_spec(self,name,path,target=None):
        return importlib.util.spec_from_loader(name,self,is_package=not sources[name]) if name in sources else None
    def exec_module(self,module):
        module.SOURCE=sources[module.__name__]
        exec(compile(module.SOURCE,module.__name__.rpartition(".")[2]+".py","exec"),module.__dict__)
sys.meta_path.insert(0,Carried())
from rdma_images.validate.probes import measure
measure.main()
"""


class NoPythonError(Exception):
    """No Python can run the probes; the message is the reason."""


@functools.cache
def payload() -> str:
    """Return the probes, with the preflight, as one Python program that needs nothing but an interpreter."""
    paths = [path for folder in ("preflight", "validate/probes") for path in (PACKAGE / folder).glob("[!_]*.py")]
    names = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in sorted(paths)}
    sources = {**dict.fromkeys(PACKAGES, ""), **{name: path.read_text("utf-8") for path, name in names.items()}}
    packed = base64.b64encode(zlib.compress(json.dumps(sources).encode(), 9)).decode()
    return BOOTSTRAP % packed


def probe(
    host: Host,
    names: tuple[str, ...] = STATIC,
    volumes: tuple[str, ...] = (),
    entry: Sequence[str] = (),
    limit: float | None = None,
    request: Mapping[str, object] | None = None,
) -> Measured:
    """Measure a host, a container or a pod with probes that a Python there runs.

    Args:
        volumes: folders of other file systems that belong to what is measured.
        entry: the words of the image's entry point and command.
        limit: seconds for one probe, where they are not the usual ones.
        request: what the probe network is asked.

    Returns:
        The measurements; those of a Python that breaks off are in `failed`, of one that does not answer in `timed_out`.

    Raises:
        NoPythonError: No Python there can run the probes.
    """
    seconds = GPU_PROBE_SECONDS if "gpus" in names else limit or PROBE_SECONDS
    asked = {"names": names, "limit": seconds, "volumes": volumes, "entry": entry, "request": request}
    return _run_probes(host, (payload(), json.dumps(asked)), names)


def _run_probes(host: Host, words: Sequence[str], names: tuple[str, ...]) -> Measured:
    """Return the answers of the first Python that runs the probes."""
    reasons, failures = [], []
    for program in PYTHONS:
        result = host.run(f"%s -c{' %s' * len(words)}", program, *words)
        _, mark, answers = result.stdout_bytes.partition(MARK.encode())
        if mark:
            return parse_answers(answers.partition(b"\n")[0], names)
        if result.rc == TIMED_OUT:
            awaited = "answer" if result.stdout_bytes else "start"
            return mark_timed_out(names, f"was stopped: {program} did not {awaited}")
        if result.rc == ENDLESS:
            return mark_failed(names, f"{program} did not stop printing")
        complaints = result.stderr_bytes.decode("utf-8", "replace").strip().splitlines()[-1:]
        if "older than" in "".join(complaints):
            reasons += complaints
        elif result.rc not in NOT_FOUND:
            failures.append(f"{program} ended with {result.rc}{': ' if complaints else ''}{''.join(complaints)[:300]}")
    if failures:
        return mark_failed(names, failures[0])
    raise NoPythonError(reasons[0] if reasons else "the image has no Python to run the probes")


def with_network(host: Host, measured: Measured, image_config: ImageConfig, instance: str) -> Measured:
    """Return `measured` with what the network plugin does on an instance type, where the version of NCCL is known."""
    request = network_request(image_config, measured, instance)
    if not request:
        return measured
    try:
        answer = probe(host, ("network",), request=request)
    except NoPythonError as error:
        answer = Measured(missing={"network": str(error)})
    if answer.timed_out:
        return mark_timed_out(("network",), "was not started in time", measured)
    missing, seconds = {**measured.missing, **answer.missing}, {**measured.seconds, **answer.seconds}
    return measured.model_copy(update={"network": answer.network, "missing": missing, "seconds": seconds})


class ProbeAnswer(MeasuredValue):
    """The answer of a probe: a value, or why there is none. `seconds` is how long it took, before it was stopped."""

    value: Any = None
    error: str = ""
    stopped: bool = False
    seconds: float = Field(default=0.0, ge=0)


ANSWERS = TypeAdapter(dict[str, ProbeAnswer])


def parse_answers(text: bytes, names: Iterable[str]) -> Measured:
    """Return the answers of the probes `names` in a JSON `text`.

    Its form is {probe: {"value", "error", "seconds"}}. Nothing in `text` raises: a probe whose answer is missing or
    has another form is marked as failed, with the reason.
    """
    try:
        answers = ANSWERS.validate_json(text)
    except ValidationError as error:
        return mark_failed(names, f"what the probes printed in the image is cut short or damaged: {first_error(error)}")
    measurements = Measured(seconds={name: answer.seconds for name, answer in answers.items()})
    for name in names:
        measurements = _with(
            measurements, name, answers.get(name, ProbeAnswer(error="the image's answer leaves it out"))
        )
    return measurements


def mark_failed(names: Iterable[str], why: str, measurements: Measured | None = None) -> Measured:
    """Return `measurements` with the probes `names` marked as failed, for the reason `why`."""
    measurements, names = measurements or Measured(), tuple(names)
    missing = {**measurements.missing, **dict.fromkeys(names, plain(why))}
    return measurements.model_copy(update={"missing": missing, "failed": (*measurements.failed, *names)})


def mark_timed_out(names: Iterable[str], why: str, measurements: Measured | None = None) -> Measured:
    """Return `measurements` with the probes `names` marked as timed out, for the reason `why`."""
    measurements, names = measurements or Measured(), tuple(names)
    missing = {**measurements.missing, **{name: plain(f"{name} {why}") for name in names}}
    return measurements.model_copy(update={"missing": missing, "timed_out": (*measurements.timed_out, *names)})


def _with(measurements: Measured, name: str, answer: ProbeAnswer) -> Measured:
    """Return `measurements` with the answer of the probe `name`."""
    if answer.value is None and not answer.error and PROBE_DECLARATIONS[name].nothing:
        return measurements.model_copy(
            update={"missing": {**measurements.missing, name: PROBE_DECLARATIONS[name].nothing}}
        )
    if answer.value is None and answer.stopped:
        return mark_timed_out((name,), f"was {answer.error}", measurements)
    if answer.value is None:
        return mark_failed((name,), answer.error or f"{name} has no value", measurements)
    try:
        value = getattr(Measured.model_validate({name: answer.value}), name)
    except ValidationError as error:
        return mark_failed(
            (name,), f"the image's answer does not have the expected form at {first_error(error)}", measurements
        )
    return measurements.model_copy(update={name: value})
