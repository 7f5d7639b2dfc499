"""Every parser of foreign data, given damaged data: an answer or a sentence, in time."""

import io
import json
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import strategies as st

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.plain import decode_json
from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.inputs import debian_index, resolve
from rdma_images.inspection.measurements import DebianContents, WheelContents
from rdma_images.inspection.report import Report, decode_report, encode_report
from rdma_images.jobs.check import job_files
from rdma_images.jobs.results import run_files
from rdma_images.jobs.results.run_results import read_run_logs
from rdma_images.jobs.run import follow, kubernetes, slurm
from rdma_images.jobs.run.runner import Submission
from rdma_images.layers import tar_layer
from rdma_images.nccl_logs import verdict
from rdma_images.plan import matrix, planner
from rdma_images.publish import attachment_checks
from rdma_images.publish.evidence import licenses, policy
from rdma_images.publish.evidence.scanner import read_report as read_scan
from rdma_images.registry.client import OCI_INDEX, Manifest
from rdma_images.validate import computed_loader, image_layers, run_probes
from rdma_images.validate.probes import contents, elf, fatbin, packages, settings, system
from rdma_images.validate.probes.rootfs import Root
from tests.support import job_parts, scan_parts
from tests.support.case_parts import recorded, report_on
from tests.support.odd_input import edited, edited_bytes, generated, words
from tests.support.tar_members import MEMBERS, make_tar

DIGEST = f"sha256:{'a' * 64}"
LOGS = paths.PROJECT / "tests" / "data" / "nccl-logs"
ELF = Path("/bin/true")
MANIFEST = {
    "schemaVersion": 2,
    "config": {"mediaType": "x", "digest": DIGEST, "size": 3},
    "layers": [{"mediaType": "x", "digest": DIGEST, "size": 3, "annotations": {"a": "b"}}],
    "manifests": [{"mediaType": "x", "digest": DIGEST, "size": 3, "platform": {"os": "linux"}}],
}
SBATCH = """\
#!/bin/bash
#SBATCH -N 2 --gres=gpu:h100:8 --container-env=NCCL_NET
export IMAGE=docker://x/y:1 NCCL_NET=Socket  # rdma-images: allow tcp.chosen
if [ $A = b ]; then export FI_PROVIDER=tcp; fi
srun --export=ALL,NCCL_ALGO=Ring --container-image=${IMAGE:-z} mpirun -x NCCL_PROTO=simple 'train'
"""
SMALL = [(member, content) for member, content in MEMBERS if len(content) < 100 and "large" not in member.linkname]
SCONTROL = "JobId=7 JobName=x JobState=PENDING Reason=Resources ExitCode=0:0 NodeList=(null) BatchHost=n1\n"
POD = {
    "metadata": {"name": "x-0", "uid": "u", "creationTimestamp": "2026-11-24T00:00:00Z"},
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}],
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "x"}}}],
    },
}
RESULTS = paths.PROJECT / "tests" / "data" / "results"
FILES = (  # of an image, which are read
    *("/etc/nccl.conf", "/etc/libfabric.conf", "/etc/profile", "/etc/environment", "/etc/os-release", "/etc/passwd"),
    *("/etc/group", "/etc/ld.so.preload", "/etc/security/limits.conf", "/etc/openmpi/openmpi-mca-params.conf"),
    *("/root/.bashrc", "/opt/conda/etc/conda/activate.d/a.sh", "/site-packages/sitecustomize.py", "/topo.xml"),
    *("/var/lib/dpkg/status", "/usr/share/doc/bash/copyright", "/opt/amazon/efa_installed_packages"),
    *("/site-packages/a-1.dist-info/METADATA", "/site-packages/a-1.dist-info/RECORD"),
)
OF_IMAGES = """\
export NCCL_SOCKET_IFNAME=eth0
FI_PROVIDER = efa
os.environ['LD_PRELOAD'] = '/x'
* - memlock 64
ID=debian
app:x:1000:1000::/home/app:/bin/sh
<cpu arch="x"/>
a.libs/libx.so.1,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NM,3

Name: a
Requires-Dist: b
Package: bash
Status: install ok installed
Version: 5.2-1
Depends: libc6 (>= 2.38), a | b
"""
COPYRIGHT = "Format: https://x\nFiles: *\nLicense: GPL-2+ or MIT\n text\n\nLicense: BSD-3-clause and (X11, Expat)\n"


