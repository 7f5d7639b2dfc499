"""The user's part of a job: mounts, code, variables, secrets and restarts, in jobs.yaml and as options."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.jobs.check import check_files
from rdma_images.jobs.write import create, job_settings, jobs_file, overrides
from rdma_images.jobs.write.job_settings import CODE, Code, JobSettings, parse_mount
from tests.support import docs_pages
from tests.support import job_parts as jobs

SECRET = "a-secret-of-the-user"


def files(launcher: str, part: JobSettings, fabric: str = "efa", **changes: Any) -> dict[str, str]:
    return jobs.files(jobs.job(launcher, fabric, "torchrun", settings=part, **changes))


def refusal(launcher: str, part: JobSettings, **changes: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        files(launcher, part, **changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind", "source", "to", "read_only"),
    [
        ("/fsx:/data", "host-path", "/fsx", "/data", False),
        ("claim:data:/data:ro", "claim", "claim:data", "/data", True),
        ("nfs:cpfs-0a.cn.aliyuncs.com:/share:/data", "nfs", "nfs:cpfs-0a.cn.aliyuncs.com:/share", "/data", False),
        ("s3://bucket/pre/fix:/data:ro", "s3", "s3://bucket/pre/fix", "/data", True),
        ("/fsx:/data/:rw", "host-path", "/fsx", "/data", False),
        ("lustre:fs-0a.fsx.us-west-2.amazonaws.com@tcp:/abc:/fsx", "lustre", None, "/fsx", False),
    ],
)
def test_a_mount_is_read_from_one_line(text: str, kind: str, source: str | None, to: str, read_only: bool) -> None:
    mount = parse_mount(text)
    assert (mount.kind, mount.to, mount.read_only) == (kind, to, read_only)
    assert source is None or mount.source == source


@pytest.mark.parametrize("text", ["/fsx", "data:/data", "/a:data", "/a:/x/../dev", "claim:/data", "/a,b:/data", ""])
def test_a_mount_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="write /FOLDER"):
        parse_mount(text)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (JobSettings(restarts=1, launch="plain"), "leaves restarts to torchrun or accelerate, and the launch is plain"),
        (JobSettings(env={"A": "1"}, secrets={"A": "secret:a/b"}), "A is both a variable of env and a secret"),
    ],
)
def test_what_does_not_go_together_is_refused(part: JobSettings, sentence: str) -> None:
    assert sentence in refusal("pytorchjob", part)


@pytest.mark.parametrize("name", ["HF_TOKEN", "NOTE", "WANDB_API_KEY"])
def test_a_secret_among_the_variables_is_refused_without_its_value(name: str) -> None:
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
    refusal_text = refusal("slurm", JobSettings(env={name: token}))
    assert f"--field secrets.{name}=" in refusal_text
    assert token not in refusal_text


def test_tcp_is_refused_in_an_image_that_sets_no_network() -> None:
    with pytest.raises(RefusedError, match="NCCL_NET=Socket: NCCL then leaves EFA; --field tcp=true"):
        overrides.refuse_overrides({"NCCL_NET": "Socket"}, {}, "efa")


def test_what_may_be_a_secret_itself_is_not_repeated() -> None:
    with pytest.raises(RefusedError) as caught:
        job_settings.check_secret("KEY", SECRET)
    assert SECRET not in str(caught.value)


def write(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "jobs.yaml").write_text(text)
    monkeypatch.setattr(paths, "PROJECT", folder)


JOB = """
jobs:
  training:
    target: efa-pytorch
    launcher: slurm
    instance: p5.48xlarge
    nodes: 2
    command: train.py --lr 0.1
    code: src
    mounts: [/fsx:/data]
    env: {STEPS: 10}
    secrets: {TOKEN: env:TOKEN}
    queue: gpu
    restarts: 2
    time: 4h
