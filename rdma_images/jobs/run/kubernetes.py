"""Run jobs on Kubernetes with kubectl, or arena for the submission. Each object gets the run's tag as a label."""

import json
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from rdma_images.core import atomic, files
from rdma_images.core.plain import plain
from rdma_images.jobs.run.command import CommandError, output
from rdma_images.jobs.run.runner import JobPhase, JobState, Submission
from rdma_images.jobs.run.streams import Streams
from rdma_images.jobs.write.render import KUSTOMIZATION

LABEL = "rdma-images.run"
DELETE_SECONDS = 180.0  # seconds until everything of a deleted job is gone
NO_LOG = b"unable to retrieve container logs for "  # what kubelets give in place of a log that is gone
CONDITIONS: dict[str, JobPhase] = {"Succeeded": "succeeded", "Complete": "succeeded", "Failed": "failed"}
Object = dict[str, Any]  # of Kubernetes' API


class Kubernetes:
    """A job's object and its pods, in the cluster that kubectl's context names at the start."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._streams = Streams(submission.logs)
        self._kept = submission.logs.with_name("objects.json")  # what `delete` needs, also in a later run

    def submit(self) -> None:
        """Create the manifest's objects. An existing object of the same name is an error."""
        objects = self._objects()
        self._kubectl("get", self._submission.method.object, self._name, "--ignore-not-found")  # it must answer
        atomic.write(self._kept, json.dumps({"context": self._context, "items": objects}))
        self._kubectl("create", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))

    def state(self) -> JobState:
        """Return the state by the job's conditions, or by what its pods wait for or failed with."""
        self._streams.read()
        pods = self._pods()
        job = self._get(self._submission.method.object, self._name)
        for condition in job.get("status", {}).get("conditions", ()):
            phase = CONDITIONS.get(condition["type"])
            if phase and condition["status"] == "True":
                if phase == "succeeded":
                    return JobState("succeeded")
                reason = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                return JobState("failed", "; ".join([plain(reason), *_failure_reasons(pods)]))
        if not self._submission.job.settings.is_recovered and (failures := list(_failure_reasons(pods))):
            return JobState("failed", "; ".join(failures))
        if waiting := [pod for pod in pods if not _is_running(pod)]:
            return JobState("waiting", "; ".join(dict.fromkeys(self._waiting_reason(pod) for pod in waiting)))
        if len(pods) < self._submission.job.nodes:
            present = f"{len(pods)} of {self._submission.job.nodes} pods are there"
            return JobState("waiting", f"{present}; events of the job: {self._events(self._name) or 'nothing'}")
        self._streams.follow(frozenset(pod["metadata"]["uid"] for pod in pods), self._program, self._selector)
        return JobState("running", f"{len(pods)} pods run")

    def collect(self) -> None:
        """Write each pod's log; one that is gone or shorter by now stays as its pod printed it while it ran."""
        self._streams.stop()
        started_pods = [pod["metadata"]["name"] for pod in self._pods() if pod["status"].get("phase") != "Pending"]
        if lost := list(filter(None, map(self._collect_log, started_pods))):
            raise CommandError("; ".join(lost))

    def _collect_log(self, pod: str) -> str:
        """Write the log of a pod, unless what was followed is longer. Return why it cannot be had, or ""."""
        log, collected = self._submission.logs / f"{pod}.log", self._submission.logs.with_name(f".{pod}.log")
        problem = ""
        try:
            output([*self._program, "logs", pod, "--all-containers", "--tail=-1"], limit=300, stdout_file=collected)
        except CommandError as error:
            problem = str(error)
        if _log_size(log) > _log_size(collected):
            collected.unlink()
            return ""
        collected.replace(log)
        return problem

    def delete(self) -> None:
        """Delete the objects with the run's tag, and those that they own.

        The job goes first: without its runtime, the trainer refuses every change of a TrainJob, even its removal.
        """
        self._streams.stop()
        if not self._kept.exists():
            return
        kept = json.loads(files.read_text(self._kept))
        self._context = kept["context"]
        deadline = time.monotonic() + DELETE_SECONDS
        for is_job in (True, False):
            if kinds := sorted({_resource(item) for item in kept["items"] if self._is_job(item) == is_job}):
                self._delete_kinds(",".join(kinds), deadline)

    def _delete_kinds(self, kinds: str, deadline: float) -> None:
        """Remove the objects of these kinds that have the tag; return when they are gone."""
        tagged = (kinds, "-l", f"{LABEL}={self._submission.tag}")
        self._kubectl("delete", *tagged, "--ignore-not-found", "--cascade=foreground", "--wait=false")
        while remaining := self._get(*tagged)["items"]:
            if time.monotonic() > deadline:
                names = ", ".join(f"{item['kind']} {item['metadata']['name']}" for item in remaining)
                raise CommandError(f"deleted, but still in the cluster: {names}\nsee which of their finalizers waits")
            time.sleep(0.5)

    def _is_job(self, manifest: Object) -> bool:
        """Return whether an object is the job itself, and not what it needs."""
        kind, _, group = self._submission.method.object.partition(".")
        return f"{manifest['kind'].lower()}s" == kind and str(manifest["apiVersion"]).startswith(f"{group}/")

    @property
    def _name(self) -> str:
        """Return the job's name in the cluster."""
        return self._submission.job.name

    @property
    def _selector(self) -> str:
        """Return the labels of the job's pods."""
        return self._submission.method.pods.format(name=self._name)

    @cached_property
    def _context(self) -> str:
        """Return the context of the whole run; "" in a pod, where there is none."""
        try:
            return output(["kubectl", "config", "current-context"]).strip()
        except CommandError:
            return ""

    @property
    def _program(self) -> list[str]:
        """Return kubectl with the context and namespace of the whole run."""
        context = ["--context", self._context] if self._context else []
        return ["kubectl", *context, "--namespace", self._submission.job.parameters["namespace"]]

    def _kubectl(self, *words: str, stdin: str | None = None) -> str:
        return output([*self._program, *words], stdin)

    def _get(self, *words: str) -> Object:
        parsed: Object = json.loads(self._kubectl("get", *words, "-o", "json"))
        return parsed

    def _objects(self) -> list[Object]:
        """Return the job's objects, with the tag; a kustomization.yaml says which files they are in.

        The job is the last: a TrainJob is refused before its runtime is there, and kubectl sorts kinds by their names.
        """
        folder = self._submission.files.absolute()
        has_several = (folder / KUSTOMIZATION).exists()
        text = output(["kubectl", "kustomize", folder]) if has_several else files.read_text(self._submission.file)
        objects = [manifest for manifest in yaml.safe_load_all(text) if manifest]
        for manifest in objects:
            manifest["metadata"].setdefault("labels", {})[LABEL] = self._submission.tag
        return sorted(objects, key=self._is_job)

    def _pods(self) -> list[Object]:
        return list(self._get("pods", "-l", self._selector)["items"])

    def _waiting_reason(self, pod: Object) -> str:
        """Return why a pod does not run: the scheduler's, a container's or an event's reason."""
        name, status = pod["metadata"]["name"], pod["status"]
        reasons = [
            entry.get("message", "")
            for entry in status.get("conditions", ())
            if entry["type"] == "PodScheduled" and entry["status"] == "False"
        ] + [
            f"{entry.get('reason', '')}: {entry.get('message', '')}".rstrip(": ")
            for entry in _containers(pod, "waiting")
        ]
        events = "" if any(": " in entry for entry in reasons) else self._events(name)
        return plain(f"{name}: {'; '.join(filter(None, (*reasons, events))) or status.get('phase', 'not yet seen')}")

    def _events(self, name: str) -> str:
        """Return the last warning of a controller, the scheduler or a kubelet about an object."""
        events = self._get("events", "--field-selector", f"involvedObject.name={name}")["items"]
        warnings = [event for event in events if event.get("type") != "Normal"]
        warnings.sort(key=lambda event: event.get("lastTimestamp") or event["metadata"].get("creationTimestamp") or "")
        return plain(f"{warnings[-1]['reason']}: {warnings[-1]['message']}") if warnings else ""


