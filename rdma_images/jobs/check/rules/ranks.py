"""Rules on how many ranks a job starts: tasks, GPUs, slots and nodes that do not go together."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.core.sizes import format_count
from rdma_images.jobs.check.foreign_job import JobPart, Launch, LocatedText
from rdma_images.jobs.check.rules.rendezvous import node_count
from rdma_images.jobs.check.rules.rule import CheckContext, RuleFinding, rule

COUNTS = (
    *("nodes", "ntasks", "ntasks_per_node", "nnodes", "nproc_per_node", "node_rank", "np"),
    *("num_machines", "num_processes", "machine_rank", "num_nodes"),
)
NO_NUMBER = re.compile(r"\d*[a-z]{2,}\w*")  # a letter may be a unit, and capitals what is put in place later
NODE_GPUS = ("auto", "cpu", "gpu", "xpu")  # torchrun counts them on the node
VISIBLE = re.compile(r"\d+(?:,\s*\d+)*")
RANK_STARTERS = ("torchrun", "deepspeed", "accelerate", "ft_launcher", "hyperpodrun")
EXTERNAL = {"distributed_executor_backend"}  # by which vLLM's ranks may be tasks
PER_NODE = ("N", "npernode", "ppn")  # of mpirun's ranks
RANKS_PER_NODE = re.compile(r"ppr:(?P<ranks>\d+):node")
BINDS_ONE_GPU = re.compile(r"single|per_task|map|mask|closest")
TRAINER = re.compile(r"\bTrainer\((?P<arguments>(?:[^()]|\([^()]*\))*)\)")
TRAINER_SETTING = re.compile(r"\b(devices|gpus|num_nodes)\s*=\s*(\d+|-1|[\"']auto[\"'])")
OPEN_DEVICES = re.compile(r"-1|[\"']?auto[\"']?")  # Lightning takes all GPUs of the node
LIGHTNING_DEVICES = ("trainer.devices", "trainer.gpus", "devices", "gpus")
TENSOR_PARALLEL = ("tensor_parallel_size", "tp", "tp_size")
PIPELINE_PARALLEL = ("pipeline_parallel_size", "pp", "pp_size")


@rule("ranks.number", "error", "SchedMD, sbatch(1): --nodes, --ntasks; pytorch/pytorch, torch/distributed/run.py")
def counts_that_are_words(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a word where a scheduler or launcher reads a number of nodes, tasks or ranks."""
    options = [part.options, *(launch.srun or {} for launch in part.start.launches)]
    options += [launch.options for launch in part.start.launches if launch.program in (*RANK_STARTERS, "mpirun")]
    words = [(f"--{name.replace('_', '-')}", row[name]) for row in options for name in COUNTS if name in row]
    if part.nodes and "nodes" not in part.options:
        words.append(("the number of nodes", part.nodes))
    for name, word in dict.fromkeys(words):
        if NO_NUMBER.fullmatch(word.text) and word.text not in NODE_GPUS:
            yield word, f"{name} is {word.text[:40]!r}, and must be a whole number", "write a number"


