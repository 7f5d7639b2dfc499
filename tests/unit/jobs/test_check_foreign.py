"""Jobs in the shapes that public repositories have: no error where nothing is shown to be wrong, and no miss."""

from pathlib import Path

import pytest
import yaml

from tests.support import job_parts
from tests.support.foreign_jobs import DIGEST, RUNTIME, checked, findings, pods, sbatch, severities
from tests.support.processor_limit import processor_limit


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        ("^docker,lo,veth,eth", "", ["error"]),  # a pod has eth0 alone
        ("^lo,docker,ens", "", []),
        ("^docker,lo,veth,eth", "hostNetwork: true", []),  # EC2's hosts have ens and enp
        ("^lo,docker,en", "hostNetwork: true", ["error"]),
        ("eth0", "", []),
        ("en", "hostNetwork: true", []),  # NCCL compares the beginning of the name
        ("bond0", "hostNetwork: true", ["warning"]),
    ],
)
def test_an_interface_is_judged_by_the_network_of_the_pods(
    tmp_path: Path, value: str, spec: str, expected: list[str]
) -> None:
    text = pods(f"NCCL_SOCKET_IFNAME={value}", spec=spec)
    assert severities(tmp_path, "environment.harmful", job_yaml=text) == expected


def test_an_interface_of_hosts_under_slurm(tmp_path: Path) -> None:
    text = sbatch("export FI_PROVIDER=efa", "export NCCL_SOCKET_IFNAME=^docker,lo,veth,eth", "srun train")
    assert severities(tmp_path, "environment.harmful", job_sbatch=text) == []


@pytest.mark.parametrize(
    ("env", "instance", "expected"),
    [
        ("NCCL_P2P_DISABLE=1", "p5.48xlarge", ["error"]),
        ("NCCL_P2P_DISABLE=1", "g5.12xlarge", []),  # PCIe alone
        ("NCCL_P2P_DISABLE=1", "", ["warning"]),
        ("FI_EFA_USE_DEVICE_RDMA=0", "p5.48xlarge", ["error"]),
        ("FI_EFA_USE_DEVICE_RDMA=0", "g5.12xlarge", []),
        ("RDMAV_FORK_SAFE=1", "p5.48xlarge", ["warning"]),
        ("FI_PROVIDER=${FI_PROVIDER}", "p5.48xlarge", []),
        ("FI_PROVIDER=$(FI_PROVIDER)", "p5.48xlarge", []),
        ("FI_PROVIDER={{workflow.parameters.provider}}", "p5.48xlarge", []),
        ("FI_PROVIDER=tcp", "p5.48xlarge", ["error"]),
    ],
)
def test_a_variable_is_judged_by_the_nodes(tmp_path: Path, env: str, instance: str, expected: list[str]) -> None:
    efa, gpus = ("1", "4") if instance.startswith("g5") else ("32", "8")
    text = pods(env, instance, efa, gpus)
    assert severities(tmp_path, "environment.harmful", job_yaml=text) == expected


def test_a_tuners_path_is_a_condition_where_the_version_of_nccl_is_not_known(tmp_path: Path) -> None:
    text = pods("NCCL_TUNER_PLUGIN=/opt/amazon/ofi-nccl/lib/libnccl-ofi-tuner.so")
    (finding,) = findings(tmp_path, "environment.harmful", job_yaml=text)
    assert finding.severity == "warning"
    assert "if nccl is 2.27.3 or later and older than 2.27.5" in finding.message


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


TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: torch-rdma}
  trainer:
    numNodes: 2
    resourcesPerNode: {limits: {nvidia.com/gpu: 8}}
