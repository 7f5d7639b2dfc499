"""The part of Kubernetes' API that kubectl calls, with state.

The test plays the operator, the scheduler and the kubelet: it gives a step for each time that the pods are listed.
"""

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
Step = Callable[["ClusterState"], None]

KINDS = {
    ("", "v1"): {"pods": "Pod", "events": "Event"},
    ("kubeflow.org", "v2beta1"): {"mpijobs": "MPIJob"},
    ("kubeflow.org", "v1"): {"pytorchjobs": "PyTorchJob"},
    ("trainer.kubeflow.org", "v1alpha1"): {"trainjobs": "TrainJob", "trainingruntimes": "TrainingRuntime"},
    ("resource.k8s.io", "v1"): {"resourceclaimtemplates": "ResourceClaimTemplate"},
}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<kind>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<sub>log))?)?"
)
EMPTY = b""  # an OpenAPI document without definitions, as protobuf has it


class ClusterState:
    """What the cluster has; `steps` are taken one at a time, before the pods are listed."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.logs: dict[str, str] = {}
        self.steps: list[Step] = []
        self.followed: set[str] = set()  # pods whose whole log a client that follows it has
        self.refuses: str = ""  # a message with which every creation is refused
        self.finalizers_wait = False  # what is deleted stays, as after a kubelet that is gone; its pods do not

    def put(self, kind: str, name: str, /, **fields: Any) -> Object:
        """Return an object that is made, or replaced."""
        stored = {
            "metadata": {"name": name, "namespace": "default", "uid": str(uuid.uuid4())},
            "status": {},
            "spec": {},
        }
        self.objects[kind, name] = stored = {
            **stored,
            **fields,
            "metadata": {**stored["metadata"], **fields.get("metadata", {})},
        }
        return stored

    def pod(self, name: str, labels: dict[str, str], **status: Any) -> None:
        """Return a pod with a status; its identity stays."""
        previous = self.objects.get(("pods", name), {"metadata": {}})
        self.put(
            "pods",
            name,
            metadata={**previous["metadata"], "labels": labels},
            spec={"nodeName": "node", "containers": [{"name": "main"}]},
            status=status,
        )

    def ends(self, kind: str, name: str, condition: str, message: str = "") -> None:
        """Set the operator's word on a job."""
        status = {"type": condition, "status": "True", "reason": condition, "message": message}
        self.objects[kind, name]["status"] = {"conditions": [status]}

    def warns(self, name: str, reason: str, message: str) -> None:
        """Add an event."""
        of_object = {"name": name, "namespace": "default"}
        self.put("events", f"{name}.{reason}", type="Warning", reason=reason, message=message, involvedObject=of_object)

    def must_match(self, kind: str, labels: str, fields: str) -> Iterator[Object]:
        """Yield the objects of a kind that selectors take."""
        for (object_kind, _), item in list(self.objects.items()):
            item_labels = item["metadata"].get("labels", {})
            selector = dict(pair.split("=", 1) for pair in labels.split(",") if pair)
            about = dict(pair.split("=", 1) for pair in fields.split(",") if pair).get("involvedObject.name")
            if (
                object_kind == kind
                and selector.items() <= item_labels.items()
                and about in (None, item.get("involvedObject", {}).get("name"))
            ):
                yield item