"""


@pytest.mark.parametrize(
    ("field", "value", "option"), [("mounts", ["data"], "mount"), ("secrets", {"A": "x"}, "field secrets")]
)
def test_a_wrong_option_is_named_as_it_is_typed(field: str, value: Any, option: str) -> None:
    with pytest.raises(RefusedError, match=rf"^--{option}: "):
        jobs_file.with_options(jobs_file.JobEntry(), {field: value})


def test_a_job_of_jobs_yaml_with_options_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print()")
    write(tmp_path, JOB, monkeypatch)
    options = {"nodes": 4, "mounts": ["/runs:/runs"], "env": {"STEPS": "20"}, "launch": "", "image": jobs.IMAGE}
    entry = jobs_file.with_options(jobs_file.load("training"), options)
    request = jobs_file.request(entry, (), "training")
    assert (request.nodes, request.command, request.name) == (4, ("train.py", "--lr", "0.1"), "training")
    assert [mount.to for mount in request.settings.mounts] == ["/data", "/runs"]
    assert request.settings.code == Code(str(tmp_path / "src"), CODE)
    assert (request.settings.env, request.settings.time) == ({"STEPS": "20"}, 4 * 3600)
    job, folder = create.write_job(request, jobs.load_project(), str(tmp_path / "out"))
    assert job.settings.queue == "gpu"
    script = (folder / "job.sbatch").read_text()
    for line in ("#SBATCH --partition=gpu", "#SBATCH --requeue", "#SBATCH --time=240", "#SBATCH --signal=B:USR1@120"):
        assert line in script.splitlines()
    assert json.loads((folder / "job.json").read_text())["settings"]["secrets"] == {"TOKEN": "env:TOKEN"}
    assert (folder / "code" / "train.py").read_text() == "print()"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mountz: []", "jobs.yaml:4: unknown key 'mountz' in jobs.a: did you mean mounts"),
        ("mounts: [data]", "jobs.yaml:4: jobs.a.mounts.0: mount data: not of a known form"),
        (f"secrets: {{KEY: {SECRET}}}", "jobs.yaml:4: jobs.a.secrets: secret KEY: a secret is never written here"),
        ("launch: torchrn", "jobs.yaml:4: jobs.a.launch is 'torchrn', but must be"),
        ("time: soon", "jobs.yaml:4: jobs.a.time: time soon: not a time"),
        ("env: {A-B: x}", "jobs.yaml:4: jobs.a.env.A-B: 'A-B' is no name of a variable"),
        ("nodes: 0", "jobs.yaml:4: jobs.a.nodes is '0', but must be 1 or more"),
        ("nodes: two", "jobs.yaml:4: jobs.a.nodes is 'two', but must be a whole number"),
        ("spot: maybe", "jobs.yaml:4: jobs.a.spot is 'maybe', but must be true or false"),
        ("service-account: a b", "jobs.yaml:4: jobs.a.service-account: 'a b' is no name: write it without spaces"),
        ("nodes: 1000000000", "jobs.a.nodes is '1000000000', but must be 100000 or less"),
        ("restarts: 1000000000", "jobs.a.restarts is '1000000000', but must be 10000 or less"),
        ("time: 99999d", "time 99999d: more than 365d"),
        ("time: 30", "time 30: has no unit"),
        ('replicas: "two"', "jobs.yaml:4: unknown key 'replicas' in jobs.a"),
        ('roles: {p: {command: x, replicas: "two"}}', "jobs.a.roles.p.replicas is 'two', but must be a whole number"),
    ],
)
def test_what_is_wrong_in_jobs_yaml_is_named_with_its_line(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, f"jobs:\n  a:\n    target: efa-pytorch\n    {line}\n", monkeypatch)
    with pytest.raises(RefusedError) as caught:
        jobs_file.load("a")
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_number_that_is_nought_is_no_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, JOB, monkeypatch)
    entry = jobs_file.load("training")
    assert entry.restarts == 2
    assert jobs_file.with_options(entry, {"restarts": 0, "nodes": None}).restarts == 0
    with pytest.raises(RefusedError, match="--field gpus 0: must be 1 or more"):
        jobs_file.with_options(entry, {"gpus": 0})


def test_a_file_in_place_of_a_folder_of_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, JOB, monkeypatch)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    entry = jobs_file.with_options(jobs_file.load("training"), {"code": "src/train.py"})
    with pytest.raises(RefusedError, match=r"train\.py is a file\nwrite code: src, and train\.py in the command"):
        jobs_file.request(entry, (), "training")


def test_a_job_that_is_not_there_names_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, JOB, monkeypatch)
    with pytest.raises(RefusedError, match="did you mean training"):
        jobs_file.load("trainin")
    write(tmp_path, "jobs: {}\n", monkeypatch)
    with pytest.raises(RefusedError, match="it has no job: write one there"):
        jobs_file.load("training")


def test_every_job_of_the_file_must_be_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, f"{JOB}\n  other:\n    nodes: two\n  third:\n", monkeypatch)
    with pytest.raises(RefusedError) as caught:
        jobs_file.load("training")
    first, second = str(caught.value).splitlines()
    assert "jobs.yaml:18: jobs.other.nodes is 'two'" in first
    assert "jobs.yaml:19: jobs.third must be a mapping" in second


def test_what_a_launcher_cannot_do_is_refused_by_name() -> None:
    refusal_text = refusal("slurm", JobSettings(mounts=(parse_mount("claim:data:/data"),), service_account="x"))
    assert "launcher slurm has no mount.claim" in refusal_text
    assert "launcher slurm has no service-account" in refusal_text
    refusal_text = refusal("slurm", JobSettings(mounts=(parse_mount("nfs:server:/share:/data"),)))
    assert "mount it on the nodes, and name the folder: `/FOLDER:/PATH`; these have it: mpijob" in refusal_text


def test_spot_capacity_of_skypilot_is_of_a_managed_job() -> None:
    texts = files("skypilot", JobSettings(spot=True))
    assert yaml.safe_load(texts["job.yaml"])["resources"]["use_spot"] is True
    assert "sky jobs launch" in texts["README.md"]


@pytest.mark.parametrize("variables", [{"NCCL_NET": "Socket"}, {"FI_PROVIDER": "tcp"}])
def test_what_takes_the_fabric_away_is_refused(variables: dict[str, str]) -> None:
    assert "NCCL then leaves EFA" in refusal("slurm", JobSettings(env=variables))


@pytest.mark.parametrize("variable", ["WANDB_PROJECT", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "MAX_TOKENS"])
def test_other_variables_stay_as_they_are(variable: str) -> None:
    assert f"export {variable}=ens" in files("slurm", JobSettings(env={variable: "ens"}))["job.sbatch"]


def test_checkpoints_must_outlive_their_container() -> None:
    assert "would end with its container" in refusal("slurm", JobSettings(checkpoints="/runs/a"))
    read_only = JobSettings(checkpoints="/runs/a", mounts=(parse_mount("/fsx:/runs:ro"),))
    assert "would end with its container" in refusal("slurm", read_only)
    job_files = files("slurm", JobSettings(checkpoints="/runs/a", mounts=(parse_mount("/fsx:/runs"),)))
    assert "export CHECKPOINT_DIR=/runs/a" in job_files["job.sbatch"]


@pytest.fixture(name="everything")
def settings_with_code(tmp_path: Path) -> JobSettings:
    code = tmp_path / "my code"
    code.mkdir()
    (code / "train.py").touch()
    return JobSettings(
        mounts=(parse_mount("/fsx/it's:/data"),),
        code=Code(str(code), "/workspace/code"),
        env={"GREETING": "it's; $HOME"},
        secrets={"TOKEN": "env:TOKEN", "KEY": "file:/etc/key"},
        restarts=2,
    )


def test_docker_is_given_everything(tmp_path: Path, everything: JobSettings) -> None:
    """The script calls a program in place of docker, which says how it was called."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "word %s\\n" "$@"; echo "secret $TOKEN"\n')
    docker.chmod(0o755)
    script = tmp_path / "run.sh"
    script.write_text(files("docker", everything, nodes=1, parameters={"hosts": "one"})["run.sh"])
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TOKEN": SECRET}
    completed = subprocess.run(["bash", script], text=True, capture_output=True, check=True, env=environ)
    words = completed.stdout.splitlines()
    for word in (
        "--env=GREETING=it's; $HOME",
        "--env=TOKEN",
        "--volume=/etc/key:/run/secrets/KEY:ro",
        "--volume=/fsx/it's:/data",
        f"--volume={tmp_path}/code:/workspace/code:ro",
        "--workdir=/workspace/code",
    ):
        assert f"word {word}" in words
    assert not any(SECRET in word for word in words if word.startswith("word"))
    assert f"secret {SECRET}" in words
    del environ["TOKEN"]
    missing = subprocess.run(["bash", script], text=True, capture_output=True, check=False, env=environ)
    assert missing.returncode
    assert "the secret TOKEN is not in the environment" in missing.stderr


