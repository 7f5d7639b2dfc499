"""A model served with prefill and decode apart: the commands, by the target's packages and its fabric."""

import re
from dataclasses import replace
from itertools import product
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import PROJECT
from rdma_images.inputs import target_options
from rdma_images.jobs.write import create, jobs_file
from rdma_images.jobs.write.job import Job
from rdma_images.jobs.write.job_settings import JobSettings
from rdma_images.jobs.write.jobs_file import RoleRequest
from tests.support import job_parts as jobs

INSTANCE = {"efa": "p5en.48xlarge", "erdma": "ecs.ebmgn8v.48xlarge"}
TARGETS = ("efa-vllm", "erdma-vllm", "efa-sglang", "erdma-sglang")


def serve(target: str, **changes: Any) -> Job:
    """Return the job that serves a model with a target."""
    fabric = target.partition("-")[0]
    usual = {"target": target, "instance": INSTANCE[fabric], "nodes": 1, "command": (), "name": "serve", "model": "/m"}
    return jobs.job(changes.pop("launcher", "leaderworkerset"), fabric, "torchrun", **{**usual, **changes})


def commands(job: Job) -> dict[str, str]:
    return {role.role: " ".join(role.command) for role in job.roles}


@pytest.mark.parametrize(
    ("target", "prefill", "decode", "router"),
    [
        ("efa-vllm", '"backends": ["LIBFABRIC"]', '"backends": ["LIBFABRIC"]', "--kv-connector nixl"),
        ("erdma-vllm", '"kv_role": "kv_producer"', '"kv_role": "kv_consumer"', "--prefill %s 8998 "),
        ("efa-sglang", "prefill --disaggregation-transfer-backend nixl", "decode --disag", "--pd-disaggregation"),
        ("erdma-sglang", "--disaggregation-transfer-backend mooncake", "decode --disag", "--prefill %s 8998 "),
    ],
)
def test_each_role_has_the_settings_of_its_fabric(target: str, prefill: str, decode: str, router: str) -> None:
    job = serve(target)
    words = commands(job)
    assert prefill in words["prefill"]
    assert decode in words["decode"]
    assert router in words["router"]
    assert "$PREFILL_URLS" in words["router"]
    assert "$DECODE_URLS" in words["router"]
    assert (job.nodes, [role.per_node.gpus for role in job.roles]) == (2, [8, 8, 0])
    assert (target == "efa-sglang") == ("SGLANG_DISAGGREGATION_NIXL_BACKEND" in job.roles[0].environment)
    assert (target == "efa-vllm") == ("VLLM_NIXL_SIDE_CHANNEL_HOST" in words["prefill"])
    assert [value.name for value in job.values][-1] == "transfer"


