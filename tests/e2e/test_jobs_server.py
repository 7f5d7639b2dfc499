"""Started servers over several nodes: the written commands, a real router, a real Ray.

In place of the servers, which need GPUs and models, are programs of their names that take the documented options, meet
the other nodes where they are told to, and answer requests. What they print is seen in the answers.
"""

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from rdma_images.core.paths import PROJECT
from rdma_images.jobs.write import create, jobs_file
from rdma_images.jobs.write.job import JobRequest
from rdma_images.jobs.write.job_settings import Code, JobSettings
from tests.e2e import pods, unpacked
from tests.e2e.server_parts import SGLANG, image
from tests.support import job_parts as jobs

pytestmark = [pytest.mark.e2e, pytest.mark.part("server"), unpacked.needs]

CODE = "/mnt/code"
GUIDE = PROJECT / "docs/guides/serving.md"
VLLM = """#!/usr/bin/env python3
import argparse, http.server, json, socket
import ray
parser = argparse.ArgumentParser()
parser.add_argument("do", choices=["serve"])
parser.add_argument("model")
parser.add_argument("--tensor-parallel-size", type=int, default=1)
parser.add_argument("--pipeline-parallel-size", type=int, default=1)
told = parser.parse_args()
ray.init(address="auto")
stages = [{"GPU": told.tensor_parallel_size}] * told.pipeline_parallel_size
group = ray.util.placement_group(stages, strategy="STRICT_SPREAD")
ray.get(group.ready(), timeout=60)
@ray.remote(num_cpus=0, num_gpus=told.tensor_parallel_size)
def host():
    return socket.gethostname()
def of_stage(number):
    return host.options(placement_group=group, placement_group_bundle_index=number).remote()
hosts = ray.get([of_stage(number) for number in range(len(stages))])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(hosts).encode())
    def do_DELETE(self):
        self.do_GET()
        self.server.shutdown()
http.server.ThreadingHTTPServer(("", 8000), Answer).serve_forever()
"""


def documented(name: str) -> Any:
    """Return a job of the guide on serving, without the target that its reader has made."""
    blocks = re.findall(r"```yaml\n(jobs:.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (job,) = (jobs[name] for block in blocks if name in (jobs := yaml.safe_load(block)["jobs"]))
    return {key: value for key, value in job.items() if key != "target"}


def manifests(request: JobRequest, folder: Path) -> list[Any]:
    """Return the objects that `kubectl apply -k` makes of the job, which is written into `folder`."""
    create.write_job(request, jobs.load_project(), str(folder))
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    objects = [item for name in kustomization["resources"] for item in jobs.documents((folder / name).read_text())]
    for config in kustomization.get("configMapGenerator", ()):
        files = (row.split("=") for row in config["files"])
        data = {key: (folder / path).read_text() for key, path in files}
        objects.append({"kind": "ConfigMap", "metadata": {"name": config["name"]}, "data": data})
    return objects


def request_json(pod: pods.Pod, path: str, body: Any = None, method: str = "") -> Any:
    """Return what a pod answers to a request."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(f"http://{pod.address}:{pod.port}{path}", data, method=method or None)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def wait_for_workers(router: pods.Pod, count: int) -> None:
    """Wait until SGLang's router has found all of its servers healthy."""
    deadline = time.monotonic() + 120
    while sum(worker["is_healthy"] for worker in request_json(router, "/workers")["workers"]) < count:
        assert time.monotonic() < deadline, router.log.read_text()[-4000:]
        time.sleep(0.2)


def test_a_request_goes_through_the_router_prefill_and_decode(tmp_path: Path) -> None:
    """The guide's job: two prefill servers of two nodes, a decode server, SGLang's router."""
    path = image("sglang-router", "sglang-router==0.3.2")
    (tmp_path / "code" / "sglang").mkdir(parents=True)
    (tmp_path / "code" / "sglang" / "launch_server.py").write_text(SGLANG)
    entry = jobs_file.JobEntry.model_validate(
        {
            **documented("sglang"),
            "image": jobs.IMAGE,
            "code": f"{tmp_path}/code:{CODE}",
            "env": {"PYTHONPATH": CODE},
            "preflight": False,  # there is no adapter
        }
    )
    objects = manifests(jobs_file.request(entry, (), "sglang"), tmp_path / "job")
    (service,) = [item for item in objects if item["kind"] == "Service"]
    with pods.running(objects, tmp_path, path) as started:
        pods.wait_until_ready(started, 180)
        (router,) = pods.behind(service, started)
        assert service["spec"]["ports"] == [{"port": router.port}]
        wait_for_workers(router, 3)
        sampling = {"sampling_params": {"max_new_tokens": 1}}
        answers = [request_json(router, "/generate", {"text": "a question", **sampling}) for _ in range(12)]
        (decode,) = [pod for pod in started if pod.name.startswith("sglang-decode")]
        prefills = [pod for pod in started if pod.name in ("sglang-prefill-0", "sglang-prefill-1")]
        assert {answer["meta_info"]["server"] for answer in answers} == {decode.name}
        assert {answer["meta_info"]["bootstrap_host"] for answer in answers} <= {
            f"{pod.name}.sglang-prefill.default.svc" for pod in prefills
        }
        states = [request_json(pod, "/state") for pod in prefills]
        assert [(state["mode"], state["ranks"], state["tp"]) for state in states] == [("prefill", [0, 1], 16)] * 2
        assert sum(state["asked"] for state in states) == 12
        assert {state["backend"] for state in [*states, request_json(decode, "/state")]} == {"LIBFABRIC"}


@pytest.mark.exhaustive  # over a minute, in which a worker notices that its head is gone, and 300 MB of Ray
def test_a_server_on_ray_has_both_nodes_and_ends_on_both(tmp_path: Path) -> None:
    """The command of the guide for vLLM, with a real Ray."""
    path = image("ray", "ray==2.60.0")
    (tmp_path / "code").mkdir()
    vllm = tmp_path / "code" / "vllm"
    vllm.write_text(VLLM)
    command = ("vllm", "serve", "MODEL", "--tensor-parallel-size", "8", "--pipeline-parallel-size", "2")
    assert " ".join(command) in GUIDE.read_text(encoding="utf-8")
    settings = JobSettings(launch="ray", code=Code(str(tmp_path / "code"), CODE))
    usual = {"name": "vllm", "command": command, "settings": settings, "preflight": False}
    request = jobs.job_request("leaderworkerset", "efa", "torchrun", **usual)
    with pods.running(manifests(request, tmp_path / "job"), tmp_path, f"{CODE}:{path}") as started:
        pods.wait_until_ready(started, 300)
        leader, worker = started
        assert sorted(request_json(leader, "/")) == ["vllm-0", "vllm-0-1"]
        request_json(leader, "/", method="DELETE")
        for pod in (leader, worker):
            assert pod.process
            assert pod.process.wait(180) == 0, pod.log.read_text()
