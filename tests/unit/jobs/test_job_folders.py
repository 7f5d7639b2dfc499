"""The folder of any job: short lines, short files, good shell, and nothing of this machine."""

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import yaml

from rdma_images.core import paths
from rdma_images.core.image import Fabric
from rdma_images.jobs.write import create, decisions
from rdma_images.jobs.write.job import JobRequest
from rdma_images.jobs.write.job_settings import JobSettings, Launch
from rdma_images.preflight import preflight
from tests.support import job_parts as jobs

MAX_COLUMNS, MAX_LINES = 200, 150
INSTANCES = {
    "efa": ("p5.48xlarge", "p4d.24xlarge", "g5.48xlarge"),
    "erdma": ("ecs.ebmgn8v.48xlarge", "ecs.gn8is-4x.16xlarge"),
}
EVERY = list(jobs.combinations())
# What a user may add; a port, replicas and a probe are those of a server, and a bundle has a job of its own.
OPTIONAL = {"devices": "dra", "exclude": "n1,n2", "memory": "4000", "constraint": "p5", "interface": "eth0"}
OPTIONAL |= {"context": "eks", "accelerator": "H100"}
FOLDERS = ("code", "preflight")  # of a job, whose files are other people's and the image's


def requests(launcher: str, fabric: str, starter: str, folder: Path) -> dict[str, JobRequest]:
    """Return a measurement, the same over TCP, a training, and a server where the launcher has them."""
    row = jobs.load_project().facts.launchers.launchers[launcher]
    part = jobs.everything(launcher, folder)
    if starter == "mpirun" and row.restarts == "torchrun":
        part = replace(part, restarts=0)
    changes: dict[str, dict[str, Any]] = {"measurement": {}, "tcp": {"tcp": True}}
    if starter == "torchrun":
        changes["foreign image"] = {"target": "", "settings": JobSettings(launch="torchrun")}
    changes["training"] = {"settings": part, "nodes": 1 if launcher == "docker" else 2}
    launches: tuple[Launch, ...] = get_args(Launch)
    for launch in launches:
        if f"launch.{launch}" in row.fields and (launch == "mpirun") == (starter == "mpirun"):
            changes[f"launch {launch}"] = {"settings": JobSettings(launch=launch)}
    if launcher == "slurm" and starter == "torchrun":
        bundle = {"runtime": "oci", "bundle": "/images/it"}
        changes["bundle"] = {"parameters": bundle, "settings": replace(part, priority="")}
    if "roles" in row.fields and starter == "torchrun":
        lasting = replace(part, restarts=0, spot=False) if launcher == "skypilot" else part
        changes["server"] = {"nodes": 1, "command": (), "name": "llm", "roles": jobs.ROLES, "settings": lasting}
    return {
        f"{kind} on {name}": jobs.job_request(launcher, fabric, starter, instance=name, **change)
        for kind, change in changes.items()
        for name in _types(launcher, fabric)
    }


def _types(launcher: str, fabric: str) -> list[str]:
    form = jobs.load_project().facts.launchers.launchers[launcher].instances
    return [name for name in INSTANCES[fabric] if form is None or re.fullmatch(form, name)]


def written(request: JobRequest, folder: Path) -> dict[str, str]:
    """Return the files of a job, by their paths, without the user's own and the preflight's."""
    _, path = create.write_job(request, jobs.load_project(), str(folder))
    files = [file for file in path.rglob("*") if file.is_file() and file.relative_to(path).parts[0] not in FOLDERS]
    return {str(file.relative_to(path)): file.read_text() for file in files}


def scripts(files: dict[str, str]) -> list[str]:
    """Return every script of a job: files, commands of pods, and what SkyPilot and SageMaker run, with their shells."""
    found = [text for name, text in files.items() if name.endswith((".sh", ".sbatch"))]
    for name, text in files.items():
        for document in jobs.documents(text) if name.endswith(".yaml") else ():
            commands = [pod["spec"]["containers"][0].get("command") for pod in jobs.templates(document)]
            found += [f"#!/bin/sh\n{command[2]}" for command in commands if command]
            found += [f"#!/bin/bash\n{document['run']}"] if "run" in document else []
        if name == "request.json":
            lines = yaml.safe_load(text)["AlgorithmSpecification"]["ContainerArguments"]
            found.append("#!/bin/bash\n" + "\n".join(lines) + "\n")
    return found


class JobFolder(NamedTuple):
    path: Path
    files: dict[str, str]
    fabric: str


@pytest.fixture(scope="module", params=EVERY, ids="-".join)
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, JobFolder]:
    """Return the folders of all jobs of a launcher, a fabric and a starter, by what they are."""
    top = tmp_path_factory.mktemp("jobs")
    (top / "src").mkdir()
    launcher, fabric, starter = request.param
    return {
        kind: JobFolder(path := top / str(number), written(each, path), fabric)
        for number, (kind, each) in enumerate(requests(launcher, fabric, starter, top / "src").items())
    }


