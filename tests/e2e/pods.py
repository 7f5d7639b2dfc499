"""Pods as processes, each in a network of its own, for controllers and kubelets of tests.

Addresses and names are those that pods get; the container is this machine's file system, not an image.
"""

import base64
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kubelet import expand

NETWORK = "10.77.1"
DOMAIN = "svc.cluster.local"
RESOLVER = """nameserver {network}.254
search {namespace}.{domain} {domain} cluster.local
options ndots:5
"""
# The container's command after it: name, /etc of the pod, folder with each volume, and where each is mounted.
START = """set -e
hostname "$1"; mount --bind "$3" /srv
for file in hosts resolv.conf; do mount --bind "$2/$file" "/etc/$file"; done
shift 3
for folder in /mnt /tmp /dev/shm; do mount -t tmpfs none "$folder"; done
while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "/srv/$1" "$2"; shift 2; done
shift; exec "$@"
"""


@dataclass
class Pod:
    """A pod: what its manifest says of it, and the process that runs in it."""

    name: str
    labels: Mapping[str, str]
    spec: Any
    environment: Mapping[str, str] = field(default_factory=dict)
    subdomain: str = ""
    address: str = ""
    process: subprocess.Popen[bytes] | None = None
    log: Path = Path(os.devnull)

    @property
    def port(self) -> int:
        """The port that a server's first pod answers at; 0 for another pod."""
        ports = (
            self.spec["containers"][0].get("ports", ()) if self.environment.get("LWS_WORKER_INDEX", "0") == "0" else ()
        )
        return next((int(port["containerPort"]) for port in ports), 0)

    def answers(self) -> bool:
        """Return whether its readiness probe succeeds."""
        probe = self.spec["containers"][0].get("readinessProbe", {}).get("httpGet")
        try:
            if probe:
                urllib.request.urlopen(f"http://{self.address}:{probe['port']}{probe['path']}", timeout=1).close()
            else:
                socket.create_connection((self.address, self.port), 1).close()
        except OSError:
            return False
        return True


def manifest_pods(manifest: Any) -> Iterator[Pod]:
    """Yield the pods that a controller makes of a manifest.

    LeaderWorkerSet: kubernetes-sigs/lws pkg/utils/pod/pod_utils.go and pkg/webhooks/pod_webhook.go, 060ab4d.
    """
    name, spec = manifest["metadata"]["name"], manifest.get("spec")
    if manifest["kind"] == "Deployment":
        for number in range(spec["replicas"]):
            yield Pod(f"{name}-{number}", spec["template"]["metadata"]["labels"], spec["template"]["spec"])
    if manifest["kind"] != "LeaderWorkerSet":
        return
    group = spec["leaderWorkerTemplate"]
    for replica in range(spec["replicas"]):
        for index in range(group["size"]):
            worker = group["workerTemplate"]
            template = worker if index else group.get("leaderTemplate", worker)
            labels = {
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": str(replica),
                "leaderworkerset.sigs.k8s.io/worker-index": str(index),
            }
            environment = {
                "LWS_LEADER_ADDRESS": f"{name}-{replica}.{name}.{manifest['metadata']['namespace']}",
                "LWS_GROUP_SIZE": str(group["size"]),
                "LWS_WORKER_INDEX": str(index),
            }
            pod_name = f"{name}-{replica}-{index}" if index else f"{name}-{replica}"
            yield Pod(pod_name, {**template["metadata"]["labels"], **labels}, template["spec"], environment, name)