def as_bytes(document: object) -> bytes:
    return json.dumps(document).encode()


def in_file(read: Callable[[Path], object], *allowed: type[Exception]) -> Callable[[bytes], None]:
    """Return a reader of bytes by way of a file; `allowed` are errors of its contract."""

    def run(content: bytes) -> None:
        path = paths.IMAGES / "untrusted"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        with suppress(*allowed):
            read(path)

    return run


def read_manifest(content: bytes) -> None:
    manifest = Manifest(OCI_INDEX, content)
    manifest.layers()
    manifest.members()


def judge_report(path: Path) -> None:
    """Read a scanner's document, and judge it as `scan --policy` does."""
    scan = read_scan(path, scan_parts.IMAGE)
    rules = policy.Policy(grace_days={"critical": 14, "high": 28, "medium": 180, "low": 3650, "unknown": 1})
    judged = policy.decide(replace(scan, finished=datetime(2026, 11, 24, tzinfo=UTC)), rules, date(2026, 11, 24))
    policy.vulnerability_predicate(scan, judged)


def read_files(content: bytes) -> None:
    """Read the files of an image whose content it chooses itself."""
    root = Root(str(paths.IMAGES / "root"))
    for name in FILES:
        file = Path(root.folder + name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    environment = {"PATH": "/opt/conda/bin:/usr/bin", "NCCL_CONF_FILE": "/etc/nccl.conf"}
    folders = ["/site-packages"]
    read = settings.settings_files(root, environment)
    settings.find_assignments([(path, root.text(path, 1 << 20) or "") for path in read], environment)
    system.measure_system(root, environment, "x86_64")
    packages.installed_packages(root, folders)
    contents.package_contents(root, folders)


def read_attachments(content: bytes) -> None:
    for form in attachment_checks.TITLES:
        attachment_checks.check_attachment(form, content, DIGEST, ())
    attachment_checks.allowed_failures(content)


def read_report(content: bytes) -> None:
    with suppress(ValueError):
        decode_report(decode_json(content))


def read_layer(path: Path) -> None:
    with suppress(tarfile.TarError, OSError, EOFError, ValueError, zstandard.ZstdError):
        image_layers.read_layer(DIGEST, path)


def write_with_table(content: bytes) -> None:
    tar_layer.write(io.BytesIO(content), io.BytesIO())


def read_answer(runner: type[slurm.Slurm | kubernetes.Kubernetes], text: str) -> None:
    """Read the state of a job, for which every program of the scheduler prints `text`."""
    job = job_parts.job("slurm" if runner is slurm.Slurm else "mpijob", "efa", "mpirun")
    run = job_parts.load_project().facts.launchers.launchers[job.launcher].run
    assert run
    with pytest.MonkeyPatch.context() as patch:
        for module in (slurm, kubernetes):
            patch.setattr(module, "output", lambda *_, **__: text)
        follow.read_state(runner(Submission(job, run, paths.IMAGES, paths.IMAGES, "tag")))


def read_wheel(content: bytes) -> None:
    folder = paths.IMAGES / "root" / "site-packages"
    for name in ("METADATA", "RECORD", "status"):
        file = folder / "a-1.dist-info" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    packages.wheels(Root(str(paths.IMAGES / "root")), ["/site-packages"])


def read_source(content: bytes) -> None:
    with suppress(tarfile.TarError, OSError, EOFError, ValueError, StopIteration):
        resolve.read_requirements(io.BytesIO(content))


def a_layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("etc/passwd", b"root:x"), ("opt/" + "n" * 200, b"x" * 2000), ("root/.netrc", b"login")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def a_source() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in (("a-1/PKG-INFO", b"Name: a\n"), ("a-1/a.egg-info/requires.txt", b"numpy>=2\n[x]\n")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def a_report() -> Report:
    (image,) = planner.plan(matrix.load(), facts.load(), targets=["efa-pytorch"]).images
    return report_on(image, facts=recorded())


def read_licenses(text: str) -> None:
    licenses.debian_licenses(DebianContents(licenses=contents.copyright_licenses(text)))
    licenses.wheel_licenses(WheelContents(license=text, license_field=text, classifiers=[text]))


KINDS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., object]]] = {
    f"a report of {make.__name__}": (edited_bytes(as_bytes(make())), in_file(judge_report))
    for make in (scan_parts.trivy, scan_parts.grype)
} | {
    "the files of an image": (edited_bytes(OF_IMAGES.encode()), read_files),
    "a policy": (
        edited(paths.PROJECT.joinpath("policy.example.yaml").read_text().replace("# ", "")),
        lambda text: yaml_file.loads(text, policy.Policy, "policy.yaml"),
    ),
    "a manifest": (edited_bytes(as_bytes(MANIFEST)), read_manifest),
    "an attachment": (
        edited_bytes(as_bytes({"subject": [{"digest": {"sha256": "a"}}], "predicateType": "x", "predicate": MANIFEST})),
        read_attachments,
    ),
    "a report": (edited_bytes(as_bytes(encode_report(a_report()))), read_report),
    "answers of probes": (
        edited_bytes(as_bytes({"packages": {"value": {"wheels": {}, "dpkg": {}, "rpm": {}}}, "torch": {"error": "x"}})),
        lambda content: run_probes.parse_answers(content, ("packages", "torch", "tree")),
    ),
    "an ELF file": (edited_bytes(ELF.read_bytes()), in_file(lambda path: elf.library(str(path)), elf.NotElf)),
    "a program for GPUs": (
        edited_bytes(ELF.read_bytes()),
        in_file(lambda path: fatbin.architectures(str(path)), elf.NotElf),
    ),
    "the loader's cache": (
        edited_bytes(b"glibc-ld.so.cache1.1" + bytes(28) + b"libc.so.6\0/lib/libc.so.6\0"),
        computed_loader.cache,
    ),
    "a log": (
        edited((LOGS / "net-socket.log").read_text()[:20_000]),
        lambda text: verdict.judge_lines(text.splitlines(), load_log_patterns()),
    ),
    "a manifest of a job": (
        edited("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - {name: y, image: z}\n").map(
            lambda text: text.encode(errors="replace")
        ),
        in_file(job_files.read_file, job_files.TemplateError),
    ),
    "a layer": (edited_bytes(a_layer()), in_file(read_layer)),
    "a layer's tar": (edited_bytes(make_tar(*SMALL)), write_with_table),
    "a script of sbatch": (
        edited(SBATCH).map(lambda text: text.encode(errors="replace")),
        in_file(job_files.read_file, job_files.TemplateError),
    ),
    "an answer of Slurm": (edited(SCONTROL), partial(read_answer, slurm.Slurm)),
    "an answer of kubectl": (edited(json.dumps({**POD, "items": [POD]})), partial(read_answer, kubernetes.Kubernetes)),
    "an output of nccl-tests": (
        edited_bytes((RESULTS / "2.19.6-socket.txt").read_bytes()),
        in_file(lambda path: read_run_logs([path])),
    ),
    "a result.json": (edited_bytes(b'{"job": "x", "image": "y", "runs": [], "time": ""}'), in_file(run_files.load)),
    "METADATA of a wheel": (edited_bytes(b"Metadata-Version: 2.4\nName: a_b\nVersion: 1.0\n\nText\n"), read_wheel),
    "a source's archive": (edited_bytes(a_source()), read_source),
    "an index of packages": (
        edited("Package: bash\nVersion: 5.2-1\n\nPackage: libc6\nVersion: 2.41-12\n"),
        lambda text: list(debian_index.parse_index(text)),
    ),
    "a copyright file": (edited(COPYRIGHT) | words, read_licenses),
}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDMA_IMAGES_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "images")


@pytest.mark.parametrize("count", [15, pytest.param(5_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_data_is_read_or_refused(kind: str, count: int) -> None:
    generated(*KINDS[kind], count)
