"""`invoke job.run` with Debian's kubectl, and a test that plays operator and kubelets."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.paths import PROJECT
from rdma_images.jobs.run import follow, kubernetes, record, run_job, streams
from rdma_images.jobs.write import create
from tests.e2e import unpacked
from tests.support import job_parts as jobs
from tests.support import kube_api

pytestmark = [pytest.mark.e2e, pytest.mark.part("kubernetes"), unpacked.needs]

OBJECTS = {"mpijob": "mpijobs", "trainjob": "trainjobs", "pytorchjob": "pytorchjobs"}
LABELS = {"app.kubernetes.io/name": "j", "training.kubeflow.org/job-name": "j", "jobset.sigs.k8s.io/jobset-name": "j"}
ARENA = """#!/bin/bash
case $1 in
  submit)
    for word; do case $word in --name=*) name=${word#--name=} ;; esac; done
    printf 'apiVersion: kubeflow.org/v1\\nkind: PyTorchJob\\nmetadata: {name: %s}\\n' "$name" | kubectl create -f -
    ;;
  delete) kubectl delete pytorchjob "$2" --wait=false ;;
esac
"""
FULL = "0/4 nodes are available: 4 Insufficient vpc.amazonaws.com/efa."


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kube_api.ClusterState]:
    programs = unpacked.tree("kubectl", ("kubernetes-client",)) / "usr" / "bin"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))  # kubectl keeps what it discovered
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(follow, "QUICK_POLL_SECONDS", 0.05)
    with kube_api.serving(tmp_path) as store:
        yield store


def job(tmp_path: Path, launcher: str = "mpijob", **parameters: str) -> Path:
    starter = "torchrun" if launcher == "pytorchjob" else "mpirun"
    devices = {"devices": "dra"} if launcher == "trainjob" else {}
    written_job = create.write_job(
        jobs.job_request(launcher, "efa", starter, name="j", parameters={**devices, **parameters}),
        jobs.load_project(),
        str(tmp_path / "j"),
    )
    return written_job[1]


def start(folder: Path, lines: list[str], **options: Any) -> Path:
    return run_job.run_job(folder, jobs.load_project(), run_job.JobRunOptions(**options), lines.append)


def pods(phase: str, **status: object) -> kube_api.Step:
    def step(store: kube_api.ClusterState) -> None:
        for name in ("j-0", "j-1"):
            store.pod(name, LABELS, phase=phase, **status)
            store.logs[name] = f"the log of {name}\n"

    return step


@pytest.mark.parametrize("launcher", ["mpijob", "trainjob", pytest.param("pytorchjob", marks=pytest.mark.exhaustive)])
def test_a_job_runs_and_leaves_its_logs_and_nothing_in_the_cluster(
    store: kube_api.ClusterState, tmp_path: Path, launcher: str
) -> None:
    lines: list[str] = []
    unschedulable = [{"type": "PodScheduled", "status": "False", "message": FULL}]
    ends = "Complete" if launcher == "trainjob" else "Succeeded"
    store.steps = [
        lambda _: None,
        pods("Pending", conditions=unschedulable),
        pods("Running"),
        lambda store: store.ends(OBJECTS[launcher], "j", ends),
    ]
    store.put("pytorchjobs", "another")
    run_folder = start(job(tmp_path, launcher), lines)
    assert {path.name: path.read_text() for path in (run_folder / "logs").iterdir()} == {
        "j-0.log": "the log of j-0\n",
        "j-1.log": "the log of j-1\n",
    }
    assert f"waiting: j-0: {FULL}; j-1: {FULL}" in "\n".join(lines)
    assert any("running" in line for line in lines)
    assert list(store.objects) == [("pytorchjobs", "another")]
    (entry,) = record.load(run_folder)
    assert (entry.ending, entry.cleanup) == ("succeeded", "removed")


def test_a_job_that_cannot_be_removed_is_reported_with_how_it_ended(
    store: kube_api.ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(kubernetes, "DELETE_SECONDS", 0.0)
    store.finalizers_wait = True
    store.steps = [pods("Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": FULL}])]
    with pytest.raises(RdmaImagesError, match=r"did not start in 0:01: .*\n.*MPIJob j"):
        start(job(tmp_path), [], limit=1)
    (path,) = (tmp_path / "j" / "runs").iterdir()
    assert [(entry.ending, entry.cleanup) for entry in record.load(path)] == [("late", "not removed")]
    store.objects.clear()
    store.steps = [pods("Running"), lambda store: store.ends("mpijobs", "j", "Succeeded")]
    with pytest.raises(RdmaImagesError, match=r"j succeeded\nj was not removed: .*MPIJob j"):
        start(job(tmp_path / "other"), [])


def test_what_a_killed_run_left_is_removed_where_it_is_also_after_the_job_is_another(
    store: kube_api.ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new job has another launcher and namespace, and kubectl's context is that of another cluster by then."""
    command = [sys.executable, "-m", "invoke", "job.run", str(job(tmp_path)), "--timeout", "60s"]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr
        for line in killed.stderr:
            if "waiting" in line:
                break
        killed.kill()
    assert list(store.objects) == [("mpijobs", "j")]
    folder = job(tmp_path, "pytorchjob", namespace="other")
    (run,) = (folder / "runs").iterdir()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({**json.loads(kubeconfig.read_text()), "current-context": "away"}))
    with monkeypatch.context() as without_kubectl:
        without_kubectl.setenv("PATH", str(tmp_path))
        with pytest.raises(RdmaImagesError, match=rf"{run}: .* was not removed: kubectl is not on the PATH"):
            start(folder, [])
    assert [entry.cleanup for entry in record.load(run)] == ["not removed"]
    with pytest.raises(RdmaImagesError, match="j was not submitted: kubectl"):
        start(folder, [])
    assert store.objects == {}
    assert [entry.cleanup for entry in record.load(run)] == ["removed"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": FULL}]},
            "Insufficient vpc.amazonaws.com/efa",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]},
            "ImagePullBackOff: no such image",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, "FailedMount: no hugepages"),
    ],
)
def test_a_job_that_never_starts_is_reported_with_the_reason(
    store: kube_api.ClusterState, tmp_path: Path, status: dict[str, object], expected: str
) -> None:
    store.warns("j-0", "FailedMount", "no hugepages")
    store.steps = [pods("Pending", **status)]
    with pytest.raises(RdmaImagesError, match=f"did not start in 0:01: .*{expected}"):
        start(job(tmp_path), [], limit=1)
    assert not [key for key in store.objects if key[0] != "events"]