@contextmanager
def running(manifests: Sequence[Any], folder: Path, path: str) -> Iterator[list[Pod]]:
    """Yield the started pods of the manifests, with `path` as PATH; they end with the block."""
    pods = [pod for manifest in manifests for pod in manifest_pods(manifest)]
    configs = {item["metadata"]["name"]: item for item in manifests if item["kind"] == "ConfigMap"}
    bridge, namespace = f"pods{os.getpid()}", manifests[0]["metadata"]["namespace"]
    for number, pod in enumerate(pods, 1):
        pod.address = f"{NETWORK}.{number}"
    names = {f"{pod.name}.{pod.subdomain}.{namespace}.{DOMAIN}": pod.address for pod in pods if pod.subdomain}
    resolver = RESOLVER.format(network=NETWORK, namespace=namespace, domain=DOMAIN)
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("address", "add", f"{NETWORK}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        with _name_server(names):
            for number, pod in enumerate(pods, 1):
                _connect(f"{bridge}-{number}", f"p{os.getpid()}-{number}", bridge, pod.address)
                _start(pod, f"{bridge}-{number}", folder, configs, path, resolver)
            yield pods
    finally:
        for number, pod in enumerate(pods, 1):
            if pod.process:
                pod.process.send_signal(signal.SIGKILL)
                pod.process.wait()
            subprocess.run(["ip", "netns", "del", f"{bridge}-{number}"], stderr=subprocess.DEVNULL)
        ip("link", "del", bridge)


@contextmanager
def _name_server(addresses: Mapping[str, str]) -> Iterator[None]:
    """Answer like the cluster's DNS (RFC 1035): addresses of pods by their full names."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                query, peer = server.recvfrom(512)
            except TimeoutError:
                continue
            server.sendto(_answer(query, addresses), peer)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.settimeout(0.2)
        server.bind((f"{NETWORK}.254", 53))
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _answer(query: bytes, addresses: Mapping[str, str]) -> bytes:
    question_end = query.index(0, 12) + 5
    labels, position = [], 12
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode())
        position += 1 + length
    address = addresses.get(".".join(labels).lower())
    asks_for_address = query[question_end - 4 : question_end - 2] == b"\0\1"  # A
    record = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(address) if address and asks_for_address else b""
    header = struct.pack(">5H", 0x8580 if address else 0x8583, 1, bool(record), 0, 0)
    return query[:2] + header + query[12:question_end] + record


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _connect(namespace: str, link: str, bridge: str, address: str) -> None:
    """Make a network of a pod, with a way out as a pod has one."""
    ip("netns", "add", namespace)
    ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("link", "set", link, "master", bridge, "up")
    ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
    for device in ("eth0", "lo"):
        ip("-n", namespace, "link", "set", device, "up")
    ip("-n", namespace, "route", "add", "default", "via", f"{NETWORK}.254")


def _start(pod: Pod, namespace: str, folder: Path, configs: Mapping[str, Any], path: str, resolver: str) -> None:
    """Start the pod's container with its command, variables and volumes."""
    (container,) = pod.spec["containers"]
    variables: dict[str, str] = {}
    for row in container["env"]:
        variables[row["name"]] = expand(row.get("value", namespace), variables)  # valueFrom: the node's name
    volumes, etc, mounts = folder / pod.name, folder / f"{pod.name}-etc", []
    volumes.mkdir()
    etc.mkdir()
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{pod.address} {pod.name}\n")
    (etc / "resolv.conf").write_text(resolver)
    for mount in container.get("volumeMounts", ()):
        (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == mount["name"]]
        if "configMap" in volume:
            _write_config(volume["configMap"], configs, volumes / mount["name"])
            mounts += [mount["name"], mount["mountPath"]]
    pod.log = folder / f"{pod.name}.log"
    words = [pod.name, str(etc), str(volumes), *mounts, "--"]
    words += [expand(word, variables) for word in container["command"]]
    alone = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with pod.log.open("wb") as log:
        pod.process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *alone, "bash", "-c", START, "start", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"PATH": path, "HOME": "/tmp", **pod.environment, **variables},
        )


def _write_config(volume: Any, configs: Mapping[str, Any], folder: Path) -> None:
    """Write the files of a ConfigMap's volume."""
    config = configs[volume["name"]]
    contents = {name: text.encode() for name, text in config.get("data", {}).items()}
    contents |= {name: base64.b64decode(text) for name, text in config.get("binaryData", {}).items()}
    for item in volume["items"]:
        file = folder / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents[item["key"]])
        file.chmod(volume.get("defaultMode", 0o644))


def wait_until_ready(pods: Sequence[Pod], seconds: float) -> None:
    """Wait until each readiness probe answers; print all logs where one does not."""
    deadline = time.monotonic() + seconds
    waiting = [pod for pod in pods if pod.port]
    while waiting := [pod for pod in waiting if not pod.answers()]:
        ended = [pod.name for pod in pods if pod.process and pod.process.poll() is not None]
        if ended or time.monotonic() > deadline:
            for pod in pods:
                sys.stdout.write(f"--- {pod.name}\n{pod.log.read_text(errors='replace')}\n")
            raise AssertionError(f"ended: {ended}; not ready: {[pod.name for pod in waiting]}")
        time.sleep(0.3)


def behind(service: Any, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods that a Service leads to."""
    return [pod for pod in pods if service["spec"]["selector"].items() <= pod.labels.items()]