class _Handler(BaseHTTPRequestHandler):
    store: ClusterState

    def do_GET(self) -> None:
        path, query = self._parse_request()
        if not path:
            return self._discovery()
        kind, name = path["kind"], path["name"]
        if path["sub"] and query.get("follow") == ["true"]:
            return self._follow(name, query.get("timestamps") == ["true"])
        if path["sub"]:
            return self._send(200, self.store.logs.get(name, "").encode(), "text/plain")
        group = "/".join(filter(None, (path["group"], path["version"])))
        names = KINDS[path["group"] or "", path["version"]]
        if name:
            stored = self.store.objects.get((kind, name))
            answer = {"apiVersion": group, "kind": names[kind], **(stored or {})}
            return self._json(200, answer) if stored else self._missing(kind, name)
        if kind == "pods" and self.store.steps and "limit" in query:  # of `kubectl get`, not of `kubectl logs`
            try:
                self.store.steps.pop(0)(self.store)
            except ConnectionError:
                return self._status(503, "ServiceUnavailable", "no leader")
        items = list(
            self.store.must_match(kind, query.get("labelSelector", [""])[0], query.get("fieldSelector", [""])[0])
        )
        items = [
            {"apiVersion": group, "kind": names[kind], **item}
            for item in items
            if item["metadata"]["namespace"] == path["namespace"]
        ]
        return self._json(200, {"apiVersion": group, "kind": f"{names[kind]}List", "metadata": {}, "items": items})

    def do_POST(self) -> None:
        path, _ = self._parse_request()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = body["metadata"]["name"]
        if self.store.refuses:
            return self._status(403, "Forbidden", self.store.refuses)
        if (path["kind"], name) in self.store.objects:
            return self._status(409, "AlreadyExists", f'{path["kind"]} "{name}" already exists')
        return self._json(201, self.store.put(path["kind"], name, **body))

    def do_DELETE(self) -> None:
        path, _ = self._parse_request()
        removed = self.store.objects.get((path["kind"], path["name"]))
        if removed is None:
            return self._missing(path["kind"], path["name"])
        if not self.store.finalizers_wait:
            del self.store.objects[path["kind"], path["name"]]
        for key in [key for key in self.store.objects if key[0] == "pods"]:
            del self.store.objects[key]
        return self._json(
            200,
            {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"uid": removed["metadata"]["uid"]}},
        )

    def _follow(self, name: str, has_times: bool) -> None:
        """Send the log of a pod as it grows, until the pod runs no more."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        sent = ""
        while (pod := self.store.objects.get(("pods", name))) and pod["status"].get("phase") == "Running":
            text = self.store.logs.get(name, "")
            if text.startswith(sent):  # else it is not this log any more, but the kubelet's word that it is gone
                for number, line in enumerate(text[len(sent) :].splitlines(keepends=True), sent.count("\n")):
                    self.wfile.write(f"{f'2026-11-29T10:00:00.{number:09}+08:00 ' if has_times else ''}{line}".encode())
                self.wfile.flush()
                sent = text
            self.store.followed.add(name)
            time.sleep(0.02)

    def _parse_request(self) -> tuple[Any, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return PATH.fullmatch(parts.path), parse_qs(parts.query)

    def _discovery(self) -> None:
        path = urlsplit(self.path).path
        if path == "/api":
            return self._json(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == "/apis":
            groups: dict[str, list[Object]] = {}
            for group, version in KINDS:
                if group:
                    groups.setdefault(group, []).append({"groupVersion": f"{group}/{version}", "version": version})
            listed = [{"name": name, "versions": some, "preferredVersion": some[0]} for name, some in groups.items()]
            return self._json(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        if path == "/openapi/v2":
            return self._send(200, EMPTY, "application/octet-stream")
        match = re.fullmatch(r"/(?:api|apis/([^/]+))/(v[^/]+)", path)
        if match and (match[1] or "", match[2]) in KINDS:
            kinds = KINDS[match[1] or "", match[2]]
            verbs = ["create", "delete", "get", "list"]
            resources = [
                {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
                for name, kind in kinds.items()
            ]
            version = "/".join(filter(None, (match[1], match[2])))
            return self._json(
                200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
            )
        return self._status(404, "NotFound", path)

    def _missing(self, kind: str, name: str) -> None:
        self._status(404, "NotFound", f'{kind} "{name}" not found')

    def _status(self, code: int, reason: str, message: str) -> None:
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reason,
            "message": message,
            "code": code,
        }
        self._json(code, body)

    def _json(self, code: int, body: Object) -> None:
        self._send(code, json.dumps(body).encode(), "application/json")

    def _send(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing on the test's output."""


@contextmanager
def serving(folder: Path) -> Iterator[ClusterState]:
    """Serve the API on a port of this machine; `folder`/kubeconfig leads there."""
    store = ClusterState()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": store}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    client = {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "current-context": "here"}
    contexts = [{"name": "here", "context": {"cluster": "c", "user": ""}}]
    (folder / "kubeconfig").write_text(json.dumps({**client, "contexts": contexts}))
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