@rule("ranks.gpus", "error", "NVIDIA/nccl, src/init.cc: two ranks of a communicator on one GPU are an error")
def ranks_and_gpus(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report more ranks than GPUs on a node, which NCCL refuses, and fewer."""
    ranks, gpus = part.start.ranks and part.start.ranks.number, part.gpus and part.gpus.number
    if not (part.start.ranks and part.gpus and ranks and gpus) or ranks == gpus:
        return
    if ranks > gpus:
        problem = f"{ranks} ranks on each node, and {format_count(gpus, 'GPU')}: NCCL refuses two ranks on one GPU"
        yield part.start.ranks, problem, f"start {gpus}, or ask for {ranks} GPUs"
    else:
        problem = f"{format_count(ranks, 'rank')} on each node, and {gpus} GPUs: {gpus - ranks} may lie idle"
        yield part.start.ranks, problem, f"start {gpus}, or ask for {ranks}", "warning"


@rule("ranks.slots", "error", "kubeflow/mpi-operator, pkg/controller/mpi_job_controller.go, newConfigMap")
def ranks_and_slots(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report more of mpirun's ranks than workers' slots, which it refuses, and fewer."""
    slots = part.traits.get("mpi-slots")
    ranks, total = part.start.mpi_ranks and part.start.mpi_ranks.number, slots and slots.number
    if not (context.accelerated and part.start.mpi_ranks and ranks and total) or ranks == total:
        return
    fix = f"start {total}, or change slotsPerWorker or the workers' replicas"
    problem = f"mpirun starts {format_count(ranks, 'rank')}, and the workers have {total} slots"
    if ranks > total:
        yield part.start.mpi_ranks, f"{problem}: it refuses to", fix
    elif "ranks-placed" not in part.traits:
        yield part.start.mpi_ranks, f"{problem}: {total - ranks} may lie idle", fix, "warning"


@rule("ranks.nodes", "error", "pytorch/pytorch, torch/distributed/run.py: --nnodes")
def ranks_and_nodes(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a torchrun that waits for more nodes than the job has, or takes fewer."""
    match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", part.start.nodes.text) if part.start.nodes else None
    nodes = part.job_nodes
    if not (match and part.start.nodes and nodes):
        return
    min_nodes, max_nodes = int(match[1]), int(match[2] or match[1])
    if nodes < min_nodes:
        problem = f"torchrun waits for {min_nodes} nodes, and the job has {nodes}"
        yield part.start.nodes, problem, f"write --nnodes={nodes}"
    elif nodes > max_nodes:
        problem = f"torchrun takes {format_count(max_nodes, 'node')}, and the job has {nodes}"
        yield part.start.nodes, problem, f"write --nnodes={nodes}"


def number(options: Mapping[str, LocatedText], *names: str, default: int | None = None) -> int | None:
    """Return the first option that is there as a number.

    `default` where none is, None where it is no number.
    """
    word = next((options[name] for name in names if name in options), None)
    return word.number if word else default


def tasks_per_node(part: JobPart, launch: Launch) -> int | None:
    """Return how many tasks srun starts on each node.

    Returns:
        None where srun does not start it, or that is not known.
    """
    if launch.srun is None:
        return None
    nodes = number(launch.srun, "nodes", default=part.job_nodes)
    for options in (launch.srun, part.options):
        total = number(options, "ntasks")
        if per_gpu := number(options, "ntasks_per_gpu"):
            return per_gpu * part.gpus.number if not total and part.gpus and part.gpus.number else None
        if total and nodes and total % nodes == 0:
            return total // nodes
        if any(name in options for name in ("ntasks", "ntasks_per_node", "nodes" if options is launch.srun else "")):
            return number(options, "ntasks_per_node") if "ntasks_per_node" in options else None
    return 1


@rule("ranks.visible", "error", "CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES: no other device is visible")
def invisible_gpus(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report more ranks on a node than CUDA_VISIBLE_DEVICES leaves GPUs."""
    for launch in part.start.launches:
        word = launch.visible_devices or part.environment.get("CUDA_VISIBLE_DEVICES")
        ranks = {
            "torchrun": launch.options.get("nproc_per_node"),
            "accelerate": launch.options.get("num_processes") if node_count(part, launch) < 2 else None,
        }.get(launch.program)
        if not (word and VISIBLE.fullmatch(word.text) and ranks and ranks.number):
            continue
        gpus = word.text.count(",") + 1
        if ranks.number > gpus:
            problem = f"{ranks.number} ranks on a node, and CUDA_VISIBLE_DEVICES={word.text} leaves {gpus} of its GPUs"
            yield ranks, problem, f"start {gpus}, or name {ranks.number} GPUs"


@rule("ranks.tasks", "error", "SchedMD, srun(1): srun starts the command once for each task")
def launchers_of_each_task(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a launcher of all a node's ranks that srun starts once for each GPU."""
    for launch in part.start.launches:
        tasks = tasks_per_node(part, launch)
        ranks = number(launch.options, "nproc_per_node", "num_gpus", "num_processes")
        has_file = "config_file" in launch.options  # of accelerate, which may say that it is one process
        if launch.program in RANK_STARTERS and tasks and tasks > 1 and ranks != 1 and not has_file:
            problem = f"srun starts {tasks} {launch.program} on each node, and each starts the ranks of all its GPUs"
            yield LocatedText(launch.program, launch.line), problem, "write srun --ntasks-per-node=1"
        is_server = launch.program in ("vllm", "sglang") or (launch.program == "python" and "vllm" in launch.script)
        size = number({**launch.arguments, **launch.options}, *TENSOR_PARALLEL) or 0
        if is_server and tasks and tasks > 1 and size > 1 and not EXTERNAL & {*launch.options, *launch.arguments}:
            problem = f"srun starts {tasks} servers on each node, and each is for {size} GPUs"
            yield LocatedText("srun", launch.line), problem, "write srun --ntasks-per-node=1", "warning"


@rule(
    "ranks.lightning",
    "warning",
    "Lightning-AI/pytorch-lightning, src/lightning/fabric/plugins/environments/slurm.py, validate_settings",
)
def devices_of_lightning(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report devices and nodes of Lightning or NeMo that are not Slurm's tasks and nodes."""
    for launch in part.start.launches:
        if launch.program != "python" or part.kind != "slurm":
            continue
        arguments = {**_trainer(part, launch), **launch.arguments}
        devices = next((arguments[name] for name in LIGHTNING_DEVICES if name in arguments), None)
        tasks, gpus = tasks_per_node(part, launch), part.gpus.number if part.gpus else None
        if devices and OPEN_DEVICES.fullmatch(devices.text) and part.gpus:
            devices = LocatedText(part.gpus.text, devices.line)
        if devices and devices.number and tasks and devices.number != tasks:
            problem = f"{devices.number} devices, and srun starts {format_count(tasks, 'task')} on each node"
            yield devices, problem, f"write --ntasks-per-node={devices.number}: Lightning starts no ranks under Slurm"
        elif not devices and tasks and gpus and tasks > gpus:
            problem = f"srun starts {tasks} ranks on each node, and it has {format_count(gpus, 'GPU')}"
            yield LocatedText("srun", launch.line), problem, f"ask for {tasks} GPUs, or start {gpus} tasks on each node"
        nodes = next((arguments[name] for name in ("trainer.num_nodes", "num_nodes") if name in arguments), None)
        if (
            nodes
            and nodes.number
            and part.job_nodes
            and launch.srun is not None
            and "nodes" not in launch.srun
            and nodes.number != part.job_nodes
        ):
            problem = f"the program is for {nodes.number} nodes, and the job has {part.job_nodes}"
            yield nodes, problem, f"write {part.job_nodes}"


@rule("ranks.total", "error", "huggingface/accelerate, commands/launch.py: num_processes is of all machines together")
def processes_of_accelerate(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a number of accelerate's processes that does not fit its machines and GPUs."""
    for launch in part.start.launches:
        word, machines = launch.options.get("num_processes"), node_count(part, launch)
        if launch.program != "accelerate" or not word or not word.number or machines < 2:
            continue
        fix = "num_processes is of all machines together: machines times GPUs of each"
        if word.number % machines:
            yield word, f"{word.number} processes on {machines} machines: each needs the same number", fix
        elif part.gpus and part.gpus.number and word.number != machines * part.gpus.number:
            problem = f"{word.number} processes on {machines} machines with {part.gpus.number} GPUs each"
            yield word, problem, fix, "warning"


def _trainer(part: JobPart, launch: Launch) -> dict[str, LocatedText]:
    """Return the numbers that a program beside the script gives Lightning's Trainer."""
    path = Path(part.file).parent / launch.script if launch.script.endswith(".py") else None
    if path is None or not path.is_file():
        return {}
    try:
        call = TRAINER.search(files.read_text(path))
    except RdmaImagesError:
        return {}
    settings = TRAINER_SETTING.findall(call["arguments"]) if call else []
    return {name: LocatedText(value, launch.line) for name, value in settings}


@rule("ranks.slurm", "warning", "SchedMD, sbatch(1): with --ntasks, --ntasks-per-node is a maximum")
def tasks_of_all_nodes(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a number of tasks that is not that of all nodes together."""
    word = part.options.get("ntasks")
    per_node, nodes = part.options.get("ntasks_per_node"), part.job_nodes or 1
    if part.kind != "slurm" or not (word and word.number and per_node and per_node.number):
        return
    expected = per_node.number * nodes
    if word.number != expected:
        problem = f"{word.number} tasks, and {format_count(nodes, 'node')} with {per_node.number} each"
        yield word, f"{problem}: programs that read both wait for others", f"write --ntasks={expected}, or leave it out"


@rule(
    "ranks.servers",
    "warning",
    "vllm-project/vllm, vllm/config/parallel.py; sgl-project/sglang, python/sglang/srt/server_args.py",
)
def parallel_servers(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a server's parallelism that its nodes' GPUs, or the nodes, do not fit."""
    launches = part.start.launches
    has_ray = any(launch.program == "ray" for launch in launches)
    for launch in launches:
        is_rays = launch.program == "vllm" and (has_ray or "ray" in part.traits or _has_backend(launch))
        if launch.program not in ("vllm", "sglang"):
            continue
        if is_rays:
            yield from _servers_of_ray(part, launch)
            continue
        word = next((launch.options[name] for name in TENSOR_PARALLEL if name in launch.options), None)
        tensor, pipeline = (
            number(launch.options, *TENSOR_PARALLEL, default=1),
            number(launch.options, *PIPELINE_PARALLEL, default=1),
        )
        if not (word and tensor and pipeline):
            continue
        visible = launch.visible_devices
        gpus = (
            visible.text.count(",") + 1
            if visible and VISIBLE.fullmatch(visible.text)
            else part.gpus.number
            if part.gpus
            else None
        )
        nodes, total = max(1, node_count(part, launch)), tensor * pipeline
        if launch.program == "sglang" and total % nodes:
            problem = f"{total} ranks do not divide by {nodes} nodes: SGLang refuses to start"
            yield word, problem, f"take a multiple of {nodes}", "error"
        elif gpus and total > gpus * nodes:
            where = f"{nodes} nodes have {gpus * nodes} GPUs" if nodes > 1 else f"the node has {gpus}"
            problem = f"{total} GPUs for tensor and pipeline parallelism, and {where}"
            yield word, problem, "give it more GPUs, or nodes that it is told of"


def _servers_of_ray(part: JobPart, launch: Launch) -> Iterator[RuleFinding]:
    """Yield more GPUs for a vLLM's parallelism than the pods of its group have."""
    word = next((launch.options[name] for name in TENSOR_PARALLEL if name in launch.options), None)
    tensor, pipeline = (number(launch.options, *names, default=1) for names in (TENSOR_PARALLEL, PIPELINE_PARALLEL))
    gpus, pods = part.gpus.number if part.gpus else None, part.job_nodes
    if part.title != "LeaderWorkerSet" or not (word and tensor and pipeline and gpus and pods):
        return
    if tensor * pipeline > gpus * pods and not any(name.startswith("data_parallel") for name in launch.options):
        problem = f"{tensor * pipeline} GPUs for tensor and pipeline parallelism, and {pods} pods have {gpus * pods}"
        yield word, f"{problem}: Ray waits for the others", "raise the group's size, or make the parallelism smaller"


def _has_backend(launch: Launch) -> bool:
    """Return whether a vLLM may use other nodes, by Ray or its own data parallelism."""
    return any(name.startswith(("distributed_executor", "data_parallel", "headless")) for name in launch.options)


@rule(
    "ranks.binding",
    "warning",
    "SchedMD, srun(1), --gpus-per-task and --gpu-bind; NVIDIA/nccl issues 1066 and 1948, NVIDIA/pyxis issue 73",
)
def tasks_with_one_gpu(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report tasks of a node that see one GPU each: LOCAL_RANK is no device of theirs."""
    directives = part.options if part.kind == "slurm" else {}
    for launch in part.start.launches if part.kind in ("slurm", "script") else ():
        options = {**directives, **(launch.srun or {})}
        binding = options.get("gpu_bind") or options.get("tres_bind")
        word = options.get("gpus_per_task") or options.get("ntasks_per_gpu")
        if binding and "none" not in binding.text and BINDS_ONE_GPU.search(binding.text):
            word = binding
        elif binding or launch.program != "python":
            continue
        tasks = tasks_per_node(part, launch) or number(launch.srun or {}, "ntasks")
        if word and (tasks or 0) > 1:
            option = "--ntasks-per-gpu" if word is options.get("ntasks_per_gpu") else "--gpus-per-task"
            option = "--gpu-bind" if word is binding else option
            problem = f"{option}={word.text}: each task sees its own GPU as device 0, and none of the node's others"
            yield word, problem, "write --gpus-per-node, with --gpu-bind=none, and let ranks choose by LOCAL_RANK"


@rule(
    "ranks.started",
    "warning",
    "SchedMD, sbatch(1): the script runs once; Lightning-AI/pytorch-lightning, fabric/plugins/environments/slurm.py",
)
def tasks_that_nothing_starts(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report tasks that a script with Lightning never starts, and that Lightning waits for."""
    word, program = part.options.get("ntasks_per_node") or part.options.get("ntasks"), part.start.lone_launcher
    if part.title != "sbatch script" or "lightning" not in part.traits or (part.job_nodes or 1) > 1:
        return
    if program and program.text == "python" and word and (word.number or 0) > 1:
        problem = (
            f"{word.text} tasks, and nothing in the script starts them: Lightning waits for ranks that do not come"
        )
        yield word, problem, "start the program with srun, one task for each GPU"


@rule(
    "ranks.perf", "error", "NVIDIA/nccl-tests, src/common.cu: each rank takes as many GPUs of its node as -t times -g"
)
def gpus_of_measurements(part: JobPart, context: CheckContext) -> Iterator[RuleFinding]:
    """Report nccl-tests whose ranks take more GPUs than a node has."""
    workers = next((other for other in context.siblings if other.title == "MPIJob Worker"), part)
    gpus = (part.gpus or workers.gpus) if part.title in ("MPIJob Launcher", "sbatch script") else None
    for launch in part.start.launches:
        if not launch.script.endswith("_perf"):
            continue
        sizes = [number(launch.arguments, *names, default=1) for names in (("g", "ngpus"), ("t", "nthreads"))]
        ranks = tasks_per_node(part, launch) if launch.program == "python" else _mpi_ranks_per_node(launch)
        if not (gpus and gpus.number and ranks and all(sizes)):
            continue
        total = ranks * math.prod(size for size in sizes if size)
        if total > gpus.number:
            problem = f"{format_count(ranks, 'rank')} on each node take {total} GPUs, and it has {gpus.text}"
            yield LocatedText(launch.script, launch.line), problem, "write -g 1, and start a rank for each GPU"


def _mpi_ranks_per_node(launch: Launch) -> int | None:
    """Return how many ranks mpirun starts on each node, where an option says so."""
    placed = launch.options.get("map_by")
    match = RANKS_PER_NODE.match(placed.text) if placed else None
    return int(match["ranks"]) if match else number(launch.options, *PER_NODE)
