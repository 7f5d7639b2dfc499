"""NCCL's channels between two nodes use the fabric, or NCCL refuses."""

from rdma_images.core.image import FABRIC_TITLES
from rdma_images.inspection.machine import MeasuredGpus
from rdma_images.validate.validator import Requirement, skip, validator
from validators.support.machine import LOG_SOURCE, describe_run, judge_run, too_few_gpus

REFUSAL_FIXES = {
    "efa": "set FI_PROVIDER=efa beside NCCL_NET: without it the plugin takes libfabric's tcp provider",
    "erdma": "set NCCL_NET=IB: without it NCCL uses TCP sockets",
}


@validator("gpu.network", source=LOG_SOURCE, tier="gpu")
def test_network(gpus: MeasuredGpus, fabric: str, require: Requirement) -> None:
    """Between two GPUs that NCCL takes for two nodes, its channels use the fabric."""
    if not gpus.network.device:
        skip(f"the machine has no device of {FABRIC_TITLES[fabric]}: see gpu.plugin and gpu.refusal")
    if reason := too_few_gpus(gpus):
        skip(reason)
    log_verdict = judge_run(gpus.runs["two-nodes"])
    require(
        log_verdict.is_over(fabric),
        expected=f"channels over {FABRIC_TITLES[fabric]}",
        actual=log_verdict.sentence,
        fix="the sentence found says why; the static and device checks say what to do",
    )


@validator("gpu.refusal", source=LOG_SOURCE, tier="gpu")
def test_refusal(gpus: MeasuredGpus, fabric: str, require: Requirement) -> None:
    """Where the fabric is not, the image's own environment makes NCCL end with an error."""
    if not gpus.network.required_network:
        skip("the image allows a fallback: its NCCL_NET names no network")
    if gpus.network.device:
        skip(f"the machine has a device of {FABRIC_TITLES[fabric]}: there is nothing to refuse")
    if reason := too_few_gpus(gpus):
        skip(reason)
    run = gpus.runs["refusal"]
    log_verdict = judge_run(run)
    require(
        log_verdict.network == "refused" and all(answer.error for answer in run.answers),
        expected=f"an error of every process, before it moves data, since there is no {FABRIC_TITLES[fabric]}",
        actual=f"{describe_run(run)}; {log_verdict.sentence}",
        fix=REFUSAL_FIXES[fabric],
    )
