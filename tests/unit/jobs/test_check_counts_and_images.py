"""Adapters, images, plugins and transfers: what is shown to be wrong, and what is not."""

from pathlib import Path

import pytest

from tests.support.foreign_jobs import DIGEST, EFA, SKYPILOT, TRAIN_JOB, checked, findings, pods, severities


@pytest.mark.parametrize(
    ("efa", "env", "nodes", "spec", "expected"),
    [
        (None, "", 1, "", []),  # one node: an inference, or a try
        (None, "", 2, "", ["warning"]),
        (None, "FI_PROVIDER=efa", 2, "", ["error"]),  # it says that it wants EFA
        (None, "FI_PROVIDER=efa", 2, "resourceClaims: [{name: efa, resourceClaimTemplateName: efa}]", []),
        ("4", "", 2, "", ["error"]),
    ],
)
def test_adapters_are_missed_where_there_are_several_nodes(
    tmp_path: Path, efa: str | None, env: str, nodes: int, spec: str, expected: list[str]
) -> None:
    assert severities(tmp_path, "efa.count", job_yaml=pods(env, efa=efa, nodes=nodes, spec=spec)) == expected


def test_the_line_is_that_of_the_fault(tmp_path: Path) -> None:
    text = pods(efa="4").replace("requests: {", "requests:\n            {")
    (finding,) = findings(tmp_path, "efa.count", job_yaml=text)
    assert f"{EFA}: 4" in text.splitlines()[int(finding.where[0].rpartition(":")[2]) - 1]
    assert "28 of 32 lie idle" in finding.message


@pytest.mark.parametrize(
    ("gpus", "efa", "rule", "message"),
    [
        ("9", "32", "gpus.node", "9 GPUs, and p5.48xlarge has 8"),
        ("-1", "32", "gpus.node", "-1 GPUs, and p5.48xlarge has 8"),
        ("8", "-1", "efa.count", f"{EFA}: -1 for 8 GPUs: p5.48xlarge has 32 for 8 GPUs, so no pod is made"),
    ],
)
def test_a_count_that_no_node_has_is_an_error(tmp_path: Path, gpus: str, efa: str, rule: str, message: str) -> None:
    result = checked(tmp_path, job_yaml=pods(gpus=gpus, efa=efa))
    assert [(finding.rule, finding.severity, finding.message) for finding in result.findings] == [
        (rule, "error", message)
    ]


def test_a_pytorchjobs_master_is_one_of_its_nodes(tmp_path: Path) -> None:
    template = "{spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 8}}}]}}"
    roles = f"{{Master: {{template: {template}}}, Worker: {{replicas: 3, template: {template}}}}}"
    result = checked(tmp_path, job_yaml=f"kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs: {roles}\n")
    assert [(part.title, part.node_count) for part in result.groups] == [
        ("PyTorchJob Master", 4),
        ("PyTorchJob Worker", 4),
    ]


def test_a_trainjob_loses_only_adapters_that_there_are(tmp_path: Path) -> None:
    text = TRAIN_JOB.replace(f", {EFA}: 32", "")
    unknown = text.replace("p5.48xlarge", "$(TYPE)")
    assert severities(tmp_path, "trainjob.resources", job_yaml=unknown) == []
    runtime = pods().replace("StatefulSet", "ClusterTrainingRuntime")
    assert severities(tmp_path, "trainjob.resources", job_yaml=f"{unknown}---\n{runtime}") == ["error"]


@pytest.mark.parametrize(
    ("changes", "interfaces"),
    [
        ({"network_tier: best": "disk_size: 100"}, 32),
        ({"best": "BEST"}, 0),
        ({"best": "$(TIER)"}, 0),
        ({"best": "standard", "num_nodes: 2": "num_nodes: 1"}, 0),
        ({"best": "standard", "aws/us-east-1": "k8s"}, 0),
        ({"best": "standard", "aws/us-east-1": "gcp"}, 0),
        ({"best": "standard", "H100:8": "L4:1"}, 0),  # which smaller types have without EFA
        ({"best": "standard, instance_type: g6.8xlarge", "H100:8": "L4:1"}, 1),
        ({"best": "standard", "H100:8": "A100-80GB:8"}, 4),
    ],
)
def test_machines_of_a_usual_tier_get_no_adapter(tmp_path: Path, changes: dict[str, str], interfaces: int) -> None:
    text = SKYPILOT
    for old, new in changes.items():
        text = text.replace(old, new)
    sentence = f"without network_tier: best a machine gets none of its {interfaces} EFA interfaces: NCCL takes TCP"
    found = [finding.message for finding in findings(tmp_path, "skypilot.efa", job_yaml=text)]
    assert found == ([sentence] if interfaces else [])