"""


def test_a_trainjob_loses_only_adapters_that_its_runtime_has(tmp_path: Path) -> None:
    rule = "trainjob.resources"
    assert severities(tmp_path, rule, job_yaml=TRAIN_JOB) == []
    assert severities(tmp_path, rule, runtime_yaml=RUNTIME.replace("NAME", "other")) == []
    assert severities(tmp_path, rule, runtime_yaml=RUNTIME.replace("NAME", "torch-rdma")) == ["error"]


@pytest.mark.parametrize("image", ["${REGISTRY}/trainer:1", "YOUR_REGISTRY/trainer:1", "<account>/trainer:1"])
def test_an_image_that_is_filled_in_later_is_no_tag(tmp_path: Path, image: str) -> None:
    text = pods(image=image, instance="PLACEHOLDER_INSTANCE_TYPE")
    result = checked(tmp_path, job_yaml=text)
    assert {finding.rule for finding in result.findings} == set()


@pytest.mark.parametrize(
    ("label", "expected"),
    [("node-type: big", []), ("kubernetes.io/os: linux", ["warning"]), ("nvidia.com/gpu.present: 'true'", ["warning"])],
)
def test_a_label_of_the_clusters_own_may_stand_for_a_type(tmp_path: Path, label: str, expected: list[str]) -> None:
    text = pods(instance="", spec=f"nodeSelector: {{{label}}}")
    assert severities(tmp_path, "node.selector", job_yaml=text) == expected


def test_the_image_of_a_job_without_gpus_is_no_concern(tmp_path: Path) -> None:
    text = "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: x, image: 'python:3.11-slim'}]}\n"
    assert checked(tmp_path, job_yaml=text).findings == ()


# What was missed.


def test_variables_of_a_batch_script_are_judged_as_those_of_a_pod(tmp_path: Path) -> None:
    text = sbatch(
        "export FI_PROVIDER=efa  # NCCL_ALGO=ring",
        "export FI_EFA_FORK_SAFE=1",
        "NCCL_PROTO=simple srun train.sh",
        "srun --export=ALL,NCCL_NVLS_ENABLE=0 mpirun -x NCCL_BUFFSIZE=8388608 train",
    )
    named = {word for finding in checked(tmp_path, job_sbatch=text).findings for word in finding.message.split("=")[:1]}
    assert named == {"FI_EFA_FORK_SAFE", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_BUFFSIZE"}


SKYPILOT = """
resources: {infra: k8s, accelerators: H100:8}
num_nodes: 2
run: |
  if [ "$SKYPILOT_NODE_RANK" == 0 ]; then
    export FI_PROVIDER=efa
    export FI_EFA_FORK_SAFE=1
    if [ "$FAST" == no ]; then
      export NCCL_NET=Socket
    fi
  fi
"""


def test_a_skypilot_script_is_read_but_for_what_a_condition_leaves_open(tmp_path: Path) -> None:
    result = checked(tmp_path, job_yaml=SKYPILOT)
    (finding,) = [finding for finding in result.findings if "environment" in finding.rule]
    assert finding.message.startswith("FI_EFA_FORK_SAFE=1")
    line = int(finding.where[0].rpartition(":")[2])
    assert "FI_EFA_FORK_SAFE" in SKYPILOT.splitlines()[line - 1]


def test_what_a_condition_may_change_is_not_known(tmp_path: Path) -> None:
    text = sbatch(
        "export FI_PROVIDER=tcp OFI_NCCL_PROTOCOL=RDMA",
        "GPUS=8",
        'if [ "$MODE" = fast ]; then export FI_PROVIDER=efa; fi',
        'if [ "$TYPE" = small ]; then',
        "  GPUS=4",
        "fi",
        "srun torchrun --nproc_per_node=$GPUS --nnodes=2 --rdzv_backend=c10d --rdzv_endpoint=$HEAD train.py",
        options="--nodes=2 --gpus-per-node=4",
    )
    assert checked(tmp_path, job_sbatch=text).findings == ()


@pytest.mark.parametrize(
    "text",
    [
        "#SBATCH -N 2\n" + "A='x' " * 60 + ";\n",
        "#SBATCH -N 2\nA=" + "$B" * 1000 + "\nB=" + "$A" * 1000 + "\nsrun --container-image=$A\n",
        "docker run --gpus all x\n" * 2000,
        "arena submit pytorch --gpus=1\n" * 2000,
        "\n" * 200_000,
    ],
    ids=["quotes", "references", "docker", "arena", "blank"],
)
def test_a_long_text_is_read_in_time(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(pods())
    with processor_limit(20):
        checked(tmp_path, long_sh=text)


@pytest.mark.parametrize(
    ("options", "command", "expected"),
    [
        ("--nodes=2 --gres=gpu:4", "srun torchrun --nproc_per_node=8 train.py", ["error"]),
        ("--nodes=2 --gres=gpu:h100:4", "srun torchrun --nproc-per-node 8 train.py", ["error"]),
        ("--nodes=2 --gpus-per-node=h100:8", "GPUS=4\nsrun torchrun --nproc_per_node=$GPUS train.py", ["warning"]),
        ("--nodes=2 --gpus-per-node=8", "srun torchrun --nproc_per_node=8 train.py", []),
        ("--nodes=2 --gpus-per-node=8", "srun torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py", []),
        ("--nodes=2 --gpus-per-node=4", "# torchrun --nproc_per_node=8 train.py", []),
    ],
)
def test_ranks_and_gpus_of_a_node(tmp_path: Path, options: str, command: str, expected: list[str]) -> None:
    text = sbatch(*command.split("\n"), options=options)
    assert severities(tmp_path, "ranks.gpus", job_sbatch=text) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("srun torchrun --nnodes=2 train.py", ["error"]),
        ("srun torchrun --nnodes=6 train.py", ["error"]),
        ("srun torchrun --nnodes=4 train.py", []),
        ("srun torchrun --nnodes=1:4 train.py", []),
        ("srun torchrun --nnodes=$SLURM_NNODES train.py", []),
        ("srun -N 2 torchrun --nnodes=2 train.py", []),  # two jobs in one allocation
    ],
)
def test_nodes_of_torchrun_and_of_the_job(tmp_path: Path, command: str, expected: list[str]) -> None:
    assert severities(tmp_path, "ranks.nodes", job_sbatch=sbatch(command, options="--nodes=4")) == expected


PYTORCH_JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Master:
      template: &template
        spec:
          containers:
          - name: pytorch
            args: [torchrun, --nnodes=2, --nproc_per_node=8, train.py]
            resources: {limits: {nvidia.com/gpu: 8}}
    Worker:
      replicas: 3
      template: *template
"""


