"""What cannot be a job: one clear message, exit code 2, and nothing half written."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdma_images import facts
from rdma_images.core import atomic, paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord
from rdma_images.inputs import project
from rdma_images.jobs.write import create, render
from rdma_images.jobs.write.job_settings import JobSettings, parse_mount
from tests.support import job_parts as jobs
from tests.support.published_image import write_publication

MPIRUN, TORCHRUN = JobSettings(launch="mpirun"), JobSettings(launch="torchrun")
READ_ONLY = JobSettings(mounts=(parse_mount("s3://b:/d:ro"),))
OCI = {"runtime": "oci", "bundle": "/b"}
OTHER = "host.example/team/image@sha256:" + "0f" * 32


def refused(match: str, launcher: str = "mpijob", fabric: str = "efa", starter: str = "mpirun", **changes: Any) -> str:
    """Return the job is refused with these words, on two lines at most where the second says what to do."""
    with pytest.raises(RefusedError, match=match) as caught:
        jobs.files(jobs.job(launcher, fabric, starter, **changes))
    return str(caught.value)


@pytest.mark.parametrize(
    ("match", "changes"),
    [
        ("did you mean p5.48xlarge", {"instance": "p5.48xlarg"}),
        ("2 or more nodes", {"nodes": 1}),
        ("2 or more nodes", {"nodes": -3}),
        ("has eRDMA, and efa-nccl-tests is for EFA", {"instance": "ecs.ebmgn8v.48xlarge"}),
        ("is not certain", {"instance": "p6e-gb200.36xlarge"}),
        ("a tag can be moved", {"image": "host.example/team/image:latest"}),
        ("a tag can be moved", {"image": "image@sha256:short"}),
        ("is a rehearsal", {"image": "host.example/team/image:1-rehearsal@sha256:" + "0f" * 32}),
        ("1 to 8", {"gpus": 9}),
        ("1 to 8", {"gpus": -1}),
        ("lower-case letters", {"name": "Job_1"}),
        ("up to 45", {"name": "j" * 46}),
        ("starts the ranks itself", {"command": ("mpirun", "-np", "2", "x")}),
        ("the form", {"parameters": {"memory": "64Gi"}}),
        ("no such parameter", {"parameters": {"mtu": "8500"}}),
        ("the form", {"parameters": {"namespace": "a b"}}),
    ],
)
def test_a_job_that_cannot_be(match: str, changes: dict[str, Any]) -> None:
    refused(match, **changes)


@pytest.mark.parametrize(
    ("match", "launcher", "fabric", "starter", "changes"),
    [
        ("choose one of its launchers: mpijob", "pytorchjob", "efa", "mpirun", {}),
        ("efa-pytorch has torchrun", "mpijob", "efa", "torchrun", {}),
        (
            "efa-pytorch has no nccl-tests\nadd nccl-tests to its row of matrix.yaml",
            *("mpijob", "efa", "torchrun"),
            {"settings": MPIRUN},
        ),
        ("p5.48xlarge is for EFA", "arena", "efa", "torchrun", {"target": "", "settings": TORCHRUN}),
        ("empty word", "slurm", "efa", "torchrun", {"command": ("", "x")}),
        ("exclude=n", "slurm", "efa", "torchrun", {"parameters": {"exclude": "n[3"}}),
        ("28 days", "sagemaker", "efa", "torchrun", {"settings": JobSettings(time=29 * 86400)}),
        ("puts data in /opt/ml", "sagemaker", "efa", "torchrun", {"settings": READ_ONLY}),
        ("leaves restarts to", "docker", "efa", "mpirun", {"settings": JobSettings(restarts=1)}),
        ("cannot set SLURM_NNODES", "slurm", "efa", "torchrun", {"settings": JobSettings(env={"SLURM_NNODES": "3"})}),
        ("hosts=-a,b", "docker", "efa", "torchrun", {"parameters": {"hosts": "-a,b"}}),
        ("names a machine twice", "docker", "efa", "torchrun", {"parameters": {"hosts": "one,one"}}),
        ("port=70000", "leaderworkerset", "efa", "torchrun", {"parameters": {"port": "70000"}}),
        ("namespace=-a", "pytorchjob", "efa", "torchrun", {"parameters": {"namespace": "-a"}}),
        ("is for eRDMA, and efa-pytorch is for EFA", "arena", "efa", "torchrun", {}),
        ("after -- give what each rank runs", "trainjob", "efa", "torchrun", {"command": ()}),
        ("starts the ranks itself", "trainjob", "efa", "torchrun", {"command": ("torchrun", "x.py")}),
        ("only takes images that match", "sagemaker", "efa", "torchrun", {"image": OTHER}),
        ("has no instance type g4dn.metal", "sagemaker", "efa", "torchrun", {"instance": "g4dn.metal"}),
        ("256 characters", "sagemaker", "efa", "torchrun", {"command": ("a.py", "x" * 300)}),
        ("up to 100 arguments", "sagemaker", "efa", "torchrun", {"command": ("a.py", *"x" * 100)}),
        ("names of the 3 machines", "docker", "efa", "torchrun", {"nodes": 3}),
        ("one process of a node", "slurm", "efa", "mpirun", {"parameters": OCI}),
        ("bundle=", "slurm", "efa", "torchrun", {"parameters": {"runtime": "oci"}}),
        ("accelerator=", "skypilot", "efa", "torchrun", {"instance": "g7e.48xlarge"}),
    ],
)
def test_a_launcher_that_cannot(match: str, launcher: str, fabric: str, starter: str, changes: dict[str, Any]) -> None:
    refused(match, launcher, fabric, starter, **changes)


@pytest.mark.parametrize("words", [("bash", "-c", "cd /x && ./a; b | c > d"), ("train.py", "--end", "<s>", "--a=x;")])
def test_words_that_only_look_like_a_shells_are_handed_on(words: tuple[str, ...]) -> None:
    assert jobs.job("slurm", "efa", "torchrun", command=words).command[-len(words) :] == words


def test_what_only_the_user_knows_is_asked_for_by_name_all_at_once() -> None:
    request = replace(jobs.job_request("sagemaker", "efa", "torchrun"), parameters={})
    with pytest.raises(RefusedError) as caught:
        create.write_job(request, jobs.load_project())
    for name in ("role", "subnets", "security-groups", "output", "region"):
        assert f"--param {name}=" in str(caught.value)
    request = replace(jobs.job_request("mpijob", "erdma", "mpirun"), parameters={})
    with pytest.raises(RefusedError, match=r"mtu=.*\n.*cidr="):
        create.write_job(request, jobs.load_project())


@pytest.mark.parametrize("cidr", ["999.0.0.0/8", "10.0.0.0/99", "10.0.0/8", "10.0.0.0.0/8"])
def test_a_range_of_addresses_is_a_network(cidr: str) -> None:
    request = replace(jobs.job_request("mpijob", "erdma", "mpirun"), parameters={"cidr": cidr})
    with pytest.raises(RefusedError, match=f"--param cidr={cidr}: not of the form"):
        create.write_job(request, jobs.load_project())


@pytest.mark.parametrize("zone", ["us-west-2a", "eu-west-1b", "us-west-22b"])
def test_the_second_zone_is_another_one_of_the_region(zone: str) -> None:
    with pytest.raises(RefusedError, match=f"--param second-zone={zone}"):
        jobs.cluster_files("p5.48xlarge", **{"second-zone": zone})


def test_an_arm_node_wants_an_arm_image() -> None:
    types = jobs.load_project().facts.instances.types
    types["test.arm"] = types["p5.48xlarge"].model_copy(update={"architecture": "arm64"})
    try:
        refused("--set platform=linux/arm64", instance="test.arm")
        arm = {"platform": "linux/arm64", "base": "ubuntu24.04", "aws-ofi-nccl": "1.21.1"}
        job = jobs.job("trainjob", "efa", "torchrun", instance="test.arm", changes=arm)
        assert "kubernetes.io/arch: arm64" in jobs.files(job)["runtime.yaml"]
    finally:
        del types["test.arm"]


FOREIGN: dict[str, Any] = {"target": "", "settings": MPIRUN, "command": ("/opt/train", "--steps", "3")}


@pytest.mark.parametrize("launcher", ["mpijob", "trainjob", "skypilot", "docker"])
def test_mpirun_over_ssh_wants_a_target(launcher: str) -> None:
    with pytest.raises(RefusedError, match="belongs to no target, and ssh hands on no variables"):
        jobs.job(launcher, "efa", "mpirun", **FOREIGN)


@pytest.mark.usefixtures("images")
def test_srun_starts_the_ranks_of_an_image_without_a_target() -> None:
    script = jobs.files(jobs.job("slurm", "efa", "mpirun", **FOREIGN))["job.sbatch"]
    assert "--mpi=pmix" in script
    assert "/opt/train --steps 3" in script
    with pytest.raises(RefusedError, match="nothing to run"):
        jobs.job("slurm", "efa", "mpirun", **{**FOREIGN, "command": ()})


@pytest.mark.parametrize(("launcher", "launch"), [("mpijob", "mpirun"), ("slurm", "torchrun")])
def test_a_launch_that_the_launcher_has_is_named(launcher: str, launch: str) -> None:
    with pytest.raises(RefusedError, match=f"as in --field launch={launch}"):
        jobs.job(launcher, "efa", "torchrun", target="")


@pytest.fixture(name="images")
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty build/images/, in which a test says what is published."""
    monkeypatch.setattr(paths, "IMAGES", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("images")
def test_the_published_image_is_taken_by_its_digest() -> None:
    write_publication(jobs.planned_image("efa-nccl-tests"), one=OTHER)
    job = jobs.job("mpijob", "efa", "mpirun", image="")
    assert job.image == OTHER
    assert next(value for value in job.values if value.name == "image").source.startswith("publication.json")


@pytest.mark.usefixtures("images")
def test_an_image_that_is_not_published_or_not_to_be_had() -> None:
    refused("is not published\ninvoke publish --target efa-nccl-tests", image="")
    image = jobs.planned_image("efa-nccl-tests")
    write_publication(image, one=OTHER, two=jobs.IMAGE)
    refused("in 2 registries\nname one of them: --image", image="")
    write_publication(image, ("efa-installer-1.50.0",), one=OTHER)
    refused("is a rehearsal", image="")


def test_a_rehearsal_is_known_by_its_digest(images: Path) -> None:
    image = jobs.planned_image("efa-nccl-tests")
    built = BuildRecord(
        image.id, "rdma-images/x:y-rehearsal", "sha256:" + "0f" * 32, "", ("efa-installer-1.50.0",), "", 0
    )
    atomic.write(images / image.id / "build.json", json.dumps(vars(built)))
    refused("is a rehearsal", image=OTHER)


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    request = jobs.job_request("mpijob", "efa", "mpirun", name="first")
    out = tmp_path / "out"
    create.write_job(request, jobs.load_project(), str(out))
    before = {path.name: path.read_text() for path in out.iterdir()}
    assert set(before) == {"README.md", "job.json", "mpijob.yaml"}
    with pytest.raises(RefusedError):
        create.write_job(replace(request, nodes=1), jobs.load_project(), str(out))
    assert {path.name: path.read_text() for path in out.iterdir()} == before
    create.write_job(replace(request, nodes=4), jobs.load_project(), str(out))
    assert "replicas: 4" in (out / "mpijob.yaml").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_job_that_is_written_again_keeps_its_runs_and_what_others_wrote(tmp_path: Path) -> None:
    out = tmp_path / "out"
    request = jobs.job_request("mpijob", "efa", "mpirun")
    create.write_job(request, jobs.load_project(), str(out))
    run = out / "runs" / "20261122T060000Z" / "logs"
    run.mkdir(parents=True)
    (run / "0.log").write_text("a log")
    (out / "notes.txt").write_text("mine")
    create.write_job(jobs.job_request("trainjob", "efa", "mpirun"), jobs.load_project(), str(out))
    files = {"README.md", "job.json", "kustomization.yaml", "runtime.yaml", "trainjob.yaml"}
    assert {path.name for path in out.iterdir()} == {*files, "runs", "notes.txt"}
    assert ((run / "0.log").read_text(), (out / "notes.txt").read_text()) == ("a log", "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    create.write_job(jobs.job_request("mpijob", "efa", "mpirun"), jobs.load_project(), str(out))
    (out / "trainjob.yaml").write_text("mine")
    with pytest.raises(RefusedError, match=r"trainjob.yaml is not of the job .*\nrename it"):
        create.write_job(jobs.job_request("trainjob", "efa", "mpirun"), jobs.load_project(), str(out))
    assert {path.name for path in out.iterdir()} == {"README.md", "job.json", "mpijob.yaml", "trainjob.yaml"}
    assert (out / "trainjob.yaml").read_text() == "mine"


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RefusedError, match="that no job wrote"):
        create.write_job(jobs.job_request("mpijob", "efa", "mpirun"), jobs.load_project(), str(tmp_path))
    with pytest.raises(RefusedError, match="is a file"):
        create.write_job(jobs.job_request("mpijob", "efa", "mpirun"), jobs.load_project(), str(tmp_path / "thesis.tex"))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def invoke(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "invoke", *words], cwd=paths.PROJECT, capture_output=True, text=True)