def test_a_container_of_slurm_has_a_secret_as_a_variable_alone() -> None:
    accelerate = JobSettings(launch="accelerate", secrets={"TOKEN": "file:/etc/token"})
    text = jobs.files(jobs.job("slurm", "efa", "torchrun", settings=accelerate))["job.sbatch"]
    assert "TOKEN=$(cat /etc/token) && export TOKEN" in text
    assert "/run/secrets" not in text


def test_the_page_of_launchers_is_that_of_the_facts(request: pytest.FixtureRequest) -> None:
    page = paths.PROJECT / "docs" / "reference" / "launchers.md"
    text = docs_pages.launchers_page(jobs.load_project().facts.launchers)
    if request.config.getoption("--update-golden"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text


WITH_FIELDS = [
    (launcher, fabric)
    for launcher, fabric, starter in jobs.combinations()
    if starter == "torchrun" and jobs.load_project().facts.launchers.launchers[launcher].fields
]


def written_files(launcher: str, fabric: str, folder: Path, **changes: Any) -> dict[str, str]:
    part = replace(jobs.everything(launcher, folder, SECRET), **changes)
    return files(launcher, part, fabric, nodes=1 if launcher == "docker" else 2)


@pytest.mark.parametrize(("launcher", "fabric"), WITH_FIELDS)
def test_every_field_of_a_launcher_is_in_its_files(
    launcher: str, fabric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a field says is found somewhere in what is submitted, and no hidden file or secret is."""
    monkeypatch.setenv("TOKEN", SECRET)
    part = jobs.everything(launcher, tmp_path, SECRET)
    texts = written_files(launcher, fabric, tmp_path)
    submitted = "\n".join(text for name, text in texts.items() if name not in ("job.json", "README.md"))
    assert not any(SECRET in text for text in texts.values())
    row = jobs.load_project().facts.launchers.launchers[launcher]
    expected = {mount.to.removeprefix("/opt/ml/input/data/") for mount in part.mounts} | {
        part.checkpoints,
        "GREETING",
        *part.secrets,
    }
    expected |= {part.service_account, part.priority, part.topology, *part.pull_secrets, *part.node_selector}
    expected |= {part.queue, part.account, "dedicated"} if part.tolerations else {part.queue, part.account}
    assert [text for text in expected if text and text not in submitted] == []
    # A server in parts has files of its own: tests/unit/jobs/test_server.py.
    missing = {name for name in row.fields if "." not in name} - set(part.fields()) - {"roles"}
    assert missing == set()


def manifests(launcher: str, fabric: str, folder: Path, **changes: Any) -> list[Any]:
    texts = written_files(launcher, fabric, folder, **changes)
    return [manifest for name, text in texts.items() if name.endswith(".yaml") for manifest in jobs.documents(text)]


ON_KUBERNETES = [pair for pair in WITH_FIELDS if pair[0] in ("trainjob", "pytorchjob", "leaderworkerset")]


@pytest.mark.parametrize(("launcher", "fabric"), ON_KUBERNETES)
def test_kubernetes_takes_everything(launcher: str, fabric: str, tmp_path: Path) -> None:
    objects = manifests(launcher, fabric, tmp_path)
    kinds = [manifest["kind"] for manifest in objects]
    assert kinds.count("PersistentVolume") == kinds.count("PersistentVolumeClaim") == 2
    for manifest in objects:
        if manifest["apiVersion"] == "v1":
            kubernetes_validate.validate(manifest, "1.36", strict=True)
        for template in jobs.templates(manifest):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
            kubernetes_validate.validate(pod, "1.36", strict=True)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl makes the ConfigMap")
@pytest.mark.parametrize(("launcher", "fabric"), ON_KUBERNETES)
def test_kubectl_makes_a_configmap_of_the_code(launcher: str, fabric: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    part = jobs.everything(launcher, tmp_path / "src", SECRET)
    request = jobs.job_request(launcher, fabric, "torchrun", settings=part)
    _, folder = create.write_job(request, jobs.load_project(), str(tmp_path / "job"))
    assert {str(path.relative_to(folder)) for path in (folder / "code").rglob("*") if path.is_file()} == {
        "code/train.py",
        "code/lib/weights.bin",
    }
    made = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
    objects = jobs.documents(made)
    (code,) = [manifest for manifest in objects if manifest["kind"] == "ConfigMap"]
    volumes = [
        volume
        for manifest in objects
        for template in jobs.templates(manifest)
        for volume in template["spec"].get("volumes", ())
        if volume["name"] == "code"
    ]
    assert volumes[0]["configMap"]["name"] == code["metadata"]["name"]
    paths_by_key = {item["key"]: item["path"] for item in volumes[0]["configMap"]["items"]}
    assert {paths_by_key[key]: text for key, text in code["data"].items()} == {"train.py": "print('it: is # \"so\"')\n"}
    assert {paths_by_key[key]: text.strip() for key, text in code["binaryData"].items()} == {"lib/weights.bin": "/wA="}


def test_the_workers_of_an_mpijob_have_it_too(tmp_path: Path) -> None:
    part = jobs.everything("mpijob", tmp_path, SECRET)
    texts = jobs.files(jobs.job("mpijob", "efa", "mpirun", settings=part))
    for manifest in jobs.documents(texts["mpijob.yaml"]):
        for template in jobs.templates(manifest):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
            kubernetes_validate.validate(pod, "1.36", strict=True)
            assert template["spec"]["serviceAccountName"] == "trainer"
    assert "-x TOKEN" in texts["mpijob.yaml"]


def test_code_that_is_too_much_for_a_configmap_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 300_000)
    assert "a ConfigMap takes 200000" in refusal("pytorchjob", JobSettings(code=Code(str(tmp_path), CODE)))


@pytest.mark.parametrize(
    ("link", "target", "is_read"),
    [
        ("lib/b.py", "../train.py", True),
        ("a.py", "../outside/a.py", True),
        ("common", "lib", False),
        ("data", "/no/such/folder", False),
        (".venv", "../outside", True),
    ],
)
def test_a_link_of_the_code_is_copied_as_its_file_or_refused(
    tmp_path: Path, link: str, target: str, is_read: bool
) -> None:
    code = tmp_path / "code"
    for folder in ("lib", "../outside"):
        (code / folder).mkdir(parents=True)
    for name in ("train.py", "../outside/a.py"):
        (code / name).write_text("print()\n")
    (code / link).symlink_to(target)
    if is_read:
        contents = job_settings.read_code(Code(str(code), CODE))
        assert contents.get(link, b"print()\n") == b"print()\n"
    else:
        with pytest.raises(RefusedError, match=f"{link} is a symbolic link to no file"):
            job_settings.read_code(Code(str(code), CODE))


@pytest.mark.parametrize("command", [("trian.py",), ("python3", "-u", "lib/../trian.py")])
def test_a_script_that_is_not_in_the_code_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "train.py").touch()
    part = JobSettings(code=Code(str(tmp_path), CODE))
    assert "the command runs" in refusal("slurm", part, command=command)
    assert "did you mean train.py" in refusal("slurm", part, command=command)
    for right in (("./train.py",), ("/opt/x.py",), ("-m", "train"), ("sh", "-c", "python x.py")):
        files("slurm", part, command=right)


@pytest.mark.parametrize(
    ("launcher", "launch", "place", "others"),
    [
        ("trainjob", None, "maxRestarts: 2", ["--max-restarts=0", "backoffLimit: 0"]),
        ("pytorchjob", None, "--max-restarts=2", ["backoffLimit: 0", "restartPolicy: Never"]),
        ("pytorchjob", "accelerate", "--max_restarts=2", ["backoffLimit: 0"]),
        ("skypilot", None, "max_restarts_on_errors: 2", ["--max-restarts=0"]),
        ("sagemaker", None, "--max-restarts=2", []),
        ("slurm", None, "-lt 2 ]", ["--max-restarts=0"]),
    ],
)
def test_one_place_alone_starts_a_failed_attempt_again(
    launcher: str, launch: Any, place: str, others: list[str]
) -> None:
    job = jobs.job(launcher, "efa", "torchrun", settings=JobSettings(restarts=2, launch=launch))
    text = "\n".join(text for name, text in jobs.files(job).items() if name not in ("job.json", "README.md"))
    assert text.count(place) == 1
    assert all(other in text for other in others)
    (value,) = [value for value in job.values if value.name == "restarts"]
    assert (value.value, "RetryStrategy" in text) == ("2", False)
    assert place.partition(":")[0].partition("=")[0] in value.why or launcher in ("slurm", "pytorchjob")


@pytest.mark.parametrize("field", list(jobs_file.JobEntry.model_fields))
@pytest.mark.parametrize("character", ["\n", "\0", "\x1b", "\u2028"])
def test_no_text_of_a_job_has_a_control_character(field: str, character: str) -> None:
    odd = f"a{character}b"
    for written in (odd, [odd], {"A": odd}, {odd: "a"}, {"A": {"command": odd}}):
        text = json.dumps({"jobs": {"a": {field.replace("_", "-"): written}}})
        with pytest.raises(RefusedError, match=rf"the character U\+{ord(character):04X} is in it") as caught:
            yaml_file.loads(text, jobs_file.JobsFile, "jobs.yaml")
        assert odd not in str(caught.value)
    with pytest.raises(RefusedError, match=r"the command or the name: the character U\+"):
        jobs_file.request(jobs_file.JobEntry(), ("train.py", odd), "")


@pytest.mark.parametrize("launch", ["torchrun", "accelerate", "deepspeed", "ray", "plain"])
@pytest.mark.parametrize(("launcher", "fabric"), WITH_FIELDS)
def test_each_launch_is_one_command_of_a_shell(launch: Any, launcher: str, fabric: str) -> None:
    part = JobSettings(launch=launch)
    if f"launch.{launch}" not in jobs.load_project().facts.launchers.launchers[launcher].fields:
        assert f"has no launch.{launch}" in refusal(launcher, part, fabric=fabric)
        return
    texts = files(launcher, part, fabric)
    words = {"accelerate": "accelerate launch", "ray": "ray start --head", "plain": "env NNODES=2"}
    assert any(words.get(launch, launch) in text for text in texts.values())


@pytest.mark.parametrize(
    ("launcher", "fabric"), [pair for pair in WITH_FIELDS if pair[0] not in ("arena", "docker", "sagemaker")]
)
def test_the_check_of_jobs_reads_what_is_written(launcher: str, fabric: str, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name, text in written_files(launcher, fabric, tmp_path / "code").items():
        if name not in ("README.md", "submit.py"):
            (tmp_path / name).write_text(text)
    checked = check_files([tmp_path])
    assert checked.groups
    assert [finding for finding in checked.findings if finding.severity == "error"] == []


def test_tcp_on_nodes_that_only_the_jobs_record_names_is_found(tmp_path: Path) -> None:
    request = jobs.job_request("slurm", "efa", "torchrun", tcp=True)
    _, folder = create.write_job(request, jobs.load_project(), str(tmp_path / "x"))
    checked = check_files([folder])
    assert "tcp.chosen" in [finding.rule for finding in checked.findings]
    assert "2 nodes, p5.48xlarge" in str(checked.groups[0])
    (folder / "mine.sh").write_text("#!/bin/sh\n#SBATCH --nodes=2\nsrun torchrun --nnodes=2 train.py\n")
    assert not check_files([folder / "mine.sh"]).groups[0].instance


def test_servers_start_as_vllm_and_sglang_do() -> None:
    ray = files("leaderworkerset", JobSettings(launch="ray"), command=("vllm", "serve", "model"))["server.yaml"]
    assert "ray start --head" in ray
    assert "vllm serve model" in ray
    command = ("sh", "-c", "serve $NODE_RANK")
    plain = files("leaderworkerset", JobSettings(launch="plain"), command=command)["server.yaml"]
    assert 'env NNODES=2 NODE_RANK="$LWS_WORKER_INDEX" MASTER_ADDR="$LWS_LEADER_ADDRESS" MASTER_PORT=29500' in plain
    (_, service) = jobs.documents(plain)
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