@pytest.mark.usefixtures("store")
def test_without_an_operator_there_is_no_pod(tmp_path: Path) -> None:
    with pytest.raises(RdmaImagesError, match="0 of 2 pods are there; events of the job: nothing"):
        start(job(tmp_path), [], limit=1)


def test_a_killed_rank_is_a_failure(store: kube_api.ClusterState, tmp_path: Path) -> None:
    killed = [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
    store.steps = [pods("Running"), pods("Failed", containerStatuses=killed)]
    run_folder = start(job(tmp_path), [])
    assert "pod j-0 on node failed: OOMKilled with exit code 137" in record.load(run_folder)[0].why
    assert not [key for key in store.objects if key[0] != "events"]


def wait_until_followed(store: kube_api.ClusterState) -> None:
    until = time.monotonic() + 30
    while not {"j-0", "j-1"} <= store.followed and time.monotonic() < until:
        time.sleep(0.02)


def test_the_log_of_a_worker_that_the_operator_removes_is_collected(
    store: kube_api.ClusterState, tmp_path: Path
) -> None:
    """A worker can be listed and be gone when its log is asked for: the MPI operator removes those of an ended job."""

    def ended(store: kube_api.ClusterState) -> None:
        wait_until_followed(store)
        store.ends("mpijobs", "j", "Succeeded")
        store.objects["pods", "listed only"] = store.objects.pop(("pods", "j-1"))

    lines: list[str] = []
    store.steps = [pods("Running"), ended]
    run_folder = start(job(tmp_path), lines)
    assert (run_folder / "logs" / "j-1.log").read_text() == "the log of j-1\n"
    assert "collected" not in "\n".join(lines)


def test_what_an_evicted_pod_printed_is_kept(store: kube_api.ClusterState, tmp_path: Path) -> None:
    """Its kubelet removes its containers and their logs: they can be read only while it runs."""
    message = "The node was low on resource: ephemeral-storage. "

    def evicted(store: kube_api.ClusterState) -> None:
        wait_until_followed(store)
        store.logs["j-1"] = "unable to retrieve container logs for containerd://5f1c"
        store.pod("j-1", LABELS, phase="Failed", reason="Evicted", message=message)

    store.steps = [pods("Running"), evicted]
    run_folder = start(job(tmp_path), [])
    assert {path.name: path.read_text() for path in (run_folder / "logs").iterdir()} == {
        "j-0.log": "the log of j-0\n",
        "j-1.log": "the log of j-1\n",
    }
    assert f"pod j-1 on node failed: Evicted: {message.strip()}" in record.load(run_folder)[0].why
    assert not [key for key in store.objects if key[0] != "events"]


def test_each_line_is_shown_once(
    store: kube_api.ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another kubectl, in place of one that ended, begins with the first line; and so do the collected logs."""
    monkeypatch.setattr(streams, "RESTART_SECONDS", 0.0)

    def interrupted(store: kube_api.ClusterState) -> None:
        wait_until_followed(store)
        pods("Succeeded")(store)
        time.sleep(0.5)  # the streams end
        store.followed.clear()
        pods("Running")(store)

    def continued(store: kube_api.ClusterState) -> None:
        if {"j-0", "j-1"} <= store.followed:
            store.logs["j-1"] += "followed again\n"
            store.followed.clear()
            wait_until_followed(store)
        else:
            store.steps.insert(0, continued)

    def ended(store: kube_api.ClusterState) -> None:
        store.logs["j-1"] += "collected at the end\n"
        store.ends("mpijobs", "j", "Succeeded")

    store.steps = [pods("Running"), interrupted, continued, lambda _: None, ended]
    start(job(tmp_path), [], prints_log=True)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[j-0] the log of j-0",
        "[j-1] collected at the end",
        "[j-1] followed again",
        "[j-1] the log of j-1",
    ]


def test_arena_creates_and_deletes_under_a_name_of_this_run(
    store: kube_api.ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """arena cannot be installed here: a program calls kubectl as arena would."""
    arena = tmp_path / "bin" / "arena"
    arena.parent.mkdir()
    arena.write_text(ARENA)
    arena.chmod(0o755)
    monkeypatch.setenv("PATH", f"{arena.parent}:{os.environ['PATH']}")

    def step(phase: str) -> kube_api.Step:
        def run_step(store: kube_api.ClusterState) -> None:
            ((_, name),) = [key for key in store.objects if key[0] == "pytorchjobs"]
            for number in (0, 1):
                store.pod(f"{name}-{number}", {"release": name, "app": "pytorchjob"}, phase=phase)
            if phase == "Succeeded":
                store.ends("pytorchjobs", name, phase)

        return run_step

    store.steps = [step("Pending"), step("Running"), step("Succeeded")]
    request = jobs.job_request("arena", "erdma", "torchrun", name="j")
    run_folder = start(create.write_job(request, jobs.load_project(), str(tmp_path / "j"))[1], [])
    (entry,) = record.load(run_folder)
    assert (entry.ending, entry.cleanup) == ("succeeded", "removed")
    assert {path.name for path in (run_folder / "logs").iterdir()} == {f"j-{entry.tag}-{n}.log" for n in (0, 1)}
    assert store.objects == {}


def test_a_job_of_the_same_name_stays_as_it_is(store: kube_api.ClusterState, tmp_path: Path) -> None:
    store.put("mpijobs", "j")
    with pytest.raises(RdmaImagesError, match='"j" already exists'):
        start(job(tmp_path), [])
    assert list(store.objects) == [("mpijobs", "j")]


def test_what_the_api_refuses_is_said(store: kube_api.ClusterState, tmp_path: Path) -> None:
    store.refuses = 'admission webhook "x" denied the request: no quota'
    with pytest.raises(RdmaImagesError, match="no quota"):
        start(job(tmp_path), [])


def test_no_answer_for_a_while_is_waited_out(
    store: kube_api.ClusterState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network breaks in the middle: the job goes on, and so does who follows it."""
    lines: list[str] = []

    def away(_: kube_api.ClusterState) -> None:
        raise ConnectionError

    store.steps = [pods("Running"), away, pods("Running"), lambda store: store.ends("mpijobs", "j", "Succeeded")]
    start(job(tmp_path), lines)
    assert any("no answer, asking again" in line for line in lines)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    with pytest.raises(RdmaImagesError, match=r"j was not submitted: kubectl.*connection to the server"):
        start(job(tmp_path), [])
