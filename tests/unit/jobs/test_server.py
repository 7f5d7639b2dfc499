"""A server in parts: prefill, decode and a router, each with its own nodes, GPUs and adapters."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from rich.console import Console

from rdma_images.core import paths
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.jobs.write import job_folder, job_tables, jobs_file
from rdma_images.jobs.write.job_settings import JobSettings
from rdma_images.jobs.write.jobs_file import RoleRequest
from tests.support import job_parts as jobs

FABRICS = ("efa", "erdma")
RESOURCE = {"efa": "vpc.amazonaws.com/efa", "erdma": "aliyun/erdma"}


def manifests(kind: str, fabric: str = "efa", **changes: Any) -> dict[str, Any]:
    """Return the objects of a kind that a server in parts has, by name."""
    texts = jobs.files(jobs.server(fabric, **changes))
    objects = [part for name, text in texts.items() if name.endswith(".yaml") for part in jobs.documents(text)]
    return {part["metadata"]["name"]: part for part in objects if part["kind"] == kind and "metadata" in part}


def pods(server_set: Any) -> list[Any]:
    return [server_set["spec"]["leaderWorkerTemplate"]["workerTemplate"]]


@pytest.mark.parametrize(("fabric", "adapters"), [("efa", {"prefill": 32, "decode": 16}), ("erdma", {})])
def test_each_role_has_its_own_nodes_gpus_and_adapters(fabric: str, adapters: dict[str, int]) -> None:
    sets = manifests("LeaderWorkerSet", fabric)
    assert {
        name: (item["spec"]["replicas"], item["spec"]["leaderWorkerTemplate"]["size"]) for name, item in sets.items()
    } == {"llm-prefill": (2, 2), "llm-decode": (1, 1)}
    for role, gpus in (("prefill", 8), ("decode", 4)):
        for pod in pods(sets[f"llm-{role}"]):
            (container,) = pod["spec"]["containers"]
            limits = container["resources"]["limits"]
            assert (limits["nvidia.com/gpu"], limits[RESOURCE[fabric]]) == (gpus, adapters.get(role, 1))
            assert f"--gpus {gpus} " in container["command"][2]


def test_all_roles_are_in_one_zone_and_never_two_pods_on_a_node() -> None:
    for server_set in manifests("LeaderWorkerSet").values():
        for pod in pods(server_set):
            for rules in (pod["spec"]["affinity"]["podAffinity"], pod["spec"]["affinity"]["podAntiAffinity"]):
                for term in rules["requiredDuringSchedulingIgnoredDuringExecution"]:
                    assert term["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
                    assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "llm"


def test_the_router_knows_every_server_and_has_neither_gpu_nor_fabric() -> None:
    (router,) = manifests("Deployment").values()
    pod = router["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    variables = {row["name"]: row["value"] for row in container["env"]}
    sets = manifests("LeaderWorkerSet")
    for role in ("prefill", "decode"):
        urls = variables[f"{role.upper()}_URLS"].split()
        assert len(urls) == sets[f"llm-{role}"]["spec"]["replicas"]
        # A leader's name in the headless Service that the controller makes: <set>-<number>.<set>.
        assert urls[0] == f"http://llm-{role}-0.llm-{role}.default.svc:8000"
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert "rdma-preflight" not in container["command"][2]
    (service,) = manifests("Service").values()
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_the_readme_says_what_the_routers_file_is_and_not_that_job_run_follows_servers() -> None:
    readme = jobs.files(jobs.server())["README.md"]
    assert "- `router.yaml`: a Deployment and a Service of the part without GPUs\n" in readme
    assert "- `prefill.yaml`: LeaderWorkerSet v1, a server" in readme
    assert "- `job.json`: each decision with its reason and source\n" in readme
    assert "`invoke job.run` reads it\n" in jobs.files(jobs.job("slurm", "efa", "torchrun"))["README.md"]


def test_many_servers_make_no_long_line() -> None:
    roles = {**jobs.ROLES, "prefill": jobs.ROLES["prefill"].model_copy(update={"replicas": 12})}
    texts = jobs.files(jobs.server(roles=roles))
    assert max(len(line) for name, text in texts.items() if name.endswith(".yaml") for line in text.splitlines()) <= 200
    (container,) = jobs.documents(texts["router.yaml"])[0]["spec"]["template"]["spec"]["containers"]
    urls = {row["name"]: row["value"] for row in container["env"]}["PREFILL_URLS"]
    assert urls == " ".join(f"http://llm-prefill-{number}.llm-prefill.default.svc:8000" for number in range(12))


def test_without_a_router_each_role_has_a_service() -> None:
    roles = {name: part for name, part in jobs.ROLES.items() if name != "router"}
    services = manifests("Service", roles=roles)
    assert set(services) == {"llm-prefill-server", "llm-decode-server"}
    assert services["llm-decode-server"]["spec"]["selector"]["leaderworkerset.sigs.k8s.io/name"] == "llm-decode"


def test_the_variables_of_a_role_are_its_own() -> None:
    sets = manifests("LeaderWorkerSet", settings=JobSettings(env={"KV": "any", "SHARED": "1"}))
    values = {}
    for name, server_set in sets.items():
        (container,) = pods(server_set)[0]["spec"]["containers"]
        values[name] = {row["name"]: row.get("value") for row in container["env"]}
    assert values["llm-decode"]["KV"] == "decode"
    assert values["llm-prefill"]["KV"] == "any"
    assert values["llm-decode"]["SHARED"] == values["llm-prefill"]["SHARED"] == "1"


@pytest.mark.parametrize("fabric", FABRICS)
def test_kubernetes_takes_all_of_it(fabric: str, tmp_path: Path) -> None:
    texts = jobs.files(jobs.server(fabric, settings=jobs.everything("leaderworkerset", tmp_path)))
    assert {"prefill.yaml", "decode.yaml", "router.yaml", "kustomization.yaml"} <= set(texts)
    documents = [part for name, text in texts.items() if name.endswith(".yaml") for part in jobs.documents(text)]
    objects = [part for part in documents if part["kind"] != "Kustomization"]
    assert len({(item["kind"], item["metadata"]["name"]) for item in objects}) == len(objects)
    for item in objects:
        if item["kind"] != "LeaderWorkerSet":
            kubernetes_validate.validate(item, "1.36", strict=True)
        for template in jobs.templates(item):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
            kubernetes_validate.validate(pod, "1.36", strict=True)


def test_the_job_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    job = jobs.server()
    job_folder.write(tmp_path / "job", jobs.files(job))
    read = job_folder.load(tmp_path / "job")
    assert read == job
    assert read.ranks == sum(role.ranks for role in job.roles) == 20
    assert {value.name for value in read.values} >= {"prefill.gpus", "decode.gpus", "router.replicas", "PREFILL_URLS"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 2}, "the job has roles, each with its own nodes, gpus, replicas and command"),
        ({"gpus": 4}, "the job has roles"),
        ({"command": ("serve",)}, "the job has roles"),
        ({"roles": {"router": RoleRequest(command=("route",), gpus=0)}}, "no role of the job has GPUs"),
        (
            {"roles": {"decode": RoleRequest(command=("serve",), gpus=9, launch="plain")}},
            "the instance type has 8 GPUs",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(message)):
        jobs.server(**changes)


@pytest.mark.parametrize("launcher", ["trainjob", "docker", "sagemaker"])
def test_other_launchers_refuse_roles_by_name(launcher: str) -> None:
    with pytest.raises(RefusedError, match=rf"launcher {launcher} has no roles .*leaderworkerset"):
        jobs.server(launcher=launcher)


def run_part(task: str, node: int, router_flag: Path) -> subprocess.CompletedProcess[str]:
    """Return what SkyPilot's task does on one of five nodes; the first one's servers wait for its router's flag."""
    addresses = "\n".join(f"127.0.1.{host}" for host in range(5))
    variables = {"SKYPILOT_NODE_RANK": str(node), "SKYPILOT_NODE_IPS": addresses, "FLAG": str(router_flag)}
    script = ["bash", "-c", yaml.safe_load(task)["run"]]
    return subprocess.run(script, capture_output=True, text=True, env={**os.environ, **variables}, timeout=30)