def test_a_colleague_would_merge_the_folder(folders: dict[str, JobFolder]) -> None:
    for kind, (path, files, _) in folders.items():
        listed = re.findall(r"^- `([^`]+)`: .", files["README.md"].partition("## Before")[0], re.MULTILINE)
        assert {*listed, "README.md"} == {file.name for file in path.iterdir()}, kind
        for name, text in files.items():
            for word in (str(path.parent), str(paths.PROJECT), "path: /sys", "host-sys", "b64decode"):
                assert word not in text, f"{kind}: {name}"


@pytest.mark.parametrize(("launcher", "fabric", "starter"), EVERY)
def test_no_file_is_long_with_every_field_set(launcher: str, fabric: Fabric, starter: str, tmp_path: Path) -> None:
    """Also for a user of the image's own, which mpirun's keys and sshd cost lines."""
    facts = jobs.load_project().facts.launchers
    row = facts.launchers[launcher]
    parameters = {**facts.parameters, **row.parameters}
    known = {name for name, parameter in parameters.items() if parameter.applies(fabric, 32, row.kind)}
    optional = {name: OPTIONAL[name] for name in OPTIONAL.keys() & known}
    (tmp_path / "src").mkdir()
    for kind, request in requests(launcher, fabric, starter, tmp_path / "src").items():
        given = replace(request, parameters={**request.parameters, **optional})
        for job in (create.decide_any_job(each, jobs.load_project()) for each in (request, given)):
            for user, home in (("", "/root"), ("trainer", "/home/trainer")):
                roles = tuple(replace(role, user=user, home=home) for role in job.roles)
                for name, text in jobs.files(replace(job, roles=roles, user=user, home=home)).items():
                    where, lines = f"{kind}: {name}, {user}", text.splitlines()
                    assert max(map(len, lines)) <= MAX_COLUMNS, where
                    parts = len(job.roles) if name == "job.json" else 0  # a job each
                    assert len(lines) <= MAX_LINES * (1 + parts), where


def test_every_script_is_good_shell(folders: dict[str, JobFolder], tmp_path: Path) -> None:
    found = {script: kind for kind, folder in folders.items() for script in scripts(folder.files)}
    assert found
    for number, (script, kind) in enumerate(found.items()):
        path = tmp_path / f"{number}.sh"
        path.write_text(script)
        shell = "bash" if "bash" in script.partition("\n")[0] else "dash"
        done = subprocess.run([shell, "-n", path], capture_output=True, text=True)
        assert done.returncode == 0, f"{kind}: {done.stderr}"
    # OMPI_… is the operator's.
    command = ["shellcheck", f"--rcfile={paths.PROJECT}/.shellcheckrc", "--format=gcc", "--exclude=SC2154"]
    done = subprocess.run([*command, *tmp_path.glob("*.sh")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("launcher", "fabric", "starter"), [each for each in EVERY if each[2] == "torchrun"])
def test_an_image_without_the_preflight_is_given_it(launcher: str, fabric: str, starter: str, tmp_path: Path) -> None:
    """The job's folder has its files, whatever starts them; the same job over TCP, and one without it, have none."""
    changes = {"target": "", "settings": JobSettings(launch="torchrun"), "nodes": 1 if launcher == "docker" else 2}
    request = jobs.job_request(launcher, fabric, starter, **changes)
    job, folder = create.write_job(request, jobs.load_project(), str(tmp_path / "job"))
    assert (folder / "preflight" / "start.py").is_file()
    text = "".join(path.read_text() for path in folder.iterdir() if path.is_file() and path.name != "README.md")
    to = "/opt/ml/input/data/preflight" if launcher == "sagemaker" else "/opt/rdma-images/preflight"
    assert f"sh {to}/rdma-preflight --require {fabric}" in text
    over_tcp = decisions.job_over_tcp(job, jobs.load_project().facts)
    assert not any("rdma-preflight" in text for name, text in jobs.files(over_tcp).items() if name != "README.md")
    create.write_job(replace(request, preflight=False), jobs.load_project(), str(tmp_path / "none"))
    assert not (tmp_path / "none" / "preflight").exists()


def test_the_preflight_takes_what_it_is_given(folders: dict[str, JobFolder]) -> None:
    """Its own parser reads the options, with numbers where a launcher's variables are."""
    starts: set[tuple[str, str]] = set()
    for folder in folders.values():
        for script in scripts(folder.files):
            joined = re.sub(r"\\?\n\s*", " ", script)
            found = re.findall(r"rdma-preflight (--require .*?) -- ", joined)
            starts |= {(start, folder.fabric) for start in found}
    assert starts
    for start, fabric in starts:
        words = shlex.split(re.sub(r"""['"]*\$\w+['"]*""", "1", start))
        options = preflight.parse_arguments([*words, "--", "train"])
        assert (options.require, options.print_log, options.command[-1]) == (fabric, True, "train")
        assert (options.nodes is None) == (options.first == "")
