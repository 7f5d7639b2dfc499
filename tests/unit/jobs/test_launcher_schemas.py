"""Jobs against the schemas of those that take them: the operators' own, eksctl's, and the AWS SDK's model."""

import copy
import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import botocore.session
import jsonschema
import pytest
import yaml
from botocore.model import StringShape
from botocore.validate import ParamValidator

from rdma_images.core.errors import RefusedError
from rdma_images.jobs.write.job_settings import JobSettings
from tests.support import job_parts as jobs
from tests.support import upstream

OPERATORS = {
    "MPIJob": [("kubeflow/mpi-operator", "v0.8.0", "manifests/base/kubeflow.org_mpijobs.yaml", "v2beta1")],
    "PyTorchJob": [("kubeflow/training-operator", "v1.9.0", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml", "v1")],
    "LeaderWorkerSet": [
        ("kubernetes-sigs/lws", "v0.9.0", "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml", "v1")
    ],
    "TrainJob": [
        ("kubeflow/trainer", revision, "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml", "v1alpha1")
        for revision in ("v2.2.1", "v2.3.0")
    ],
    "TrainingRuntime": [
        ("kubeflow/trainer", revision, "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml", "v1alpha1")
        for revision in ("v2.2.1", "v2.3.0")
    ],
}


def objects(launcher: str, fabric: str, starter: str, **changes: Any) -> list[Any]:
    texts = jobs.files(jobs.job(launcher, fabric, starter, **changes))
    return [document for name, text in texts.items() if name.endswith(".yaml") for document in jobs.documents(text)]


WITH_OPERATORS = ("mpijob", "trainjob", "pytorchjob", "leaderworkerset")
ON_OPERATORS = [combination for combination in jobs.combinations() if combination[0] in WITH_OPERATORS]


@upstream.needs_repositories
@pytest.mark.parametrize(("launcher", "fabric", "starter"), ON_OPERATORS)
@pytest.mark.parametrize("parameters", [{}, {"exclude": "n1,n2"}, {"devices": "dra"}])
def test_the_operators_take_them(launcher: str, fabric: str, starter: str, parameters: dict[str, str]) -> None:
    job_parameters = {key: value for key, value in parameters.items() if fabric == "efa" or key != "devices"}
    for manifest in objects(launcher, fabric, starter, parameters=job_parameters):
        for path in OPERATORS.get(manifest["kind"], ()):
            assert upstream.problems(upstream.resource(*path), manifest) == []


@upstream.needs_repositories
@pytest.mark.parametrize(("launcher", "fabric", "starter"), ON_OPERATORS)
def test_the_operators_take_all_that_a_job_can_be_told(
    launcher: str, fabric: str, starter: str, tmp_path: Path
) -> None:
    for manifest in objects(launcher, fabric, starter, settings=jobs.everything(launcher, tmp_path)):
        for path in OPERATORS.get(manifest["kind"], ()):
            assert upstream.problems(upstream.resource(*path), manifest) == []


@upstream.needs_repositories
@pytest.mark.parametrize("parameters", [{}, {"devices": "dra"}])
def test_the_operators_take_a_server_in_parts(parameters: dict[str, str], tmp_path: Path) -> None:
    settings = jobs.everything("leaderworkerset", tmp_path)
    texts = jobs.files(jobs.server(parameters=parameters, settings=settings))
    manifests = [document for role in jobs.ROLES for document in jobs.documents(texts[f"{role}.yaml"])]
    sets = [manifest for manifest in manifests if manifest["kind"] == "LeaderWorkerSet"]
    assert len(sets) == 2
    for manifest in sets:
        for path in OPERATORS["LeaderWorkerSet"]:
            assert upstream.problems(upstream.resource(*path), manifest) == []


@upstream.needs_repositories
@pytest.mark.parametrize("kind", OPERATORS)
def test_the_schemas_refuse_what_is_wrong(kind: str) -> None:
    """Shows that the schemas can refuse."""
    launcher = "trainjob" if kind == "TrainingRuntime" else kind.lower()
    starter = "mpirun" if launcher == "mpijob" else "torchrun"
    good = next(manifest for manifest in objects(launcher, "efa", starter) if manifest["kind"] == kind)
    for path in OPERATORS[kind]:
        wrong = copy.deepcopy(good)
        wrong["spec"]["nodez"] = 2
        assert upstream.problems(upstream.resource(*path), wrong)


@upstream.needs_repositories
@pytest.mark.parametrize("launcher", WITH_OPERATORS)
def test_kueue_takes_the_queue_of_what_it_admits(launcher: str) -> None:
    """Its webhook is called for the kind and version, reads this label, and refuses nothing of a job for a queue."""
    starter = "mpirun" if launcher == "mpijob" else "torchrun"
    kueue = ("kubernetes-sigs/kueue", "v0.19.2")
    label = re.search(r'QueueLabel += "(.+)"', upstream.text(*kueue, "pkg/controller/constants/constants.go"))
    admission = yaml.safe_load_all(upstream.text(*kueue, "config/components/webhook/manifests.yaml"))
    called = {
        (group, version, resource)
        for configuration in admission
        if configuration["kind"] == "ValidatingWebhookConfiguration"
        for webhook in configuration["webhooks"]
        for row in webhook["rules"]
        for group, version, resource in product(row["apiGroups"], row["apiVersions"], row["resources"])
    }
    assert label
    queued = [
        manifest
        for manifest in objects(launcher, "efa", starter, settings=JobSettings(queue="team"))
        if manifest["metadata"].get("labels", {}).get(label[1]) == "team"
    ]
    ((group, version, kind),) = ((*manifest["apiVersion"].split("/"), manifest["kind"]) for manifest in queued)
    assert (group, version, f"{kind.lower()}s") in called


@pytest.mark.parametrize(("starter", "of_runtime"), [("mpirun", 1), ("torchrun", 2)])
def test_a_training_of_mpirun_has_one_launcher(starter: str, of_runtime: int) -> None:
    """The trainer takes the runtime's number for the part with the label trainer, which is the launcher then.

    It takes the TrainJob's for the nodes: trainer, pkg/runtime/core/trainingruntime.go and plugins/mpi, v2.3.0.
    """
    written = jobs.files(jobs.job("trainjob", "efa", starter))
    runtime, job = (yaml.safe_load(written[f"{name}.yaml"])["spec"] for name in ("runtime", "trainjob"))
    assert (runtime["mlPolicy"]["numNodes"], job["trainer"]["numNodes"]) == (of_runtime, 2)


@upstream.needs_repositories
@pytest.mark.parametrize("revision", ["v2.2.1", "v2.3.0"])
def test_a_training_asks_for_nothing_beside_its_runtime(revision: str) -> None:
    """2.2 puts a TrainJob's resourcesPerNode in the place of the runtime's, 2.3 drops claims: it has none to put."""
    source = upstream.text("kubeflow/trainer", revision, "pkg/runtime/core/trainingruntime.go")
    assert ("MergeResourceRequirements" in source) == (revision == "v2.3.0")
    for starter in ("mpirun", "torchrun"):
        (train_job,) = [manifest for manifest in objects("trainjob", "efa", starter) if manifest["kind"] == "TrainJob"]
        assert "resourcesPerNode" not in train_job["spec"]["trainer"]


@upstream.needs_repositories
@pytest.mark.parametrize(
    ("instance", "parameters"),
    [
        ("p5.48xlarge", {}),
        ("p5.48xlarge", {"capacity-reservation": "cr-0a"}),
        ("p5.48xlarge", {"capacity-block": "cr-0a"}),
        ("p6-b300.48xlarge", {}),
        ("p6-b300.48xlarge", {"security-groups": "sg-0a", "launch-template": "lt-0a"}),
    ],
)
def test_eksctl_takes_the_cluster(instance: str, parameters: dict[str, str]) -> None:
    schema = json.loads(upstream.text("eksctl-io/eksctl", "HEAD", "pkg/apis/eksctl.io/v1alpha5/assets/schema.json"))
    cluster = jobs.cluster_files(instance, **parameters)
    (document,) = jobs.documents(cluster["cluster.yaml"])
    jsonschema.Draft7Validator(schema).validate(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({**document, "nodeGroupz": []})


@upstream.needs_repositories
def test_a_node_group_in_a_capacity_block_is_as_in_the_example_of_aws() -> None:
    path = "1.architectures/4.amazon-eks/eks-p5-capacity-block.yaml"
    (example,) = yaml.safe_load(upstream.text("awslabs/awsome-distributed-ai", "HEAD", path))["managedNodeGroups"]
    (document,) = jobs.documents(jobs.cluster_files("p5.48xlarge", **{"capacity-block": "cr-0a"})["cluster.yaml"])
    (group,) = document["managedNodeGroups"]
    reservation = example["capacityReservation"]["capacityReservationTarget"]
    reservation["capacityReservationID"] = "cr-0a"
    # Its name and size, and what pods may do with AWS's storage and logs, are another user's.
    ours = {"name", "desiredCapacity", "maxSize", "iam"}
    assert {key: group.get(key) for key in example.keys() - ours} == {
        key: value for key, value in example.items() if key not in ours
    }


@upstream.needs_repositories
def test_arena_has_every_flag(tmp_path: Path) -> None:
    source = "".join(
        upstream.text("kubeflow/arena", "HEAD", f"pkg/argsbuilder/{name}.go")
        for name in ("submit", "submit_pytorchjob", "submit_sync_code")
    )
    job = jobs.job("arena", "erdma", "torchrun", settings=jobs.everything("arena", tmp_path))
    script = jobs.files(job)["submit.sh"]
    for flag in re.findall(r"^  --([\w-]+)", script.partition("exec arena")[2], re.MULTILINE):
        assert flag == "namespace" or f'"{flag}"' in source


def test_the_network_cards_of_a_launch_template() -> None:
    data = json.loads(jobs.cluster_files("p6-b300.48xlarge", **{"security-groups": "sg-0a"})["launch-template.json"])
    check_request("ec2", "CreateLaunchTemplate", data)
    interfaces = data["LaunchTemplateData"]["NetworkInterfaces"]
    assert interfaces[0] == {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface", "Groups": ["sg-0a"]}
    assert {interface["InterfaceType"] for interface in interfaces[1:]} == {"efa-only"}
    assert [interface["NetworkCardIndex"] for interface in interfaces[1:]] == list(range(1, 17))
    template = {"security-groups": "sg-0a", "launch-template": "lt-0a"}
    p5 = json.loads(jobs.cluster_files("p5.48xlarge", **template)["launch-template.json"])
    assert [interface["InterfaceType"] for interface in p5["LaunchTemplateData"]["NetworkInterfaces"]] == [
        "interface"
    ] + ["efa-only"] * 32


def check_request(service: str, operation: str, request: dict[str, Any]) -> None:
    """Require that the SDK's model takes the request: keys and types by botocore, and enums, patterns and lengths."""
    model = botocore.session.get_session().get_service_model(service)
    shape = model.operation_model(operation).input_shape
    assert shape
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    assert list(against(shape, request, operation)) == []


def against(shape: Any, value: Any, path: str) -> Iterator[str]:
    """Yield what the shape's enum, pattern and bounds say against the value, with its place."""
    if shape.type_name == "structure":
        for key, inner in value.items():
            yield from against(shape.members[key], inner, f"{path}.{key}")
    elif shape.type_name == "list":
        yield from bounds(shape, len(value), path)
        for inner in value:
            yield from against(shape.member, inner, f"{path}[]")
    elif shape.type_name == "map":
        yield from bounds(shape, len(value), path)
        for key, inner in value.items():
            yield from against(shape.key, key, f"{path}.{key}")
            yield from against(shape.value, inner, f"{path}.{key}")
    elif shape.type_name == "string":
        yield from bounds(shape, len(value), path)
        if shape.enum and value not in shape.enum:
            yield f"{path}: {value} is none of {shape.enum}"
        pattern = shape.metadata.get("pattern")
        if pattern and not re.fullmatch(pattern, value):
            yield f"{path}: {value} is not of the form {pattern}"
    else:
        yield from bounds(shape, value, path)


def bounds(shape: Any, size: float, path: str) -> Iterator[str]:
    if not shape.metadata.get("min", size) <= size <= shape.metadata.get("max", size):
        yield f"{path}: {size} is out of {shape.metadata}"


LONG = ("train.py", *(f"--option-{number}=it's {number}" for number in range(60)))


@pytest.mark.parametrize("command", [("train.py",), LONG])
def test_sagemaker_takes_the_request(command: tuple[str, ...]) -> None:
    job = jobs.files(jobs.job("sagemaker", "efa", "torchrun", command=command))
    check_request("sagemaker", "CreateTrainingJob", json.loads(job["request.json"]))


@pytest.mark.parametrize("launch", [None, "accelerate"])
def test_sagemaker_takes_all_that_a_job_can_be_told(launch: Any, tmp_path: Path) -> None:
    settings = dataclasses.replace(jobs.everything("sagemaker", tmp_path), launch=launch)
    data = json.loads(jobs.files(jobs.job("sagemaker", "efa", "torchrun", settings=settings))["request.json"])
    check_request("sagemaker", "CreateTrainingJob", data)
    start = "\n".join(data["AlgorithmSpecification"]["ContainerArguments"])
    subprocess.run(["bash", "-n"], input=start, text=True, check=True)
    assert [channel["ChannelName"] for channel in data["InputDataConfig"]] == ["code", "lustre", "bucket"]


def test_sagemaker_takes_the_longest_variable_that_is_written() -> None:
    job = jobs.job("sagemaker", "efa", "torchrun", settings=JobSettings(env={"LONG": "x" * 512}))
    data = json.loads(jobs.files(job)["request.json"])
    check_request("sagemaker", "CreateTrainingJob", data)
    data["Environment"]["LONG"] += "x"
    with pytest.raises(AssertionError):
        check_request("sagemaker", "CreateTrainingJob", data)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"LONG": "x" * 513}, "variable LONG: SageMaker takes values of up to 512 characters, and this one has 513"),
        ({f"A{number}": "" for number in range(100)}, "SageMaker takes up to 100 variables, and the job sets"),
    ],
)
def test_variables_that_sagemaker_does_not_take_are_refused(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        jobs.files(jobs.job("sagemaker", "efa", "torchrun", settings=JobSettings(env=variables)))


def test_sagemaker_has_the_types_that_the_facts_say() -> None:
    shape = botocore.session.get_session().get_service_model("sagemaker").shape_for("TrainingInstanceType")
    assert isinstance(shape, StringShape)
    form = jobs.load_project().facts.launchers.launchers["sagemaker"].instances
    assert form
    for name, node in jobs.load_project().facts.instances.types.items():
        if node.fabric == "efa":
            assert bool(re.fullmatch(form, name)) == (f"ml.{name}" in shape.enum), name


@pytest.mark.parametrize("fault", [("ResourceConfig", "InstanceType", "ml.p99"), ("Environment", "1X", "y")])
def test_the_model_refuses_what_is_wrong(fault: tuple[str, str, str]) -> None:
    data = json.loads(jobs.files(jobs.job("sagemaker", "efa", "torchrun"))["request.json"])
    path, key, value = fault
    data[path][key] = value
    with pytest.raises(AssertionError):
        check_request("sagemaker", "CreateTrainingJob", data)


PREFLIGHT = 'while [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'


def test_what_sagemaker_starts_is_the_command(tmp_path: Path) -> None:
    """The entry point with its arguments, run as SageMaker runs it, with a torchrun that says how it was called."""
    data = json.loads(jobs.files(jobs.job("sagemaker", "efa", "torchrun"))["request.json"])
    algorithm = data["AlgorithmSpecification"]
    config = tmp_path / "resourceconfig.json"
    config.write_text('{"current_host": "algo-2", "hosts": ["algo-2", "algo-1"], "network_interface_name": "eth1"}')
    programs = {"torchrun": 'echo "$NCCL_SOCKET_IFNAME"\nprintf "%s\\n" "$@"\n', "rdma-preflight": PREFLIGHT}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    words = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
    words = [word.replace("/opt/ml/input/config/resourceconfig.json", str(config)) for word in words]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    completed = subprocess.run(words, env=path, capture_output=True, text=True, check=True)
    interface, *called = completed.stdout.splitlines()
    assert interface == "eth1"
    assert called[:4] == ["--nnodes=2", "--nproc-per-node=8", "--node-rank=1", "--master-addr=algo-1"]
    assert called[-3:] == list(jobs.SCRIPT)