def test_a_pytorchjobs_master_is_one_of_its_nodes(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, "ranks.nodes", job_yaml=PYTORCH_JOB)
    assert finding.message == "torchrun takes 2 nodes, and the job has 4"
    right = PYTORCH_JOB.replace("--nnodes=2", "--nnodes=4")
    assert findings(tmp_path, "ranks.nodes", job_yaml=right) == []
    elastic = PYTORCH_JOB.replace("spec:\n  pytorch", "spec:\n  elasticPolicy: {maxReplicas: 9}\n  pytorch")
    assert findings(tmp_path, "ranks.nodes", job_yaml=elastic) == []


@pytest.mark.parametrize(
    ("command", "spec", "expected"),
    [
        ("[mpirun, -np, '32', all_reduce_perf, -n, '100']", "slotsPerWorker: 8", ["error"]),
        ('[sh, -c, "mpirun \\\\\\n  -np 32 train"]', "slotsPerWorker: 8", ["error"]),
        ("[mpirun, -n, '16', train]", "{}", ["error"]),  # a worker has one slot unless the job says more
        ("[mpirun, -np, '8', train]", "slotsPerWorker: 8", ["warning"]),
        ("[mpirun, -np, '2', -N, '1', train]", "slotsPerWorker: 8", []),
        ("[mpirun, -np, '16', train]", "slotsPerWorker: 8", []),
        ("[mpirun, all_reduce_perf, -n, '100']", "slotsPerWorker: 8", []),
        ("[mpirun, --oversubscribe, -np, '32', train]", "slotsPerWorker: 8", []),
        ("[mpirun, -np, '${NP}', train]", "slotsPerWorker: 8", []),
        ("[mpirun, -np, '16', train]", "slotsPerWorker: '{{slots}}'", []),
        ("[mpirun, -np, '24', train]", "slotsPerWorker: 8, runLauncherAsWorker: true", []),
    ],
)
def test_mpiruns_ranks_and_the_slots_of_the_workers(
    tmp_path: Path, command: str, spec: str, expected: list[str]
) -> None:
    gpus = "resources: {limits: {nvidia.com/gpu: 8}}"
    text = f"""
kind: MPIJob
spec:
  mpiReplicaSpecs:
    Launcher: {{template: {{spec: {{containers: [{{command: {command}}}]}}}}}}
    Worker: {{replicas: 2, template: {{spec: {{containers: [{{{gpus}}}]}}}}}}
"""
    text += "".join(f"  {setting}\n" for setting in spec.split(", ") if setting != "{}")
    assert severities(tmp_path, "ranks.slots", job_yaml=text) == expected


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ('srun --container-image="nvcr.io#nvidia/pytorch:25.01-py3" train', "nvcr.io#nvidia/pytorch:25.01-py3"),
        ("IMAGE=docker://registry.example/a:1\nsrun --container-image $IMAGE train", "registry.example/a:1"),
        (': "${IMAGE:=registry.example/a:1}"\nsrun --container-image ${IMAGE} train', "registry.example/a:1"),
        ("srun --container-image ubuntu train", "ubuntu"),
        ("srun --container-image ${IMAGE} train", None),
        ("IMAGE=$(pwd)/a.sqsh\nsrun --container-image ${IMAGE} train", None),
        ("srun --container-image /fsx/a.sqsh train", None),
        (f"srun --container-image {DIGEST} train", None),
    ],
)
def test_an_image_of_a_batch_script(tmp_path: Path, line: str, image: str | None) -> None:
    tagged = findings(tmp_path, "image.tag", job_sbatch=sbatch(*line.split("\n")))
    assert [finding.message.split(" ")[0] for finding in tagged] == ([image] if image else [])


