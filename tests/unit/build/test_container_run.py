"""The `docker run` of an image: its needs, the machine's devices, the user's options."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import build_record, container_run
from rdma_images.build.container_run import ContainerOptions, DockerHost
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord, RunSetting
from rdma_images.core.step_files import BUILD_FILE
from rdma_images.engine.docker_command import Engine
from rdma_images.inputs import project, target_options
from rdma_images.plan import image_settings
from tests.support import images

REF = "rdma-images/efa-pytorch:1"
FACTS = facts.load()
SETTINGS = images.planned_image().run_settings
BARE = DockerHost(network="host", missing={"gpus": "no GPU", "devices": "none", "ulimits": "no right"})
NEEDS = ["--device=/dev/infiniband", "--ulimit=memlock=-1:-1", "--cap-add=IPC_LOCK", "--shm-size=64g"]
ALWAYS = ["docker", "run", "--rm", "--interactive", "--pull=never", f"--label=io.rdma-images.run={REF}"]


def line(
    options: ContainerOptions | None = None, words: Sequence[str] = (), host: DockerHost | None = None
) -> list[str]:
    return container_run.command_on_host(REF, SETTINGS, host or DockerHost(), options or ContainerOptions(), words)


def test_a_machine_that_has_everything_gives_it() -> None:
    assert line(words=["python", "-c", "import torch"]) == [
        *ALWAYS, "--init", "--gpus=all", *NEEDS, REF, "python", "-c", "import torch",
    ]  # fmt: skip
    assert container_run.describe_omitted(SETTINGS, DockerHost(), ContainerOptions()) == ""


def test_what_the_machine_lacks_is_left_out_and_named() -> None:
    assert line(host=BARE) == [*ALWAYS, "--init", "--cap-add=IPC_LOCK", "--shm-size=64g", "--network=host", REF]
    missing = container_run.describe_omitted(SETTINGS, BARE, ContainerOptions())
    assert missing == "--gpus=all (no GPU), --device=/dev/infiniband (none), --ulimit=memlock=-1:-1 (no right)"


def test_gpus_that_are_asked_for_are_not_second_guessed() -> None:
    for gpus, argument in (("2", "--gpus=2"), ("all", "--gpus=all"), ("device=0,1", '--gpus="device=0,1"')):
        arguments = line(ContainerOptions(gpus=gpus), host=BARE)
        assert [word for word in arguments if word.startswith("--gpus")] == [argument]
    assert "gpus" not in " ".join(line(ContainerOptions(gpus="none")))
    assert "--gpus" not in container_run.describe_omitted(SETTINGS, BARE, ContainerOptions(gpus="none"))


def test_mounts_variables_and_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "secret")
    (tmp_path / "a,b").mkdir()
    options = ContainerOptions(
        ("./a,b:/data:ro", f"{tmp_path}:/all"), ("TOKEN", "A=b=c", "EMPTY="), devices=("/dev/fuse",)
    )
    arguments = line(options)
    assert f'--mount=type=bind,"source={tmp_path}/a,b",target=/data,readonly' in arguments
    assert f"--mount=type=bind,source={tmp_path},target=/all" in arguments
    assert [word for word in arguments if word.startswith("--env")] == ["--env=TOKEN", "--env=A=b=c", "--env=EMPTY="]
    assert "--device=/dev/fuse" in arguments
    assert "secret" not in " ".join(arguments)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (ContainerOptions(mounts=["/nowhere/x:/x"]), "--mount /nowhere/x:/x: there is no /nowhere/x\nmake it"),
        (ContainerOptions(mounts=["/tmp"]), "--mount /tmp: not of the form HOST:CONTAINER[:ro]\nwrite --mount"),
        (ContainerOptions(mounts=["/tmp:x"]), "not of the form HOST:CONTAINER[:ro]"),
        (ContainerOptions(mounts=["/tmp:/x:rx"]), "not of the form HOST:CONTAINER[:ro]"),
        (
            ContainerOptions(variables=["NOT_SET_HERE"]),
            "--env NOT_SET_HERE: it is not set here\nwrite --env NAME=VALUE",
        ),
        (ContainerOptions(variables=["=x"]), "--env =x: it has no name"),
        (ContainerOptions(gpus="0"), "--gpus 0: not a choice of GPUs\nwrite all, none, how many, or device=0,1"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options: ContainerOptions, sentence: str) -> None:
    with pytest.raises(RefusedError, match=r"^--") as refused:
        line(options)
    assert sentence in str(refused.value)


def test_a_shell_comes_in_place_of_the_entry_point() -> None:
    arguments = line(ContainerOptions(shell=True))
    assert arguments[arguments.index(REF) - 1] == "--entrypoint=/bin/sh"
    assert arguments[arguments.index(REF) + 1] == "-c"


def test_a_terminal_and_an_engine_without_an_init_of_its_own() -> None:
    arguments = container_run.command_on_host(
        REF, SETTINGS, DockerHost(init=False), ContainerOptions(), (), terminal=True
    )
    assert "--tty" in arguments
    assert "--init" not in arguments


DAEMON = """{"Name": "other", "Runtimes": {"runc": {}%s}, "SecurityOptions": [%s], "InitCommit": {"ID": "%s"}}"""


@pytest.mark.parametrize(
    ("daemon_info", "missing", "init"),
    [
        (DAEMON % (', "nvidia": {}', "", "x"), {"devices"}, True),
        (DAEMON % ("", "", "N/A"), {"devices", "gpus"}, False),
        (DAEMON % (', "nvidia": {}', '"name=rootless"', ""), {"devices", "ulimits"}, True),
    ],
)
def test_an_engine_elsewhere_is_asked_what_it_has(
    daemon_info: str, missing: set[str], init: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\ncat <<'E'\n{daemon_info}\nE\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    host = container_run.measure_host(Engine("x", "existing", "tcp://x", "26", "0.13", "classic", "default"), SETTINGS)
    assert (set(host.missing), host.init, host.network, host.is_local) == (missing, init, "", False)


@pytest.mark.parametrize(
    ("capabilities", "hard_limit", "reason"),
    [
        ("000001ffffffffff", "67108864", ""),
        ("000001fffeffffff", "67108864", "the engine has no CAP_SYS_RESOURCE, and may not raise a limit"),
        ("000001fffeffffff", "unlimited", ""),
    ],
)
def test_an_engine_that_may_not_raise_limits_is_known_by_its_process(
    capabilities: str, hard_limit: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that listens at the socket decides, whoever asks or started it."""
    process = tmp_path / "proc" / str(os.getpid())
    process.mkdir(parents=True)
    (process / "status").write_text(f"CapPrm:\t0000000000000000\nCapEff:\t{capabilities}\n")
    (process / "limits").write_text(f"Max locked memory         8388608              {hard_limit}            bytes\n")
    monkeypatch.setattr(container_run, "PROC", tmp_path / "proc")
    program = tmp_path / "docker"
    program.write_text(
        "#!/bin/sh\ncat <<'E'\n" + DAEMON.replace("other", socket.gethostname()) % ("", "", "x") + "\nE\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("docker.sock")
        listening.listen()
        engine = Engine("x", "existing", "unix://docker.sock", "26", "0.13", "classic", "default")
        host = container_run.measure_host(engine, SETTINGS)
    assert host.missing.get("ulimits", "") == reason


def write_build(image_id: str, ref: str) -> None:
    BUILD_FILE.write(image_id, BuildRecord(image_id, ref, "sha256:0", "", (), "", 0.0))


@pytest.fixture
def none_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path)