def test_the_task(tmp_path: Path) -> None:
    options = ["--target", "efa-pytorch", "--launcher", "slurm", "--instance", "p5en.48xlarge", "--nodes", "2"]
    completed = invoke(
        "job", *options, "--image", jobs.IMAGE, "--out", str(tmp_path / "o"), "--json", "--", "train.py", "two words"
    )
    assert completed.returncode == 0
    data = json.loads(completed.stdout)
    assert data["command"] == ["train.py", "two words"]
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["README.md", "job.json", "job.sbatch"]
    completed = invoke("job", *options)
    assert completed.returncode == 2
    assert "Traceback" not in completed.stderr


def test_the_launchers_are_shown() -> None:
    completed = invoke("job.launchers", "--json")
    rows = json.loads(completed.stdout)
    assert rows["launchers"]["sagemaker"]["parameters"]["role"]["default"] is None
    assert rows["clusters"]["eksctl"]["parameters"]["capacity-block"]["optional"]
    output = invoke("job.launchers").stdout
    arena = output.partition("\narena ")[2].partition("\n\n")[0]
    assert "erdma-pytorch" in arena
    assert "efa-pytorch" not in arena
    assert "parameters below: namespace, memory, mtu, cidr" in arena
    assert output.count("--param  mtu ") == 1
    assert "--param  capacity-block" in output
    assert "capacity-block" in invoke("--help", "cluster").stdout