DOCKER = """#!/bin/bash
docker build -t trainer .
docker run --rm postgres:16 &
docker run --rm -it --gpus 4 --network=host \\
  -e NCCL_P2P_DISABLE=1 --env FI_PROVIDER=efa \\
  registry.example/trainer:2 torchrun --nproc_per_node=8 train.py
"""


def test_a_docker_command_line_is_read(tmp_path: Path) -> None:
    result = checked(tmp_path, run_sh=DOCKER)
    (part,) = result.parts
    assert (Path(part.file).name, part.title, part.line) == ("run.sh", "docker run", 4)
    assert {finding.rule for finding in result.findings} == {
        "image.tag",
        "ranks.gpus",
        "environment.harmful",
        "docker.devices",
        "shm.small",
    }


def test_our_own_docker_job_is_read(tmp_path: Path) -> None:
    text = job_parts.files(job_parts.job("docker", "efa", "torchrun"))["run.sh"]
    result = checked(tmp_path, run_sh=text)
    assert [part.title for part in result.parts] == ["docker run"]
    assert result.findings == ()


# Many files.


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("export MASTER_ADDR=localhost", ["error"]),
        ("srun torchrun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=127.0.0.1:29500 train.py", ["error"]),
        ("srun torchrun --nnodes=2 --nproc-per-node=8 --master_addr=$FIRST train.py", ["error"]),
        ("srun torchrun --nnodes=2 --rdzv-endpoint=$(hostname):29500 train.py", []),
        ("srun torchrun --nnodes=2 --rdzv-endpoint=${SLURM_LAUNCH_NODE_IPADDR:-localhost}:29500 train.py", []),
        ("export MASTER_ADDR=$(hostname)", []),
    ],
)
def test_an_address_that_is_each_nodes_own(tmp_path: Path, line: str, expected: list[str]) -> None:
    assert severities(tmp_path, "rendezvous.address", job_sbatch=sbatch("FIRST=localhost", line)) == expected
    single_node = sbatch("FIRST=localhost", line).replace("--nodes=2", "--nodes=1").replace("--nnodes=2", "--nnodes=1")
    assert severities(tmp_path, "rendezvous.address", job_sbatch=single_node) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('LAUNCH="accelerate launch --num_machines 2 --machine_rank=$SLURM_PROCID"; srun bash -c "$LAUNCH a.py"', 1),
        ("srun torchrun --nnodes=2 --node_rank $SLURM_NODEID train.py", 1),
        ('srun bash -c "torchrun --node-rank=${SLURM_NODEID} train.py"', 1),
        ("srun bash -c 'torchrun --node-rank=$SLURM_NODEID train.py'", 0),
        ('srun bash -c "torchrun --node-rank=\\$SLURM_NODEID train.py"', 0),
        ("# don't: torchrun --node-rank=$SLURM_NODEID\nsrun torchrun --nnodes=2 train.py", 0),
        ("srun bash <<'EOF'\ntorchrun --node-rank=$SLURM_NODEID train.py\nEOF", 0),
    ],
)
def test_a_rank_that_the_sbatch_script_itself_puts_in_place(tmp_path: Path, line: str, expected: int) -> None:
    text = sbatch("FIRST=n1", line)
    assert severities(tmp_path, "rendezvous.rank", job_sbatch=text) == ["warning"] * expected
    assert severities(tmp_path, "rendezvous.rank", job_sbatch=text.replace("--nodes=2", "--nodes=1")) == []