@pytest.mark.usefixtures("none_built")
def test_an_image_that_was_not_built_is_one_sentence_with_the_command() -> None:
    with pytest.raises(RefusedError) as refused:
        build_record.find_build(project.load(), "efa-pytorch", ["pytorch=2.14.1"])
    problem, fix = str(refused.value).splitlines()
    assert problem.endswith("was not built here")
    assert fix == "run `invoke build --target efa-pytorch --set pytorch=2.14.1` first"


@pytest.mark.usefixtures("none_built")
def test_the_image_of_the_row_that_is_named_is_taken() -> None:
    checkout = project.load()
    (image,) = target_options.chosen_images(checkout, ["efa-pytorch"], False, None)
    write_build(image.id, "rdma-images/efa-pytorch:1-rehearsal")
    assert build_record.find_build(checkout, "efa-pytorch", None)[0].ref == "rdma-images/efa-pytorch:1-rehearsal"


def test_several_targets_are_listed() -> None:
    checkout = project.load()
    with pytest.raises(RefusedError, match="which target") as refused:
        build_record.find_build(checkout, "", None)
    assert str(refused.value).endswith(f"add --target with one of {', '.join(checkout.matrix.targets)}")


def option_names(settings: Sequence[RunSetting]) -> set[str]:
    return set(container_run.command("", settings)[2:-1])


def test_an_image_says_by_its_label_what_it_needs() -> None:
    efa = image_settings.settings_by_label({"io.rdma-images.fabric": "efa"}, FACTS)
    assert efa == list(SETTINGS)
    assert "--network=host" in option_names(image_settings.settings_by_label({"io.rdma-images.fabric": "erdma"}, FACTS))
    assert option_names(image_settings.settings_by_label({"io.rdma-images.fabric": "none"}, FACTS)) == {"--gpus=all"}


def test_an_image_without_the_label_gets_what_both_fabrics_ask_for() -> None:
    assert option_names(image_settings.settings_by_label({}, FACTS)) == {"--gpus=all", *NEEDS}