def test_each_node_of_a_job_runs_its_part(tmp_path: Path) -> None:
    told = """echo "$0 $NODE_RANK $MASTER_ADDR $PREFILL_URLS$DECODE_URLS"
        [ "$0" = router ] && touch "$FLAG" && exec sleep 60; until [ -e "$FLAG" ]; do sleep 0.1; done; exit 3"""
    roles = {
        "prefill": RoleRequest(command=("sh", "-c", told, "prefill"), nodes=2, replicas=2, launch="plain"),
        "decode": RoleRequest(command=("sh", "-c", told, "decode"), gpus=4, launch="plain", env={"KV": "it's"}),
        "router": RoleRequest(command=("sh", "-c", told, "router"), gpus=0, ready="/ready"),
    }
    task = jobs.files(jobs.server(launcher="skypilot", preflight=False, roles=roles))["job.yaml"]
    urls = "http://127.0.1.0:8001 http://127.0.1.2:8001 http://127.0.1.4:8001"
    prefills = ["prefill 0 127.0.1.0", "prefill 1 127.0.1.0", "prefill 0 127.0.1.2", "prefill 1 127.0.1.2"]
    for node, words in enumerate([*prefills, "decode 0 127.0.1.4"]):
        done = run_part(task, node, tmp_path / "router")
        expected = [f"{words} {urls}"] + (["router 0 127.0.1.0 " + urls] if node == 0 else [])
        assert sorted(map(str.rstrip, done.stdout.splitlines())) == expected
        role = words.partition(" ")[0]
        assert f"{role} on 127.0.1.{node} has ended, and the server with it: exit code 3" in done.stderr
        assert done.returncode == 3


