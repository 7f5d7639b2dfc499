"""Which files a check reads, whole folders among them, and what of them it leaves out."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.check import check_files, findings_table
from tests.support.foreign_jobs import DIGEST, TRAIN_JOB, checked, pods, sbatch
from tests.support.processor_limit import processor_limit
from tests.support.unprivileged import UNPRIVILEGED

TEST_DATA = Path(__file__).parents[2] / "data"
GENERATED = [
    folder
    for folder in sorted((TEST_DATA / "golden" / "jobs").iterdir())
    if not folder.name.startswith(("arena", "docker", "eksctl", "sagemaker"))
]

HELM = 'apiVersion: v1\nkind: Pod\nmetadata:\n  {{- include "labels" . | nindent 2 }}\n'


def test_a_folder_is_walked_in_depth_and_one_broken_file_does_not_end_it(tmp_path: Path) -> None:
    deep, hidden = tmp_path / "a" / "b" / "c", tmp_path / ".git"
    for folder in (deep, hidden):
        folder.mkdir(parents=True)
        (folder / "job.yaml").write_text(pods("NCCL_DEBUGG=INFO"))
    (deep / "twin.yaml-template").write_text(pods("NCCL_DEBUGG=INFO"))
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "chart.yaml").write_text(HELM)
    (tmp_path / "jinja.yaml").write_text("{% if x %}\nkind: Pod\n{% endif %}\n")
    (tmp_path / "good.yaml").write_text(pods())
    result = check_files([tmp_path])
    assert [Path(part.file).name for part in result.groups] == ["good.yaml", "job.yaml", "twin.yaml-template"]
    assert [Path(row.file).name for row in result.unreadable] == ["broken.yaml"]
    assert [Path(row.file).name for row in result.templates] == ["chart.yaml", "jinja.yaml"]
    (finding,) = result.findings
    assert [Path(location).name.partition(":")[0] for location in finding.where] == ["job.yaml", "twin.yaml-template"]
    shown = findings_table.findings_text(result).plain
    assert f"passed over  {tmp_path}/chart.yaml: a template of Helm or Jinja" in shown
    assert f"not read  {tmp_path}/broken.yaml:1: not valid YAML" in shown
    assert "0 errors, 1 warning in 3 parts of jobs in 6 files; 1 file not read" in shown


def test_open_values_in_flow_form_are_read(tmp_path: Path) -> None:
    text = pods().replace("metadata: {name: training}", "metadata: { name: ${NAME}, namespace: ${SPACE} }")
    assert checked(tmp_path, job_yaml=text).unreadable == ()


@pytest.mark.parametrize(("operator", "instance"), [("In", "p5.48xlarge"), ("NotIn", None)])
def test_a_deep_affinity_is_read(tmp_path: Path, operator: str, instance: str | None) -> None:
    affinity = (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}]}]}}}"
    ).replace("In,", f"{operator},")
    text = TRAIN_JOB.replace("{nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}}", f"{{{affinity}}}")
    assert affinity in text
    (part,) = checked(tmp_path, runtime_yaml=text).groups
    assert (part.instance.text if part.instance else None) == instance


def test_nothing_is_wrong_says_what_was_looked_at(tmp_path: Path) -> None:
    shown = findings_table.findings_text(checked(tmp_path, job_yaml=pods())).plain
    assert "nothing is wrong in 1 part of jobs in 1 file" in shown
    assert "looked at variables and images, and at the counts of p5.48xlarge" in shown


@pytest.mark.parametrize(
    ("options", "command", "instance", "errors"),
    [
        ("--constraint=p5.48xlarge", "train", "p5.48xlarge", 1),
        ("--constraint=[dynamic&p5.48xlarge]", "train", "p5.48xlarge", 1),
        ("--partition=p5.48xlarge", "train", "p5.48xlarge", 1),
        ("-pp5.48xlarge", "train", "p5.48xlarge", 1),
        ("--constraint=efa", "rdma-preflight --require efa -- train", "", 1),
        ("--constraint=p5.48xlarge|p4d.24xlarge", "train", "", 0),  # which of them is not known
    ],
)
def test_a_script_says_its_fabric_by_its_nodes_or_by_the_preflight(
    tmp_path: Path, options: str, command: str, instance: str, errors: int
) -> None:
    text = sbatch("export FI_PROVIDER=tcp", f"srun {command}", options=f"--gpus-per-node=8 {options}")
    result = checked(tmp_path, job_sbatch=text)
    (part,) = result.groups
    assert (part.instance.text if part.instance else "") == instance
    assert [finding.rule for finding in result.findings] == ["environment.harmful"] * errors
    shown = findings_table.findings_text(result).plain
    assert ("the fabric is not known: variables were not judged for one" in shown) == (not errors)


def test_a_script_with_its_nodes_is_looked_at_for_its_counts(tmp_path: Path) -> None:
    text = sbatch("srun train", options="-N4 --gpus-per-node=8 --constraint=p5.48xlarge")
    shown = findings_table.findings_text(checked(tmp_path, job_sbatch=text)).plain
    assert "sbatch script, 4 nodes, p5.48xlarge\n" in shown
    assert "looked at variables and images, and at the counts of p5.48xlarge" in shown
    text = sbatch("srun train", options="--nodes=2 --gpus-per-node=8")
    shown = findings_table.findings_text(checked(tmp_path, job_sbatch=text)).plain
    assert "not at counts: no part names the instance type of its GPUs" in shown


def test_of_a_file_that_is_not_read_nothing_else_is_said(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    shown = findings_table.findings_text(check_files([tmp_path / "broken.yaml"])).plain
    assert shown.startswith(f"not read  {tmp_path}/broken.yaml:1: not valid YAML")
    assert len(shown.splitlines()) == 1


def task(*words: str, by: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*by, sys.executable, "-m", "invoke", "job.check", *words]
    return subprocess.run(command, cwd=paths.PROJECT, capture_output=True, text=True)


def test_a_named_file_that_cannot_be_read_ends_with_two_and_one_in_a_folder_does_not(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "job.yaml").write_text(pods())
    named = task(str(tmp_path / "job.yaml"), "--json", str(tmp_path / "broken.yaml"))
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


def test_a_file_with_marks_for_another_program_is_a_template(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml.template").write_text("images: [{newName: %IMAGE%}]\nnewTag: %TAG%\n")
    result = checked(tmp_path, job_yaml=pods())
    assert [row.why for row in result.templates] == ["a template that is no YAML yet: check its output"]
    assert result.unreadable == ()


def test_a_file_without_end() -> None:
    (row,) = check_files([Path("/dev/zero")]).unreadable
    assert "has more than 16 MiB" in row.why


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
    assert [part.title for part in checked(tmp_path, train_py=text).groups if "train.py" in part.file] == titles


def test_jobs_of_this_tool_are_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("jobs:\n  training: {launcher: slurm, nodes: two}\n")
    (tmp_path / "workflow.yaml").write_text("jobs:\n  build: {runs-on: ubuntu-latest}\n")
    with pytest.raises(RefusedError, match=r"no job in it\n.*/jobs.yaml: jobs of this tool: `invoke job --job NAME`"):
        check_files([tmp_path])
    with pytest.raises(RefusedError, match="no job in it\ngive a Kubernetes manifest"):
        check_files([tmp_path / "workflow.yaml"])


@pytest.mark.parametrize(
    "text",
    [
        "just: text\n",
        "",
        "kind: Pod\nspec: {containers: [1, null]}\n",
        "kind: 7\nspec: {containers: {}}\n",
        "kind: [a]\n",
    ],
)
def test_what_is_no_job_gets_a_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(RefusedError, match="no job in it\ngive a Kubernetes manifest"):
        checked(tmp_path, job_yaml=text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "not valid YAML"),
        ("kind: MPIJob\nkind: MPIJob\n", "is written twice"),
        ("a: &a [*a]\n", "nested deeper"),
    ],
)
def test_what_cannot_be_read_is_a_line_of_the_result(tmp_path: Path, text: str, sentence: str) -> None:
    (row,) = checked(tmp_path, job_yaml=text).unreadable
    assert row.file == str(tmp_path / "job.yaml")
    assert sentence in row.why


def test_the_task_ends_with_one_where_it_finds_an_error_that_no_comment_allows(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    text = pods("FI_PROVIDER=tcp")
    path.write_text(text)
    wrong = task(str(path), "--json")
    assert wrong.returncode == 1, wrong.stderr
    (finding,) = json.loads(wrong.stdout)["findings"]
    assert (finding["rule"], finding["is_allowed"]) == ("environment.harmful", False)
    setting = next(line for line in text.splitlines() if "FI_PROVIDER" in line)
    path.write_text(text.replace(setting, f"        # rdma-images: allow environment.harmful\n{setting}"))
    assert task(str(path)).returncode == 0


TCP = sbatch(
    "{above}", "export NCCL_NET=Socket{beside}", f"srun --container-image={DIGEST} --container-env=NCCL_NET train"
)


@pytest.mark.parametrize(
    ("above", "beside", "is_allowed"),
    [
        ("", "", False),
        ("", "  # rdma-images: allow tcp.chosen", True),
        ("# rdma-images: allow tcp.chosen", "", True),
        ("#   rdma-images: allow image.tag, tcp.chosen\n# TCP, to compare with.", "", True),
        ("# rdma-images: allow image.tag", "", False),
        ("# rdma-images: allow tcp.chosen\nexport NCCL_DEBUG=INFO", "", False),
    ],
)
def test_a_deliberate_setting_of_a_batch_script(tmp_path: Path, above: str, beside: str, is_allowed: bool) -> None:
    (finding,) = checked(tmp_path, job_sbatch=TCP.format(above=above, beside=beside)).findings
    assert (finding.rule, finding.is_allowed) == ("tcp.chosen", is_allowed)


def test_a_directive_is_the_line_that_a_comment_above_it_is_about(tmp_path: Path) -> None:
    text = sbatch("srun train", options="--nodes=2 --container-image=trainer:1")
    allowed = text.replace("#SBATCH --container", "# rdma-images: allow image.tag\n#SBATCH --container")
    (finding,) = checked(tmp_path, job_sbatch=allowed).findings
    assert finding.is_allowed


def test_a_comment_that_names_no_rule_is_reported_at_its_own_line(tmp_path: Path) -> None:
    above = "# rdma-images: allow tcp.chosn, tcp.chosen"
    unknown, chosen = checked(tmp_path, job_sbatch=TCP.format(above=above, beside="")).findings
    line = (tmp_path / "job.sbatch").read_text().splitlines().index(above) + 1
    assert (unknown.severity, unknown.where) == ("warning", (f"{tmp_path}/job.sbatch:{line}",))
    assert (unknown.message, unknown.fix) == (
        "no rule is called tcp.chosn: the comment allows nothing",
        "did you mean tcp.chosen?",
    )
    assert (chosen.rule, chosen.is_allowed) == ("tcp.chosen", True)


def test_one_place_of_two_is_allowed(tmp_path: Path) -> None:
    text = pods("FI_PROVIDER=tcp")
    line = next(line for line in text.splitlines() if "FI_PROVIDER" in line)
    allowed = text.replace(line, f"{line}  # rdma-images: allow environment.harmful")
    first, second = checked(tmp_path, a_yaml=text, b_yaml=allowed).findings
    assert [(finding.is_allowed, len(finding.where)) for finding in (first, second)] == [(False, 1), (True, 1)]


@pytest.mark.parametrize("folder", GENERATED, ids=lambda folder: folder.name)
def test_nothing_is_wrong_with_a_generated_job(folder: Path) -> None:
    result = check_files([folder])
    assert result.groups
    assert result.findings == ()


def test_the_manifest_of_a_document_on_eks() -> None:
    """Its text asks for four EFA, its file for the 32 that p5.48xlarge has: the counts are right, the variables not."""
    result = check_files([TEST_DATA / "jobs" / "eks-nccl-tests.yaml"])
    places = {(finding.rule, row.rpartition(":")[2]) for finding in result.findings for row in finding.where}
    assert places == {
        ("image.tag", "18"),
        ("image.tag", "38"),
        ("environment.library-path", "21"),
        ("plugin.missing", "29"),
    }


ITEM = (
    "- spec: {nodeSelector: {node.kubernetes.io/instance-type: p5.%d}, "
    "containers: [{name: a, image: 'x:1', resources: {limits: {nvidia.com/gpu: 8}}}]}\n"
)
POD = "kind: Job\nspec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 8}}, "
HOSTILE = {
    "aliases.yaml": f"a: &a {'x' * 500_000}\n{POD}args: [{'*a,' * 90_000}]}}]}}\n",
    "deep.yaml": "a: " + "[" * 500_000,
    "keys.yaml": "kind: Job\n" + "".join(f"k{n}: v\n" for n in range(50_000)),
    "line.yaml": f"{POD}env: [{{name: FI_PROVIDER, value: '{'efa,' * 240_000}'}}]}}]}}\n",
    "names.yaml": f"{POD}env: ["
    + "".join(f"{{name: NCCL_IB_DISABLEX{n}, value: a}}," for n in range(18_000))
    + "]}]}\n",
    "pods.yaml": "kind: List\nitems:\n" + "".join(ITEM % n for n in range(6_000)),
    "braces.yaml": "{{" * 500_000,
    "deep.json": '{"a":' * 150_000,
    "words.sbatch": "#SBATCH -N 2\n" + "A='x' " * 160_000,
    "lines.sbatch": "#SBATCH -N 2\n" + "export NCCL_A=1 B=$C; srun --container-image=$A x\n" * 20_000,
    "spaces.sh": " " * 1_000_000 + "#SBATCH",
    "comments.sbatch": "#SBATCH -N 2\n" + "# rdma-images: allow a, a\n" * 38_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_nonsense_is_read_or_refused_in_two_seconds(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    with processor_limit(2), suppress(RefusedError):
        findings_table.findings_text(check_files([path]))
