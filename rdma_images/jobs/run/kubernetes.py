"""Kubernetes: kubectl, or arena for the submission. What was created carries the run's tag as a label."""

import json
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import yaml

from rdma_images.core.plain import plain
from rdma_images.jobs.run.command import output
from rdma_images.jobs.run.runner import CommandError, Leg, Phase, State
from rdma_images.jobs.run.streams import Streams

LABEL = "rdma-images.run"
GONE = 2  # looks in a row at which a pod that ran is missing, before the job has lost it
PATIENCE = 180.0  # seconds until everything of a deleted job is gone
CONDITIONS: dict[str, Phase] = {"Succeeded": "succeeded", "Complete": "succeeded", "Failed": "failed"}
Object = dict[str, Any]  # as Kubernetes' API has it


class Kubernetes:
    """A job's object and its pods, in the cluster that kubectl's context names at the start."""

    def __init__(self, leg: Leg) -> None:
        self._leg = leg
        self._ran: dict[str, str] = {}  # uid of each pod that ran, and its name
        self._missed = 0
        self._streams = Streams(leg.logs)

    def submit(self) -> None:
        """Create what the manifest says: an object of somebody else's with the same name is an error."""
        self._kubectl(
            "create", "-f", "-", given=json.dumps({"kind": "List", "apiVersion": "v1", "items": self._objects()})
        )

    def state(self) -> State:
        """What the job's conditions say; before that, of its pods: what keeps one waiting, or took one away."""
        pods = self._pods()
        found = self._get(self._leg.run.object, self._name)
        for condition in found.get("status", {}).get("conditions", ()):
            phase = CONDITIONS.get(condition["type"])
            if phase and condition["status"] == "True":
                why = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                return (
                    State("succeeded")
                    if phase == "succeeded"
                    else State("failed", "; ".join([plain(why), *_endings(pods)]))
                )
        if lost := self._lost(pods):
            return State("failed", lost)
        if waiting := [pod for pod in pods if not _runs(pod)]:
            return State("waiting", "; ".join(dict.fromkeys(self._why(pod) for pod in waiting)))
        if len(pods) < self._leg.job.nodes:
            said = self._events(self._name) or "nothing"
            return State("waiting", f"{len(pods)} of {self._leg.job.nodes} pods are there; events of the job: {said}")
        self._streams.follow(frozenset(pod["metadata"]["uid"] for pod in pods), self._program, self._selector)
        return State("running", f"{len(pods)} pods run")

    def collect(self) -> None:
        """The log of each pod that has one; what one pod's kubelet does not give is no reason to miss the others'.

        A log that is gone or shorter by now is as its pod printed it while it ran.
        """
        try:
            problems = list(self._collected())
        finally:
            self._streams.keep()
        if problems:
            raise CommandError("; ".join(problems))

    def _collected(self) -> Iterator[str]:
        """Write the log of each pod; what did not work."""
        begun = [pod["metadata"]["name"] for pod in self._pods() if pod["status"].get("phase") != "Pending"]
        for name in begun:
            to = self._leg.logs / f"{name}.log"
            try:
                output([*self._program, "logs", name, "--all-containers", "--tail=-1"], limit=300, to=to)
            except CommandError as error:
                yield str(error)

    def delete(self) -> None:
        """What has the tag, and with it what it owns."""
        self._streams.stop()
        kinds = ",".join(sorted({_resource(one) for one in self._objects()}))
        tagged = (kinds, "-l", f"{LABEL}={self._leg.tag}")
        self._kubectl("delete", *tagged, "--ignore-not-found", "--cascade=foreground", "--wait=false")
        until = time.monotonic() + PATIENCE
        while left := self._get(*tagged)["items"]:
            if time.monotonic() > until:
                names = ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in left)
                raise CommandError(f"deleted, but still in the cluster: {names}\nsee which of their finalizers waits")
            time.sleep(0.5)

    @property
    def _name(self) -> str:
        """The job's name in the cluster."""
        return self._leg.job.name

    @property
    def _selector(self) -> str:
        """The labels of the job's pods."""
        return self._leg.run.pods.format(name=self._name)

    @cached_property
    def _program(self) -> list[str]:
        """kubectl with the context and namespace of the whole run: the user may switch to others meanwhile."""
        namespace = ["--namespace", self._leg.job.parameters["namespace"]]
        try:
            context = output(["kubectl", "config", "current-context"]).strip()
        except CommandError:  # in a pod there is none
            return ["kubectl", *namespace]
        return ["kubectl", "--context", context, *namespace]

    def _kubectl(self, *words: str, given: str | None = None, limit: float = 60.0) -> str:
        return output([*self._program, *words], given, limit)

    def _get(self, *words: str) -> Object:
        found: Object = json.loads(self._kubectl("get", *words, "-o", "json"))
        return found

    def _objects(self) -> list[Object]:
        """The manifest's objects, with the tag."""
        with self._leg.file.open(encoding="utf-8") as file:
            objects = [one for one in yaml.safe_load_all(file) if one]
        for one in objects:
            one["metadata"].setdefault("labels", {})[LABEL] = self._leg.tag
        return objects

    def _pods(self) -> list[Object]:
        pods: list[Object] = self._get("pods", "-l", self._selector)["items"]
        return pods

    def _lost(self, pods: list[Object]) -> str:
        """The sentence on pods that ran and are gone, as a drained node's are, or that ended badly."""
        if bad := [said for pod in pods if pod["status"].get("phase") == "Failed" for said in _endings([pod])]:
            return "; ".join(bad)
        self._ran |= {
            pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"
        }
        there = {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        missing = [name for uid, name in self._ran.items() if uid not in there]
        self._missed = self._missed + 1 if missing else 0
        if self._missed < GONE:
            return ""
        return "; ".join(
            f"pod {name} was deleted while it ran: {self._events(name) or 'no event says why'}" for name in missing
        )

    def _why(self, pod: Object) -> str:
        """What keeps a pod from running: the scheduler's message, a container's reason, or the pod's last warning."""
        name, status = pod["metadata"]["name"], pod["status"]
        said = [
            one.get("message", "")
            for one in status.get("conditions", ())
            if one["type"] == "PodScheduled" and one["status"] == "False"
        ] + [f"{one.get('reason', '')}: {one.get('message', '')}".rstrip(": ") for one in _containers(pod, "waiting")]
        events = "" if any(": " in one for one in said) else self._events(name)
        return plain(f"{name}: {'; '.join(filter(None, (*said, events))) or status.get('phase', 'not yet seen')}")

    def _events(self, name: str) -> str:
        """The last thing that a controller, the scheduler or a kubelet warned of an object."""
        events = self._get("events", "--field-selector", f"involvedObject.name={name}")["items"]
        warned = [one for one in events if one.get("type") != "Normal"]
        warned.sort(key=lambda one: one.get("lastTimestamp") or one["metadata"].get("creationTimestamp") or "")
        return plain(f"{warned[-1]['reason']}: {warned[-1]['message']}") if warned else ""


class Arena(Kubernetes):
    """The same, but that arena creates the job, under a name that this run alone has."""

    def submit(self) -> None:
        """Run the script."""
        output(["env", f"RDMA_IMAGES_RUN={self._leg.name}", "bash", self._leg.file], limit=180)

    def delete(self) -> None:
        """arena's own: it knows what belongs to the job. Where the job is not there, it says so."""
        self._streams.stop()
        try:
            output(["arena", "delete", self._name, "-n", self._leg.job.parameters["namespace"]], limit=180)
        except CommandError as error:
            if "not exist" not in str(error) and "not found" not in str(error):
                raise

    @property
    def _name(self) -> str:
        return self._leg.name


def _resource(one: Object) -> str:
    """Kind, version and group of an object, as kubectl takes them."""
    group, _, version = str(one["apiVersion"]).rpartition("/")
    return ".".join(filter(None, (one["kind"], version, group)))


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Running", "Succeeded") and not _containers(pod, "waiting")


def _containers(pod: Object, state: str) -> list[Object]:
    """What the containers of a pod that are in this state say of it."""
    status = pod["status"]
    every = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return [one["state"][state] for one in every if state in one.get("state", {})]


def _endings(pods: list[Object]) -> Iterator[str]:
    """How pods failed: the kubelet's reason, or a container's exit code."""
    for pod in pods:
        status = pod["status"]
        if status.get("phase") == "Failed":
            codes = [
                f"{one.get('reason', '')} with exit code {one['exitCode']}" for one in _containers(pod, "terminated")
            ]
            said = [f"{status.get('reason', '')}: {status['message']}"] if status.get("message") else codes
            node = pod["spec"].get("nodeName", "no node")
            yield plain(f"pod {pod['metadata']['name']} on {node} failed: {', '.join(said) or 'no reason given'}")
