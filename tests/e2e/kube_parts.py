"""Kubernetes' real API server and scheduler, compiled from Debian's source, with etcd.

1.20.2 is the newest that Debian has in source with all that it needs: it knows extended resources, huge pages, affinity
and taints, and says why a pod fits nowhere; it drops fields that came later, resource claims among them.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme

from rdma_images.core import paths
from rdma_images.engine.debian import host_apt
from tests.support import loopback

SUITE = "bookworm"
PACKAGES = ("golang-1.19-go", "golang-1.19-src", "etcd-server")
PROGRAMS = ("kube-apiserver", "kube-scheduler")

needs = pytest.mark.skipif(not shutil.which("apt-get"), reason="Kubernetes is compiled from Debian's source package")


def programs() -> Path:
    """Return the folder of the three programs, kept in the state folder.

    Making them takes 12 minutes of processor time.
    """
    root = paths.state_folder() / "kubernetes"
    ready = root / "bin"
    if all((ready / name).exists() for name in (*PROGRAMS, "etcd")):
        return ready
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "sources", "go/src/k8s.io", "bin"):
        (root / folder).mkdir(parents=True)
    archive = host_apt.host_archives().main
    (root / "sources" / "debian.sources").write_text(
        f"Types: deb deb-src\nURIs: {archive.uri}\nSuites: {SUITE}\nComponents: main\nSigned-By: {archive.signed_by}\n"
    )
    apt = ["apt-get", "-qq", "-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={root}/sources"]
    apt += ["-o", f"Dir::State::Lists={root}/lists", "-o", f"Dir::Cache={root}/cache", "-o", "APT::Sandbox::User=root"]
    for words in (["update"], ["source", "--download-only", "kubernetes"], ["download", *PACKAGES]):
        subprocess.run([*apt, *words], cwd=root, check=True)
    for package in root.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, root / "root"], check=True)
    (tarball,) = root.glob("kubernetes_*.orig.tar.gz")
    source = root / "go" / "src" / "k8s.io" / "kubernetes"
    source.mkdir()
    subprocess.run(["tar", "-xzf", tarball, "--strip-components=1"], cwd=source, check=True)
    _compile(source, root, ready)
    shutil.copy(root / "root" / "usr" / "bin" / "etcd", ready)
    leftovers = [path for path in root.iterdir() if path != ready]
    subprocess.run(["rm", "-rf", *leftovers], check=True)
    return ready


def _compile(source: Path, root: Path, ready: Path) -> None:
    """Compile as Debian does, with vendored dependencies, after one generated file."""
    toolchain = root / "root" / "usr" / "lib" / "go-1.19"
    settings = {
        "GOROOT": toolchain,
        "GOPATH": root / "go",
        "GOCACHE": root / "gocache",
        "GO111MODULE": "off",
        "CGO_ENABLED": 0,
    }
    environment = {**os.environ, **{key: str(value) for key, value in settings.items()}}

    def run(*words: object) -> None:
        subprocess.run(["nice", *map(str, words)], cwd=source, check=True, env=environment)

    generator = root / "openapi-gen"
    run(toolchain / "bin" / "go", "build", "-o", generator, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
    described = sorted(
        {
            str(
                path.parent.relative_to(source / "staging" / "src" if "staging" in path.parts else source.parent.parent)
            )
            for tree in ("staging/src/k8s.io", "pkg", "cmd")
            for path in (source / tree).rglob("*.go")
            if not path.name.endswith("_test.go") and "+k8s:openapi-gen=" in path.read_text(encoding="utf-8")
            if not {"testdata", "code-generator", "sample-apiserver", "sample-controller"} & set(path.parts)
        }
    )
    names = ["-O", "zz_generated.openapi", "-p", "k8s.io/kubernetes/pkg/generated/openapi", "-r", root / "report"]
    run(generator, *names, "-h", "/dev/null", "--output-base", root / "go" / "src", "-i", ",".join(described))
    run(toolchain / "bin" / "go", "build", "-o", ready, *(f"./cmd/{name}" for name in PROGRAMS))


class RunningCluster:
    """The API of a cluster without a kubelet: objects stay as posted, pods are bound."""

    def __init__(self, url: str, authority: Path) -> None:
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False  # a CA bundle of the environment would take the place of ours
        self.session.verify = str(authority)

    def post(self, path: str, body: Any) -> Any:
        return self._checked(self.session.post(f"{self.url}{path}", json=body))

    def get(self, path: str) -> Any:
        return self._checked(self.session.get(f"{self.url}{path}"))

    def patch(self, path: str, body: Any) -> Any:
        """Change some fields of an object."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return self._checked(self.session.patch(f"{self.url}{path}", data=json.dumps(body), headers=headers))

    def node(self, name: str, labels: dict[str, str], allocatable: dict[str, str], taints: Any = ()) -> None:
        """Add a node with what it can give."""
        body = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}}
        self.post("/api/v1/nodes", {**body, "spec": {"taints": list(taints)}})
        status = {"status": {"capacity": allocatable, "allocatable": allocatable}}
        self._checked(
            self.session.patch(
                f"{self.url}/api/v1/nodes/{name}/status",
                data=json.dumps(status),
                headers={"Content-Type": "application/strategic-merge-patch+json"},
            )
        )

    def scheduled(self, template: Any, name: str, seconds: float = 20) -> tuple[str, str]:
        """Return the node that a pod of the template is bound to, or nothing and why not."""
        spec = {key: value for key, value in template["spec"].items() if key != "resourceClaims"}
        metadata = {**template.get("metadata", {}), "name": name}
        self.post("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pod = self.get(f"/api/v1/namespaces/default/pods/{name}")
            if node := pod["spec"].get("nodeName"):
                return node, ""
            for condition in pod["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return "", condition["message"]
            time.sleep(0.1)
        raise TimeoutError(f"the scheduler has not looked at {name} in {seconds} seconds")

    def clear(self) -> None:
        """Remove all pods and nodes."""
        for path in ("/api/v1/namespaces/default/pods", "/api/v1/nodes"):
            self._checked(self.session.delete(f"{self.url}{path}?gracePeriodSeconds=0"))
        until = time.monotonic() + 20
        while self.get("/api/v1/namespaces/default/pods")["items"] and time.monotonic() < until:
            time.sleep(0.1)

    def _checked(self, answer: requests.Response) -> Any:
        assert answer.ok, answer.text
        return answer.json()


def _write_kubeconfig(folder: Path, url: str, token: str) -> None:
    """Write the file by which the programs of a cluster reach its API."""
    client = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": str(folder / "ca.pem")}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(json.dumps(client))


@contextmanager
def cluster(folder: Path) -> Iterator[RunningCluster]:
    """Run the three programs in `folder` while the block runs."""
    ready, api_port = programs(), loopback.free_port()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    served = authority.issue_cert("127.0.0.1")
    served.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    url, token = f"https://127.0.0.1:{api_port}", secrets.token_hex(8)
    _write_kubeconfig(folder, url, token)
    (folder / "tokens.csv").write_text(f"{token},test,test,system:masters\n")
    started = []
    try:
        for name, options in _options(folder, api_port).items():
            words = [str(ready / name), *(f"--{option}={value}" for option, value in options.items())]
            with (folder / f"{name}.log").open("w") as log:
                started.append(subprocess.Popen(words, stdout=log, stderr=log))
        apiserver = RunningCluster(url, folder / "ca.pem")
        apiserver.session.headers["Authorization"] = f"Bearer {token}"
        _wait(apiserver)
        yield apiserver
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _options(folder: Path, api_port: int) -> dict[str, dict[str, object]]:
    """Return the options of the three programs, by name, in the order in which they start."""
    etcd_port, peer_port, scheduler_port = (loopback.free_port() for _ in range(3))
    key = f"{folder}/server.pem"
    return {
        "etcd": {
            "data-dir": f"{folder}/etcd",
            "listen-client-urls": f"http://127.0.0.1:{etcd_port}",
            "advertise-client-urls": f"http://127.0.0.1:{etcd_port}",
            "listen-peer-urls": f"http://127.0.0.1:{peer_port}",
        },
        "kube-apiserver": {
            "etcd-servers": f"http://127.0.0.1:{etcd_port}",
            "bind-address": "127.0.0.1",
            "secure-port": api_port,
            "tls-cert-file": key,
            "tls-private-key-file": key,
            "token-auth-file": f"{folder}/tokens.csv",
            "service-account-issuer": "https://test",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "authorization-mode": "AlwaysAllow",
            # No controller is there to make service accounts, or to take a new node's taint away.
            "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
        },
        "kube-scheduler": {
            "kubeconfig": f"{folder}/kubeconfig",
            "leader-elect": "false",
            "port": 0,
            "secure-port": scheduler_port,
            "cert-dir": f"{folder}/scheduler",
        },
    }


def _wait(running_cluster: RunningCluster, seconds: float = 120) -> None:
    """Wait until the API answers and the default namespace exists."""
    until = time.monotonic() + seconds
    while True:
        try:
            if running_cluster.session.get(f"{running_cluster.url}/api/v1/namespaces/default").ok:
                return
        except requests.ConnectionError:
            pass
        assert time.monotonic() < until, "the API server does not answer"
        time.sleep(0.3)
