"""Jobs that others wrote, and what the checks say of them."""

from pathlib import Path

from rdma_images.jobs.check import check_files
from rdma_images.jobs.check.node_group import CheckedJobs, JobFinding

DIGEST = f"registry.example/trainer@sha256:{'7c' * 32}"
EFA = "vpc.amazonaws.com/efa"
TRAIN_JOB = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: train}}
spec:
  runtimeRef: {{name: torch-efa}}
  podTemplateOverrides:
  - targetJobs: [{{name: node}}]
    spec: {{nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}}}
  trainer:
    numNodes: 2
    resourcesPerNode:
      limits: {{nvidia.com/gpu: 8, {EFA}: 32}}
"""
SKYPILOT = """
num_nodes: 2
resources: {infra: aws/us-east-1, accelerators: "H100:8", network_tier: best}
run: torchrun train.py
"""


def checked(folder: Path, **texts: str) -> CheckedJobs:
    """Check files of these names, with `_` for the dot."""
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return check_files([folder])


def pods(
    env: str = "",
    instance: str = "p5.48xlarge",
    efa: str | None = "32",
    gpus: str = "8",
    nodes: int = 2,
    spec: str = "",
    command: str = "[train]",
    image: str = DIGEST,
) -> str:
    """Return a StatefulSet of pods; `env` is NAME=value."""
    name, _, value = env.partition("=")
    resources = f"nvidia.com/gpu: {gpus}" + (f", {EFA}: {efa}" if efa else "")
    return f"""
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: training}}
spec:
  replicas: {nodes}
  template:
    spec:
      {spec or "dnsPolicy: ClusterFirst"}
      {f"nodeSelector: {{node.kubernetes.io/instance-type: {instance}}}" if instance else ""}
      containers:
      - name: rank
        image: {image}
        command: {command}
        env: [{{name: {name or "NCCL_DEBUG"}, value: "{value or "INFO"}"}}]
        resources:
          requests: {{{resources}}}
          limits: {{{resources}}}
        volumeMounts: [{{name: shm, mountPath: /dev/shm}}]
"""


def findings(folder: Path, rule: str, **texts: str) -> list[JobFinding]:
    return [finding for finding in checked(folder, **texts).findings if finding.rule == rule]


def rated_messages(folder: Path, rule: str, **texts: str) -> list[tuple[str, str]]:
    """Return the severity and the message of each finding of one rule."""
    return [(finding.severity, finding.message) for finding in findings(folder, rule, **texts)]


def severities(folder: Path, rule: str, **texts: str) -> list[str]:
    return [finding.severity for finding in findings(folder, rule, **texts)]


def sbatch(*lines: str, options: str = "--nodes=2") -> str:
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options.split()), *lines, ""])
