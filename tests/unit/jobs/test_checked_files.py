"""Which files a check reads, whole folders among them, and what of them it leaves out."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.check import check_files, findings_table
from tests.support.foreign_jobs import EFA, RUNTIME, checked, findings, pods
from tests.unit.core.test_files import UNPRIVILEGED

HELM = 'apiVersion: v1\nkind: Pod\nmetadata:\n  {{- include "labels" . | nindent 2 }}\n'
DEFINITION = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n" + "".join(
    f"{'  ' * depth}x:\n" for depth in range(1, 80)
)


def test_a_folder_is_walked_in_depth_and_one_broken_file_does_not_end_it(tmp_path: Path) -> None:
    deep, hidden = tmp_path / "a" / "b" / "c", tmp_path / ".git"
    for folder in (deep, hidden):
        folder.mkdir(parents=True)
        (folder / "job.yaml").write_text(pods("FI_EFA_FORK_SAFE=1"))
    (deep / "twin.yaml-template").write_text(pods("FI_EFA_FORK_SAFE=1"))
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "chart.yaml").write_text(HELM)
    (tmp_path / "jinja.yaml").write_text("{% if x %}\nkind: Pod\n{% endif %}\n")
    (tmp_path / "definition.yaml").write_text(DEFINITION)
    (tmp_path / "bundle.yaml").write_text(f"{DEFINITION}---\n{pods()}")
    result = check_files([tmp_path])
    assert [Path(part.file).name for part in result.parts] == ["bundle.yaml", "job.yaml", "twin.yaml-template"]
    assert [Path(row.file).name for row in result.unreadable] == ["broken.yaml"]
    assert {Path(row.file).name: row.why.split(":")[0] for row in result.templates} == {
        "chart.yaml": "a Helm template",
        "jinja.yaml": "a Jinja template",
        "definition.yaml": "definitions of Kubernetes resources, and no job",
    }
    (finding,) = result.findings
    assert [Path(location).name.partition(":")[0] for location in finding.where] == ["job.yaml", "twin.yaml-template"]
    shown = findings_table.findings_text(result).plain
    assert f"passed over  {tmp_path}/chart.yaml: a Helm template" in shown
    assert f"not read  {tmp_path}/broken.yaml:1: not valid YAML" in shown
    assert "0 errors, 1 warning in 3 parts of jobs in 7 files; 1 file not read" in shown


def test_the_line_in_a_bundle_is_the_files(tmp_path: Path) -> None:
    text = f"{DEFINITION}---\n{pods('FI_EFA_FORK_SAFE=1')}"
    (finding,) = checked(tmp_path, bundle_yaml=text).findings
    assert "FI_EFA_FORK_SAFE" in text.splitlines()[int(finding.where[0].rpartition(":")[2]) - 1]


def test_open_values_in_flow_form_are_read(tmp_path: Path) -> None:
    text = pods().replace("metadata: {name: training}", "metadata: { name: ${NAME}, namespace: ${SPACE} }")
    assert checked(tmp_path, job_yaml=text).unreadable == ()


def test_a_deep_affinity_is_read(tmp_path: Path) -> None:
    affinity = (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}]}]}}}"
    )
    text = RUNTIME.replace("containers:", f"{affinity}\n                containers:").replace("NAME", "deep")
    (part,) = checked(tmp_path, runtime_yaml=text).parts
    assert part.instance is not None
    assert part.instance.text == "p5.48xlarge"


def test_nothing_is_wrong_says_what_was_looked_at(tmp_path: Path) -> None:
    shown = findings_table.findings_text(checked(tmp_path, job_yaml=pods())).plain
    assert "nothing is wrong in 1 part of jobs in 1 file" in shown
    assert "looked at 1 variable and 1 image, and at the counts of p5.48xlarge" in shown


def test_nothing_is_wrong_in_a_node_group_that_names_its_instance_type(tmp_path: Path) -> None:
    group = "name: g, instanceType: p5.48xlarge, efaEnabled: true, privateNetworking: true, availabilityZones: [a]"
    header = "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\n"
    shown = findings_table.findings_text(
        checked(tmp_path, cluster_yaml=f"{header}managedNodeGroups: [{{{group}}}]\n")
    ).plain
    assert shown.rstrip().endswith("; not at counts: no part asks for GPUs")


def task(*words: str, by: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*by, sys.executable, "-m", "invoke", "job.check", *words]
    return subprocess.run(command, cwd=paths.PROJECT, capture_output=True, text=True)


def test_a_named_file_that_cannot_be_read_ends_with_two_and_one_in_a_folder_does_not(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "job.yaml").write_text(pods())
    named = task(str(tmp_path / "job.yaml"), "--json", "--", str(tmp_path / "broken.yaml"))
    assert named.returncode == 2
    answer = json.loads(named.stdout)
    assert [row["file"] for row in answer["unreadable"]] == [str(tmp_path / "broken.yaml")]
    assert (len(answer["read"]), answer["passed-over"], answer["findings"]) == (1, [], [])
    assert task(str(tmp_path)).returncode == 0


def test_a_folder_that_may_not_be_read_is_a_line_of_the_result(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    (tmp_path / "job.yaml").write_text(pods())
    try:
        done = task(str(tmp_path), by=UNPRIVILEGED)
        named = task(str(closed), by=UNPRIVILEGED)
    finally:
        closed.chmod(0o700)
    assert f"not read  {closed}: Permission denied" in done.stdout
    assert "nothing is wrong in 1 part of jobs in 1 file; 1 file not read" in done.stdout
    assert (done.returncode, named.returncode) == (0, 2)


@pytest.mark.parametrize(("memory", "severity"), [("4Ti", None), ("5Ti", "warning"), ("99999999999Ti", "error")])
def test_memory_without_an_instance_type(tmp_path: Path, memory: str, severity: str | None) -> None:
    text = pods(instance="").replace(f"{EFA}: 32", f"{EFA}: 32, memory: {memory}")
    severities = [finding.severity for finding in findings(tmp_path, "memory.node", job_yaml=text)]
    assert severities == ([severity] if severity else [])


def test_gpus_of_5000_digits(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, "gpus.node", job_yaml=pods(gpus="9" * 5000))
    assert finding.message == "9999999999 GPUs, and p5.48xlarge has 8"


def test_a_file_with_marks_for_another_program_is_a_template(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml.template").write_text("images: [{newName: %IMAGE%}]\nnewTag: %TAG%\n")
    result = checked(tmp_path, job_yaml=pods())
    assert [row.why for row in result.templates] == ["a template that is no YAML yet: check what is made of it"]
    assert result.unreadable == ()


def test_a_memory_of_5000_digits_and_a_file_without_end(tmp_path: Path) -> None:
    text = pods().replace(f"{EFA}: 32", f"{EFA}: 32, memory: {'9' * 5000}")
    (finding,) = findings(tmp_path, "memory.node", job_yaml=text)
    assert finding.message == f"memory: {'9' * 29}…, and p5.48xlarge has 2048 GiB"
    (finding,) = findings(tmp_path, "memory.node", job_yaml=text.replace("p5.48xlarge", "$(TYPE)"))
    assert finding.severity == "error"
    assert finding.message == f"memory: {'9' * 29}…, and no known instance type has more than 4096 GiB"
    (row,) = check_files([Path("/dev/zero")]).unreadable
    assert "has more than 16 MiB" in row.why


def test_standard_input_without_an_end_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/zero").open(encoding="utf-8") as endless:
        monkeypatch.setattr("sys.stdin", endless)
        (row,) = check_files([Path("-")]).unreadable
    assert "standard input: has more than 16 MiB" in row.why


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("#!/usr/bin/env python3\n#SBATCH --nodes=2\nimport torch\n", ["sbatch script"]),
        ('"""As in:\n\n#!/bin/bash\n#SBATCH --job-name=test\nsrun torchrun --node_rank $SLURM_PROCID\n"""\n', []),
    ],
)
def test_a_script_in_the_text_of_a_python_program_is_no_job(tmp_path: Path, text: str, titles: list[str]) -> None:
    """As in stas00/ml-engineering, debug/torch-distributed-gpu-test.py."""
    (tmp_path / "job.yaml").write_text(pods())
    assert [part.title for part in checked(tmp_path, train_py=text).parts if "train.py" in part.file] == titles


def test_jobs_of_this_tool_are_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("jobs:\n  training: {launcher: slurm, nodes: two}\n")
    (tmp_path / "workflow.yaml").write_text("jobs:\n  build: {runs-on: ubuntu-latest}\n")
    with pytest.raises(RefusedError, match=r"no job in it\n.*/jobs.yaml: jobs of this tool: `invoke job --job NAME`"):
        check_files([tmp_path])
    with pytest.raises(RefusedError, match="no job in it\ngive a Kubernetes manifest"):
        check_files([tmp_path / "workflow.yaml"])