def test_the_node_where_srun_is_called_is_not_the_first(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\nARGS+=(--nnodes=$SLURM_NNODES --node-rank=${SLURM_NODEID:-0})\n"
        "ARGS+=(--rdzv-endpoint=${SLURM_LAUNCH_NODE_IPADDR:-localhost}:15213)\ntorchrun ${ARGS[@]} train.py\n"
    )
    (finding,) = findings(tmp_path, "rendezvous.address", each_sh=text)
    assert (finding.severity, finding.where) == ("warning", (f"{tmp_path}/each.sh:3",))
    first = text.replace("${SLURM_LAUNCH_NODE_IPADDR:-localhost}", "$FIRST")
    assert severities(tmp_path, "rendezvous.address", each_sh=first) == []


@pytest.mark.parametrize(
    ("options", "count"), [("", 1), ("--network=host", 0), ("--net host", 0), ("--network mine", 0), ("$OPTIONS", 0)]
)
def test_a_container_of_several_nodes_in_dockers_own_network(tmp_path: Path, options: str, count: int) -> None:
    """As in deepinsight/insightface issue 1444."""
    start = "python -m torch.distributed.launch --nproc_per_node=8 --nnodes={} --master_addr=192.168.1.10 train.py"
    run = f"docker run --gpus all {options} example.com/arcface:1 \\\n  {start}\n"
    assert severities(tmp_path, "docker.network", job_sh=run.format(2)) == ["warning"] * count
    assert severities(tmp_path, "docker.network", job_sh=run.format(1)) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deepspeed --num_gpus 8 train.py --hostfile data.txt", ["warning"]),
        ("srun --container-image=a.sqsh deepspeed train.py --deepspeed ds.json", ["warning"]),
        ('srun bash -c "NCCL_DEBUG=INFO accelerate launch --multi_gpu train.py"', ["warning"]),
        ("accelerate launch \\\n  --multi_gpu \\\n  train.py", ["warning"]),
        ("accelerate launch \\\n  --num_machines 2 --machine_rank 0 \\\n  train.py", []),
        ("accelerate launch --config_file two-nodes.yaml train.py", []),
        ("accelerate launch $ARGS train.py", []),
        ("deepspeed --hostfile=/job/hosts train.py", []),
        ("deepspeed --no_ssh --node_rank=1 train.py", []),
        ("pip install deepspeed accelerate", []),
        ("srun python train.py --deepspeed ds.json", []),
        ("srun -N 1 deepspeed train.py", []),
        ("# deepspeed train.py", []),
        ("accelerate config default", []),
        ("source ~/venv/bin/activate\npython test.py", ["warning"]),
        ("python3 -m train.main --epochs 3", ["warning"]),
        ("python -m pip install einops", []),
        ("python -c 'print(1)'", []),
        ("./launch.sh\npython report.py", []),
        ("$RUNNER python test.py", []),
        ("mpirun python test.py", []),
        ("srun hostname\npython report.py", []),
    ],
)
def test_a_launcher_that_is_told_of_no_other_node(tmp_path: Path, line: str, expected: list[str]) -> None:
    text = sbatch("export NCCL_DEBUG=INFO", line)
    assert severities(tmp_path, "launcher.nodes", job_sbatch=text) == expected
    assert severities(tmp_path, "launcher.nodes", job_sbatch=text.replace("--nodes=2", "--nodes=1")) == []


def test_a_launcher_of_pods_that_is_told_of_no_other_pod(tmp_path: Path) -> None:
    job = yaml.safe_load(job_parts.files(job_parts.job("pytorchjob", "efa", "torchrun"))["pytorchjob.yaml"])
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container.pop("args", None)
    for command, expected in (
        (["accelerate", "launch", "train.py"], ["warning"]),
        (["sh", "-c", "set -e\ndeepspeed train.py"], ["warning"]),
        (["deepspeed", "--hostfile", "/job/hosts", "train.py"], []),
    ):
        container["command"] = command
        assert severities(tmp_path, "launcher.nodes", job_yaml=yaml.safe_dump(job)) == expected


@pytest.mark.parametrize(("backend", "expected"), [("nixl", ["warning"]), ("mooncake", [])])
def test_devices_that_another_backend_reads(tmp_path: Path, backend: str, expected: list[str]) -> None:
    text = (
        f"docker run --gpus all --privileged image python3 -m sglang.launch_server --disaggregation-mode prefill \\\n"
        f"  --disaggregation-ib-device mlx5_0 --disaggregation-transfer-backend {backend}\n"
    )
    assert severities(tmp_path, "transfer.devices", serve_sh=text) == expected