class Arena(Kubernetes):
    """Run the job as Kubernetes does; arena creates it, under a name of this run alone."""

    def submit(self) -> None:
        """Run the script."""
        output(["env", f"RDMA_IMAGES_RUN={self._submission.name}", "bash", self._submission.file], limit=180)

    def delete(self) -> None:
        """Delete the job by arena, which knows its parts and says if it is not there."""
        self._streams.stop()
        try:
            output(["arena", "delete", self._name, "-n", self._submission.job.parameters["namespace"]], limit=180)
        except CommandError as error:
            if "not exist" not in str(error) and "not found" not in str(error):
                raise

    @property
    def _name(self) -> str:
        return self._submission.name


def _log_size(log: Path) -> int:
    """Return a file's bytes of log: 0 if it is missing, or says that the log is gone."""
    if not log.exists():
        return 0
    with log.open("rb") as file:
        return 0 if file.read(len(NO_LOG)) == NO_LOG else log.stat().st_size


def _resource(manifest: Object) -> str:
    """Return an object's kind, version and group, as kubectl takes them: "ConfigMap.v1." without a group."""
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    return f"{manifest['kind']}.{version}.{group}"


def _is_running(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Running", "Succeeded") and not _containers(pod, "waiting")


def _containers(pod: Object, state: str) -> list[Object]:
    """Return the state entries of a pod's containers that are in this state."""
    status = pod["status"]
    statuses = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return [container["state"][state] for container in statuses if state in container.get("state", {})]


def _failure_reasons(pods: list[Object]) -> Iterator[str]:
    """Yield how pods failed: the kubelet's reason, or a container's exit code."""
    for pod in pods:
        status = pod["status"]
        if status.get("phase") == "Failed":
            codes = [
                f"{container.get('reason', '')} with exit code {container['exitCode']}"
                for container in _containers(pod, "terminated")
            ]
            reasons = [f"{status.get('reason', '')}: {status['message']}"] if status.get("message") else codes
            node = pod["spec"].get("nodeName", "no node")
            yield plain(f"pod {pod['metadata']['name']} on {node} failed: {', '.join(reasons) or 'no reason given'}")
