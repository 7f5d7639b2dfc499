"""Rules on sizes that have to divide each other: ranks, parallel groups, layers, batches."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from rdma_images.core import files
from rdma_images.core.errors import RdmaImagesError
from rdma_images.jobs.check.foreign_job import JobPart, Launch, LocatedText
from rdma_images.jobs.check.rules.launch import node_count
from rdma_images.jobs.check.rules.ranks import number, tasks_per_node
from rdma_images.jobs.check.rules.rule import CheckContext, RuleFinding, rule

# Of Megatron's programs and NeMo's, which take them as model.NAME.
MODEL_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
UNEVEN_LAYERS = (
    *("deepspeed", "pp_partition", "decoder_", "encoder_", "account_for_", "pipeline_model_parallel_layout"),
    "num_layers_per_virtual",
)
# Pairs of arguments whose product is all ranks: verl's and slime's.
WORLD = (("trainer.nnodes", "trainer.n_gpus_per_node"), ("actor_num_nodes", "actor_num_gpus_per_node"))
VERL = "actor_rollout_ref."
DEEPSPEED_FILES = ("deepspeed", "deepspeed_config", "deepspeed_config_file", "ds_config")


@rule("ranks.parallel", "error", "NVIDIA/Megatron-LM, megatron/training/arguments.py, validate_args")
def undivided_world(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report ranks that parallel groups do not divide, or batches that the replicas do not."""
    for launch in part.start.launches:
        arguments = {name.rpartition("model.")[2]: word for name, word in launch.arguments.items()}
        words = [arguments[name] for name in MODEL_PARALLEL if name in arguments]
        sizes = [word.number for word in words]
        ranks = _ranks(part, launch)
        yield from _undivided_layers(arguments)
        known = [size for size in sizes if size]
        if not ranks or not words or len(known) != len(sizes) or "no_pipeline_parallel" in arguments:
            continue
        product = " * ".join(map(str, known))
        group = math.prod(known)
        if ranks % group:
            problem = f"{ranks} ranks do not divide by the model's parallel groups of {product}"
            yield words[0], problem, f"start a multiple of {group} ranks, or make the groups smaller"
            continue
        yield from _undivided_experts(ranks, arguments)
        batch, micro = arguments.get("global_batch_size"), number(arguments, "micro_batch_size")
        if batch and batch.number and micro and "rampup_batch_size" not in arguments:
            share = micro * (ranks // group)
            if batch.number % share:
                replicas = ranks // group
                problem = f"global batch {batch.number} is no multiple of micro batch {micro} * {replicas} replicas"
                yield batch, problem, f"take a multiple of {share}"


def _undivided_experts(ranks: int, arguments: Mapping[str, LocatedText]) -> Iterator[RuleFinding]:
    """Yield the ranks that the groups of experts do not divide."""
    experts = arguments.get("expert_model_parallel_size")
    tensor = number(arguments, "tensor_model_parallel_size", default=1)
    sizes = (
        number(arguments, "expert_tensor_parallel_size", default=tensor),
        experts.number if experts else None,
        number(arguments, "pipeline_model_parallel_size", default=1),
    )
    known_sizes = [size for size in sizes if size]
    if experts and len(known_sizes) == len(sizes) and ranks % math.prod(known_sizes):
        problem = f"{ranks} ranks do not divide by the experts' groups of {' * '.join(map(str, known_sizes))}"
        yield experts, f"{problem} (tensor, experts, pipeline)", "make the groups smaller, or start more ranks"


def _undivided_layers(arguments: Mapping[str, LocatedText]) -> Iterator[RuleFinding]:
    """Yield layers, heads and experts that their parallel groups do not divide."""
    is_uneven = any(name.startswith(UNEVEN_LAYERS) for name in arguments)  # or by DeepSpeed, which divides as it likes
    for size_name, group_name in (
        *(() if is_uneven else (("num_layers", "pipeline_model_parallel_size"),)),
        ("num_attention_heads", "tensor_model_parallel_size"),
        ("num_experts", "expert_model_parallel_size"),
    ):
        word, group = arguments.get(size_name), number(arguments, group_name)
        if word and word.number and group and word.number % group:
            problem = f"{size_name} {word.number} does not divide by {group_name} {group}"
            yield word, problem, f"take a divisor of {word.number}"


def _ranks(part: JobPart, launch: Launch) -> int | None:
    """Return the ranks of all nodes; None where that is not written."""
    for names in WORLD:
        if any(name in launch.arguments for name in names):
            counts = [number(launch.arguments, name, default=1) for name in names]
            return math.prod(count for count in counts if count) if all(counts) else None
    if launch.program == "torchrun" and not launch.may_have_more_options:
        per_node, nodes = number(launch.options, "nproc_per_node", default=1), node_count(part, launch)
        return per_node * (nodes or 1) if per_node and (nodes or "nnodes" not in launch.options) else None
    if launch.program == "accelerate":
        return number(launch.options, "num_processes")
    if launch.program == "deepspeed" and "num_gpus" in launch.options:
        sizes = [number(launch.options, "num_gpus"), number(launch.options, "num_nodes", default=1)]
        return math.prod(size for size in sizes if size) if all(sizes) else None
    if launch.program == "python":
        tasks = tasks_per_node(part, launch)
        return tasks * part.job_nodes if tasks and part.job_nodes else None
    return None


@rule(
    "ranks.rollouts", "error", "verl-project/verl, verl/utils/config.py, validate_config, and workers/config/actor.py"
)
def batches_of_verl(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report verl's batches that its GPUs do not divide, and rollouts over more GPUs than divide them."""
    for launch in part.start.launches:
        arguments, ranks = launch.arguments, _ranks(part, launch)
        if "trainer.n_gpus_per_node" not in arguments or not ranks:
            continue
        batch = arguments.get("data.train_batch_size") or arguments.get("data.batch_size")
        samples = number(arguments, VERL + "rollout.n", default=1)
        dynamic, strategy = arguments.get(VERL + "actor.use_dynamic_bsz"), arguments.get(VERL + "actor.strategy")
        is_checked = not (dynamic and dynamic.text.lower() == "true") and not (strategy and strategy.text == "megatron")
        if batch and batch.number and samples and is_checked and batch.number * samples % ranks:
            problem = f"a batch of {batch.number} * {samples} samples does not divide by {ranks} GPUs"
            yield batch, problem, f"take a multiple of {ranks // math.gcd(ranks, samples)}"
        mini = arguments.get(VERL + "actor.ppo_mini_batch_size")
        if is_checked and batch and batch.number and mini and mini.number and mini.number > batch.number:
            yield (
                mini,
                f"mini batch {mini.number} is more than the batch of {batch.number}",
                f"write {batch.number} at most",
            )
        tensor = arguments.get(VERL + "rollout.tensor_model_parallel_size") or arguments.get(
            "rollout.tensor_model_parallel_size"
        )
        if tensor and tensor.number and ranks % tensor.number:
            yield tensor, f"{ranks} GPUs do not divide by rollouts over {tensor.number}", f"take a divisor of {ranks}"


@rule(
    "ranks.batches",
    "error",
    "deepspeedai/DeepSpeed, deepspeed/runtime/config.py, _batch_assertion; huggingface/transformers, "
    "integrations/deepspeed.py",
)
def batches_of_deepspeed(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report batches in DeepSpeed's file beside the script that do not fit each other, the ranks or the arguments."""
    for launch in part.start.launches:
        word = next((launch.arguments[name] for name in DEEPSPEED_FILES if name in launch.arguments), None)
        settings = _json_settings(part, word.text) if word else {}
        if not word or not settings:
            continue
        total, micro, steps = (
            settings.get(name)
            for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        )
        ranks = _ranks(part, launch)
        if total and micro and total % (micro * (steps or 1) * (ranks or 1)):
            problem = f"train_batch_size {total} is no multiple of micro batch {micro} * {steps or 1} steps"
            yield (
                word,
                f"{problem} * {ranks or 1} ranks, in {word.text}",
                "leave train_batch_size out, or write the product",
            )
        elif total and micro and steps and ranks and total != micro * steps * ranks:
            problem = f"train_batch_size {total} is not micro batch {micro} * {steps} steps * {ranks} ranks"
            yield word, f"{problem}, in {word.text}", f"write {micro * steps * ranks}, or leave it out"
        for argument, value in (("per_device_train_batch_size", micro), ("gradient_accumulation_steps", steps)):
            other = launch.arguments.get(argument)
            if other and other.number and value and other.number != value:
                problem = f"--{argument} {other.number}, and {word.text} has {value}"
                yield other, f"{problem}: the Trainer refuses to start", 'write "auto" in the file'


def _json_settings(part: JobPart, name: str) -> dict[str, int]:
    """Return the whole numbers of a JSON file beside a part's file; none where it is not there."""
    path = Path(part.file).parent / name
    try:
        data = json.loads(files.read_text(path)) if name.endswith(".json") and path.is_file() else {}
    except (ValueError, RecursionError, RdmaImagesError):
        return {}
    return {key: value for key, value in data.items() if type(value) is int} if isinstance(data, dict) else {}


@rule("ranks.engine", "warning", "NVIDIA/TensorRT-LLM, docs, Multi-node serving with trtllm-serve: a rank for each GPU")
def ranks_of_tensorrt(part: JobPart, _: CheckContext) -> Iterator[RuleFinding]:
    """Report a number of TensorRT-LLM's ranks that its parallel sizes do not make."""
    for launch in part.start.launches:
        tensor, pipeline = (number(launch.options, name, default=1) for name in ("tp_size", "pp_size"))
        tasks, nodes = tasks_per_node(part, launch), number(launch.srun or {}, "nodes", default=part.job_nodes)
        word = launch.options.get("tp_size") or launch.options.get("pp_size")
        if launch.program != "trtllm" or not (word and tensor and pipeline and tasks and nodes):
            continue
        if tasks * nodes != tensor * pipeline:
            problem = f"srun starts {tasks * nodes} ranks, and tensor * pipeline parallelism is {tensor * pipeline}"
            yield word, problem, "start one task for each GPU of the model"