@pytest.mark.parametrize(
    ("infra", "image", "named"),
    [
        ("aws/us-east-2", "ami-062ddd90fb6f8267a", 0),
        ("oci", "skypilot:gpu-ubuntu-2204", 0),
        ("k8s", "skypilot:gpu-ubuntu-2204", 0),
        ("aws", "docker:registry.example/trainer:1", 1),
        ("k8s", "registry.example/trainer:1", 1),
        ("k8s", "docker:registry.example/trainer:1", 1),
    ],
)
def test_an_image_of_a_machine_has_no_digest(tmp_path: Path, infra: str, image: str, named: int) -> None:
    text = f"resources: {{infra: {infra}, accelerators: H100:8, image_id: '{image}'}}\nrun: torchrun train.py\n"
    sentence = "registry.example/trainer:1 has no digest: its tag can move while the job starts"
    assert [row.message for row in findings(tmp_path, "image.tag", job_yaml=text)] == [sentence] * named


@pytest.mark.parametrize("image", ["${REGISTRY}/trainer:1", "YOUR_REGISTRY/trainer:1", "<account>/trainer:1"])
def test_an_image_that_is_filled_in_later_is_no_tag(tmp_path: Path, image: str) -> None:
    assert checked(tmp_path, job_yaml=pods(image=image, instance="PLACEHOLDER_INSTANCE_TYPE")).findings == ()


def test_the_image_of_a_job_without_gpus_is_no_concern(tmp_path: Path) -> None:
    text = "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: x, image: 'python:3.11-slim'}]}\n"
    assert checked(tmp_path, job_yaml=text).findings == ()


@pytest.mark.parametrize(
    ("value", "image", "expected"),
    [
        ("/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so", DIGEST, ["warning"]),
        ("libnccl-ofi-tuner.so", DIGEST, []),
        ("/dev/shm/libnccl-tuner.so", DIGEST, []),
        ("/opt/x.so", "$(IMAGE)", []),
    ],
)
def test_a_plugin_by_a_path(tmp_path: Path, value: str, image: str, expected: list[str]) -> None:
    text = pods(f"NCCL_TUNER_PLUGIN={value}", image=image)
    assert severities(tmp_path, "plugin.missing", job_yaml=text) == expected
    harmful = severities(tmp_path, "environment.harmful", job_yaml=text)
    assert harmful == (["warning"] if image == "$(IMAGE)" or value.startswith("/dev") else [])


SGLANG = "[python3, -m, sglang.launch_server, --disaggregation-transfer-backend, {}]"


@pytest.mark.parametrize(
    ("env", "command", "efa", "expected"),
    [
        ("", SGLANG.format("mooncake"), "32", ["error"]),
        ("MOONCAKE_PROTOCOL=rdma", SGLANG.format("mooncake"), "32", ["error"]),
        ("MOONCAKE_PROTOCOL=efa", SGLANG.format("mooncake"), "32", []),
        ("MOONCAKE_PROTOCOL=$(PROTOCOL)", SGLANG.format("mooncake"), "32", []),
        ("", '[bash, -c, "export MOONCAKE_PROTOCOL=efa\\nserve --disaggregation-transfer-backend=mooncake"]', "32", []),
        ("", SGLANG.format("nixl"), "32", ["warning"]),
        ("SGLANG_DISAGGREGATION_NIXL_BACKEND=LIBFABRIC", SGLANG.format("nixl"), "32", []),
        ("", """['vllm serve m --kv-transfer-config {"kv_connector":"NixlConnector"}']""", "32", ["warning"]),
        (
            "",
            """['serve {"kv_connector":"NixlConnector", "kv_connector_extra_config":{"backends": ["LIBFABRIC"]}}']""",
            "32",
            [],
        ),
        ("", SGLANG.format("mooncake"), None, []),  # of a network that is not named
        ("", "[python3, -m, sglang.launch_server]", "32", []),
    ],
)
def test_what_moves_the_cache_has_its_setting_for_efa(
    tmp_path: Path, env: str, command: str, efa: str | None, expected: list[str]
) -> None:
    text = pods(env, command=command, efa=efa, instance="p5.48xlarge" if efa else "")
    assert severities(tmp_path, "transfer.fabric", job_yaml=text) == expected


def test_a_setting_that_may_come_from_a_config_map(tmp_path: Path) -> None:
    text = pods(command=SGLANG.format("mooncake")).replace(
        "        env:", "        envFrom: [{configMapRef: {name: a}}]\n        env:"
    )
    assert severities(tmp_path, "transfer.fabric", job_yaml=text) == ["warning"]


@pytest.mark.parametrize(("command", "expected"), [(SGLANG.format("mooncake"), ["error"]), ("[train]", [])])
def test_segments_that_efa_cannot_register(tmp_path: Path, command: str, expected: list[str]) -> None:
    text = pods("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", command=command)
    assert severities(tmp_path, "environment.harmful", job_yaml=text) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ("workingDir: /", ["warning"]),
        ("securityContext: {privileged: true}", []),
        ("securityContext: {capabilities: {add: [IPC_LOCK]}}", []),
    ],
)
def test_memory_that_a_pod_with_erdma_may_lock(tmp_path: Path, container: str, expected: list[str]) -> None:
    text = pods(efa=None).replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 8, aliyun/erdma: 1")
    text = text.replace("        resources:", f"        {container}\n        resources:")
    assert severities(tmp_path, "pod.rdma", job_yaml=text) == expected
