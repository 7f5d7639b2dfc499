"""NCCL's channels over GPUs: the plugin moves data between two nodes."""

from rdma_images.facts.nccl_logs import load_log_patterns
from rdma_images.inspection.machine import MeasuredGpus
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support import plugin_log
from validators.support.machine import LOG_SOURCE, describe_run, has_right_sums, judge_run, too_few_gpus


@validator("gpu.plugin", source=LOG_SOURCE, tier="gpu")
def test_plugin(gpus: MeasuredGpus, require: Requirement) -> None:
    """Between two nodes the plugin is loaded, starts, registers memory and moves data, right in every element."""
    if not gpus.network.plugin:
        skip("the loader finds no plugin for libfabric: see plugin.found")
    if reason := too_few_gpus(gpus):
        skip(reason)
    run = gpus.runs["two-nodes"]
    if gpus.network.device and not judge_run(run).is_over("efa"):
        skip("the channels do not use EFA: see gpu.network")
    work = plugin_log.plugin_steps(run.log, load_log_patterns())
    without_efa = "" if gpus.network.device else ", in the place of EFA, for which the machine has no device"
    require(
        work.is_complete and has_right_sums(run),
        expected="loaded, started, connected to another node over libfabric, the right sum on each",
        actual=f"{work.sentence}; {describe_run(run)}{without_efa}",
        fix="look at NCCL's log in the report's facts: it shows which of these steps failed; the checks plugin.* and "
        "libfabric.* of the static tier say what to do",
    )