@pytest.mark.parametrize("target", TARGETS)
def test_kubernetes_takes_the_files(target: str) -> None:
    texts = jobs.files(serve(target))
    assert {"prefill.yaml", "decode.yaml", "router.yaml"} <= set(texts)
    for name, text in texts.items():
        for item in jobs.documents(text) if name.endswith(".yaml") else ():
            if item["kind"] not in ("LeaderWorkerSet", "Kustomization"):
                kubernetes_validate.validate(item, "1.36", strict=True)
            for template in jobs.templates(item):
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
                kubernetes_validate.validate(pod, "1.36", strict=True)
        if name != "job.json":
            assert max(map(len, text.splitlines())) <= 200, name
    for role in ("prefill", "decode"):
        assert "rdma-preflight --require" in texts[f"{role}.yaml"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_router_is_ready_once_its_servers_are(target: str) -> None:
    (router,) = jobs.documents(jobs.files(serve(target))["router.yaml"])[:1]
    (container,) = router["spec"]["template"]["spec"]["containers"]
    # vLLM's opens its port then.
    by_path, by_port = {"httpGet": {"path": "/readiness", "port": 8000}}, {"tcpSocket": {"port": 8000}}
    expected = by_path if "sglang" in target else by_port
    assert container["readinessProbe"] == expected


ON_NODES = [*product(["slurm"], TARGETS), *product(["skypilot"], ["efa-vllm", "efa-sglang"])]


@pytest.mark.parametrize(("launcher", "target"), ON_NODES)
def test_a_job_on_two_nodes_serves_a_model(launcher: str, target: str) -> None:
    job = serve(target, launcher=launcher)
    assert job.nodes == 2
    words = commands(job)
    assert words["router"].find("--port 8000") > 0
    assert words["prefill"].find("--port 8001") > 0
    for name, text in jobs.files(job).items():
        if name != "job.json":
            assert max(map(len, text.splitlines())) <= 200, name
            assert len(text.splitlines()) <= 150, name


def test_what_the_user_says_wins() -> None:
    name = "SGLANG_DISAGGREGATION_NIXL_BACKEND"
    roles = {
        "prefill": RoleRequest(nodes=2, replicas=3, arguments=("--tp", "4")),
        "decode": RoleRequest(command=("mine",), launch="plain"),
    }
    job = serve("efa-sglang", roles=roles, settings=JobSettings(env={name: "UCX"}), parameters={"port": "30000"})
    prefill, decode, router = job.roles
    assert (prefill.nodes, prefill.parameters["replicas"], prefill.command[-2:]) == (2, "3", ("--tp", "4"))
    assert prefill.command[prefill.command.index("--tp") + 1] == "16"
    assert "--nnodes" in prefill.command[2]
    assert prefill.environment[name] == "UCX"
    assert decode.command == ("mine",)
    assert router.command[-1] == "30000"


@pytest.mark.parametrize(
    ("target", "changes", "message"),
    [
        ("efa-pytorch", {}, "efa-pytorch serves no model"),
        ("efa-vllm", {"roles": {"decode": RoleRequest(nodes=2)}}, "role decode: nodes 2, and no command is known"),
        ("efa-vllm", {"roles": {"encode": RoleRequest()}}, "role encode: it has no command"),
        ("efa-vllm", {"nodes": 2}, "the job has roles, each with its own nodes"),
        ("efa-vllm", {"instance": INSTANCE["erdma"]}, "choose another --instance"),
        ("efa-vllm", {"launcher": "docker"}, "launcher docker has no roles"),
        ("", {}, "the job has a model, and no target says what serves it"),
    ],
)
def test_what_cannot_be_served_is_refused(target: str, changes: dict[str, Any], message: str) -> None:
    request = jobs.job_request(
        changes.pop("launcher", "leaderworkerset"),
        "efa",
        "torchrun",
        **{"target": target, "instance": INSTANCE["efa"], "nodes": 1, "command": (), "model": "/m", **changes},
    )
    with pytest.raises(RefusedError, match=re.escape(message)):
        create.decide_any_job(request, jobs.load_project())


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("router", "efa-vllm has no vllm-router"),
        ("nixl", "efa-vllm has no nixl, by which vllm moves KV caches over EFA"),
    ],
)
def test_a_part_that_the_image_lacks_is_refused(part: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = jobs.planned_image("efa-vllm")
    components = {name: row for name, row in image.components.items() if name != part}
    lacking = replace(image, components=components, python_packages=() if part == "router" else image.python_packages)
    monkeypatch.setattr(target_options, "chosen_images", lambda *_: (lacking,))
    with pytest.raises(RefusedError, match=message):
        serve("efa-vllm")


def test_the_example_serves_a_model() -> None:
    entry = yaml.safe_load((PROJECT / "jobs.example.yaml").read_text())["jobs"]["serve"]
    entry = jobs_file.JobEntry.model_validate({**entry, "image": jobs.IMAGE})
    job = create.decide_any_job(jobs_file.request(entry, (), "serve"), jobs.load_project())
    assert commands(job).keys() == {"prefill", "decode", "router"}