@pytest.mark.parametrize("launcher", ["slurm", "skypilot"])
def test_one_job_has_all_parts(launcher: str) -> None:
    job = jobs.server(launcher=launcher, parameters={"port": "9000"})
    assert (job.nodes, job.per_node.gpus, job.parameters["port"]) == (5, 8, "9000")
    assert [role.parameters["port"] for role in job.roles] == ["9001", "9001", "9000"]
    written = jobs.files(job)
    (text,) = (text for name, text in written.items() if name in ("job.sbatch", "job.yaml"))
    assert "export KV=decode" in text
    assert "2 prefill, 1 decode, 1 router" in written["README.md"]
    if launcher == "skypilot":
        task = yaml.safe_load(text)
        assert task["service"]["replicas"] == 1
        assert (task["num_nodes"], task["resources"]["ports"]) == (5, 9000)


def test_jobs_yaml_has_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    text = (
        "jobs:\n  llm:\n    launcher: leaderworkerset\n    instance: p5.48xlarge\n    roles:\n"
        "      prefill: {{command: [sh, -c, x], launch: plain, replicas: 2, {}: 4}}\n"
        "      router: {{command: route, gpus: 0}}\n"
    )
    (tmp_path / "jobs.yaml").write_text(text.format("gpus"))
    request = jobs_file.request(jobs_file.load("llm"), (), "llm")
    assert request.roles["prefill"] == RoleRequest(command=("sh", "-c", "x"), gpus=4, replicas=2, launch="plain")
    assert request.roles["router"] == RoleRequest(command=("route",), gpus=0)
    (tmp_path / "jobs.yaml").write_text(text.format("gpu"))
    with pytest.raises(RdmaImagesError, match=r"jobs.yaml:6: .*gpu.*\bgpus\b"):
        jobs_file.load("llm")


def test_skypilot_writes_a_service_of_skyserve() -> None:
    job = jobs.job("skypilot", "efa", "torchrun", parameters={"port": "30000", "replicas": "2"})
    written = jobs.files(job)
    task = yaml.safe_load(written["job.yaml"])
    assert task["service"] == {"readiness_probe": "/health", "replicas": 2}
    assert (task["resources"]["ports"], task["num_nodes"]) == (30000, 2)
    for command in ("serve up -n", "serve status", "serve logs", "serve down"):
        assert f"sky {command} {job.name}" in written["README.md"]


@pytest.mark.parametrize(
    ("parameters", "restarts", "message"),
    [({"replicas": "2"}, 0, "no port is named"), ({"port": "8000"}, 3, "starts a failed server again itself")],
)
def test_a_service_that_cannot_be_is_refused(parameters: dict[str, str], restarts: int, message: str) -> None:
    job = jobs.job("skypilot", "efa", "torchrun", parameters=parameters, settings=JobSettings(restarts=restarts))
    with pytest.raises(RefusedError, match=message):
        jobs.files(job)


def test_a_part_without_gpus_shows_no_counts() -> None:
    sources = {value.name: value.source for value in jobs.server().values}
    assert {"decode.gpus", "decode.memory", "decode.vpc.amazonaws.com/efa"} <= sources.keys()
    assert not {"router.gpus", "router.memory", "router.vpc.amazonaws.com/efa"} & sources.keys()
    assert sources["prefill.nodes"] == sources["prefill.replicas"] == sources["router.nodes"] == "roles"


def test_what_follows_a_server_is_its_readme(tmp_path: Path) -> None:
    console = Console(width=200)
    for job, expected in ((jobs.server(), "README.md"), (jobs.job("slurm", "efa", "torchrun"), "job.run")):
        with console.capture() as capture:
            console.print(job_tables.job_table(job, tmp_path))
        assert expected in capture.get().rpartition("next: ")[2]


def test_the_table_shows_a_folder_of_the_project_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    folder_path = tmp_path / "build" / "jobs" / "x"
    folder_path.mkdir(parents=True)
    console = Console(width=200)
    with console.capture() as capture:
        console.print(job_tables.job_table(jobs.job("slurm", "efa", "torchrun"), folder_path))
    assert "\nbuild/jobs/x " in capture.get()
    assert capture.get().rstrip().endswith("next: invoke job.run build/jobs/x")