def test_a_launcher_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row and a template, as the guide has them, in the folder of a user of the installed command."""
    text = (paths.PROJECT / "docs" / "guides" / "own-launcher.md").read_text(encoding="utf-8")
    before, _, after = text.partition("```jinja\n")
    row, template = before.rpartition("```yaml\n")[2].split("```")[0], after.split("```")[0]
    folder = shutil.copytree(paths.FACTS, tmp_path / "facts")
    launchers = folder / "launchers.yaml"
    launchers.write_text(launchers.read_text(encoding="utf-8").replace("\nlaunchers:\n", f"\nlaunchers:\n{row}", 1))
    (tmp_path / "jobs" / "my-batch").mkdir(parents=True)
    (tmp_path / "jobs" / "my-batch" / "submit.sh.j2").write_text(template)
    monkeypatch.setattr(paths, "INSTALLED", True)
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    monkeypatch.setattr(render, "_environment", render._environment.__wrapped__)
    mine = project.Project(jobs.load_project().matrix, facts.load(folder))
    request = replace(jobs.job_request("slurm", "efa", "torchrun"), launcher="my-batch", parameters={"queue": "night"})
    job, job_folder = create.write_job(request, mine, str(tmp_path / "o"))
    script = (job_folder / "submit.sh").read_text()
    assert "--queue night" in script
    assert jobs.IMAGE in script
    assert job.nodes == 2
