"""Any image can be measured, whatever it lacks or does, and nothing of it gets out."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdma_images import engine as engines
from rdma_images.core import paths
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import BuildRecord, Image
from rdma_images.core.stream import CHUNK
from rdma_images.engine.debian import bootstrap
from rdma_images.inspection.inspection import Inspection
from rdma_images.inspection.measurements import EntryPointChanges
from rdma_images.inspection.report import Report
from rdma_images.report.report_files import report_folder
from rdma_images.validate import container, image_layers, probe_files, probe_image
from rdma_images.validate.image_config import read_image_config
from rdma_images.validate.validate_image import validate
from tests.e2e import validated, volumes

pytestmark = [pytest.mark.e2e, pytest.mark.part("images")]
SH = "#!/bin/sh\\n"


@pytest.fixture(autouse=True)
def reports_elsewhere(tmp_path: Path) -> Iterator[None]:
    """Write reports to the test's own folder."""
    with validated.reports_in(tmp_path):
        yield


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a build context with Debian's root file system, which has a shell and no Python."""
    folder = tmp_path_factory.mktemp("debian")
    shutil.copy(bootstrap.base_tar("debian13"), folder / "base.tar")
    return folder


def checked(
    dockerfile: str, context: Path, *, base: str = "FROM scratch AS base\nADD base.tar /\nFROM base\n"
) -> Report:
    with validated.derived(base + dockerfile, "any", context) as ref:
        return validated.measure(ref)


def inspection(report: Report) -> Inspection:
    assert report.inspection
    return report.inspection


def test_an_image_that_is_for_no_fabric_is_not_blamed(context: Path) -> None:
    report = checked('ENTRYPOINT ["/usr/bin/env", "NCCL_NET=Socket"]\n', context)
    assert validated.failed(report) == set()
    assert inspection(report).expected.fabric is None
    assert inspection(report).measured.entry == EntryPointChanges(given={"NCCL_NET": "Socket"})
    assert "plugin.found" not in {check.id for check in report.checks}, "a check of images for EFA"
    assert "no Python" in inspection(report).measured.missing["torch"]
    packages = inspection(report).measured.packages
    assert packages
    assert "libc6" in packages.dpkg


def test_an_image_of_nothing_but_files(context: Path) -> None:
    only = (
        "FROM scratch AS debian\nADD base.tar /\nFROM scratch\nCOPY --from=debian /etc/os-release /etc/passwd /etc/\n"
    )
    report = checked("", context, base=only)
    assert validated.failed(report) == set()
    assert inspection(report).measured.tools is None
    system = inspection(report).measured.system
    assert system
    assert system.os["ID"] == "debian"
    assert "can be started" in inspection(report).measured.missing["tools"]


@pytest.mark.exhaustive  # as an incident without Python, here with the real libraries of an image
def test_an_image_without_python_is_read_like_one_with(context: Path) -> None:
    ref = validated.good_image()
    libraries = "/opt/amazon /etc/ld.so.conf.d /etc/ld.so.cache /etc/libibverbs.d /usr/lib/x86_64-linux-gnu"
    steps = "".join(f"COPY --from=good {path} {path}\n" for path in libraries.split())
    steps += "COPY --from=good /opt/venv/site-packages/nvidia/nccl /opt/venv/site-packages/nvidia/nccl\n"
    runtime = "/opt/venv/site-packages/nvidia/cu13/lib/libcudart.so.13"
    steps += f"COPY --from=good {runtime} {runtime}\n"
    steps += "COPY --from=good /usr/bin/ibv_devinfo /usr/bin/\n"
    steps += "ENV PATH=/opt/amazon/efa/bin:/usr/bin:/bin\n"
    steps += "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility\n"
    base = f"FROM {ref} AS good\nFROM scratch AS base\nADD base.tar /\nFROM base\n"
    report = checked(steps, context, base=base)
    measured = inspection(report).measured
    assert measured.tree
    assert measured.tools is None
    assert measured.tree.libraries.method == "the image's ld.so.cache, read without running it"
    assert inspection(report).expected.reason.startswith("guessed: the EFA installer was here")
    passed = {c.id for c in report.checks if c.outcome == "passed"}
    assert {"plugin.found", "chain.holds", "verbs.suffix", "nccl.single"} <= passed
    # The stand-in's libfabric is Debian's, and the label that says so was not copied.
    assert validated.failed(report) == {"libfabric.version"}


# What an export of torch and its libraries writes to the disk is 6 GB.
WITHOUT_TORCH = """RUN cd /opt/venv/site-packages && rm -r torch triton \
 && find nvidia -name '*.so*' ! -name 'libnccl*' ! -name 'libcudart*' -delete
"""


@pytest.mark.parametrize(
    "steps", [WITHOUT_TORCH, pytest.param("", marks=pytest.mark.exhaustive)], ids=["without torch", "whole"]
)
def test_a_real_image_is_measured_the_same_from_inside_and_by_its_files(steps: str) -> None:
    """Except for process facts, the loader's words, and the few files that the engine adds."""
    engine = validated.engine()
    with (
        validated.derived(f"FROM {validated.good_image()}\n{steps}", "read-out") as ref,
        closing(engines.client(engine)) as client,
    ):
        image_config = read_image_config(client, ref)
        inside = probe_image.measure_image(client, engine, image_config)
        with container.sealed_container(client, image_config.digest) as box:
            tar: Any = box.container.export(chunk_size=CHUNK)  # bytes, which the stubs call str
            outside = probe_files.measure_export(tar, image_config)
    of_process = {"kernel": "", "python": "", "python_path": "", "python_folders": []}
    assert inside.system
    assert outside.system == inside.system.model_copy(update=of_process)
    assert outside.packages == inside.packages
    assert outside.settings == inside.settings
    trees = [measured.tree.model_dump() for measured in (inside, outside) if measured.tree]
    for tree in trees:
        first = {file["identity"]: path for path, file in sorted(tree["files"]["library_files"].items(), reverse=True)}
        for file in tree["files"]["library_files"].values():
            file["identity"] = first[file["identity"]]
        for answer in tree["libraries"]["resolved"].values():
            answer["error"] = bool(answer["error"])
        for closure in tree["libraries"]["closures"].values():
            closure["faults"] = []  # of symbols and versions, which the loader alone compares
    sizes = [tree["files"].pop("bytes") for tree in trees]
    assert abs(sizes[0] - sizes[1]) < 4096
    methods = [tree["libraries"].pop("method") for tree in trees]
    assert methods == ["the image's loader", "the image's ld.so.cache, read without running it"]
    assert trees[0] == trees[1]


@pytest.mark.exhaustive
def test_a_tool_that_hangs_is_red() -> None:
    steps = f"RUN printf '{SH}sleep 600' > /opt/amazon/efa/bin/fi_info\n"
    with validated.derived(f"FROM {validated.good_image()}\n{steps}", "hangs") as ref:
        report = validated.measure(ref)
    assert validated.failed(report) == {"libfabric.fi-info"}
    assert "did not end in" in next(c.actual for c in report.checks if c.outcome == "failed")


def test_a_user_and_an_entry_point_that_are_not_there(context: Path) -> None:
    report = checked('USER nobody-such\nWORKDIR /gone\nENTRYPOINT ["/no/such/program"]\n', context)
    assert validated.failed(report) == set()
    assert inspection(report).measured.tree
    assert "the entry point ended with" in inspection(report).measured.missing["entry"]


@pytest.mark.exhaustive
def test_an_entry_point_that_sleeps_costs_its_limit(context: Path) -> None:
    dockerfile = 'FROM scratch AS base\nADD base.tar /\nFROM base\nENTRYPOINT ["/bin/sh", "-c", "sleep 600"]\n'
    with validated.derived(dockerfile, "sleeps", context) as ref:
        report = validated.measure(ref)
        assert validate(ref, validated.engine()).reused
    assert validated.failed(report) == set()
    assert "did not start another command in 10 s" in inspection(report).measured.missing["entry"]


@pytest.mark.exhaustive
def test_a_container_that_ends_by_itself_is_read_out(context: Path) -> None:
    report = checked("RUN rm /bin/sleep && ln -s /bin/true /bin/sleep && ln -sf /bin/true /usr/bin/sleep\n", context)
    assert validated.failed(report) == set()
    measured = inspection(report).measured
    assert measured.tree
    assert measured.tree.libraries.method == "the image's ld.so.cache, read without running it"
    assert "ended as soon as it had started" in measured.missing["torch"]


@pytest.mark.exhaustive
def test_a_pipe_in_the_place_of_a_library_is_reported_and_not_read(context: Path) -> None:
    report = checked("RUN mkfifo /usr/lib/libnccl.so.2\n", context)
    assert validated.failed(report) == {"libraries.intact"}


def test_a_python_that_never_stops_printing(context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdma_images.validate.container.LIFETIME_SECONDS", 20.0)
    report = checked(f"RUN printf '{SH}exec yes' > /usr/bin/python3 && chmod +x /usr/bin/python3\n", context)
    assert "did not stop printing" in inspection(report).measured.missing["torch"]


def test_the_checks_of_a_target_are_results_in_the_report(context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of the user's, run as the image's user without its entry point, and ended where they do nothing."""
    monkeypatch.setattr("rdma_images.validate.own_checks.IDLE_SECONDS", 3.0)
    commands = (
        'test "$(id -u) $MODE $PWD" = "1000 fast /srv" && echo > "$HOME/written" && sleep 2',
        "printf 'one\\ntwo\\n'; ls /absent",
        "sleep 600",
    )
    image = Image(id="a", target="a", tag="a", fabric="efa", platform="linux/amd64", axes={}, checks=commands)
    steps = 'FROM scratch\nADD base.tar /\nENV MODE=fast\nUSER 1000\nWORKDIR /srv\nENTRYPOINT ["/bin/false"]\n'
    with validated.derived(steps, "own", context) as ref:
        report = validate(ref, validated.engine(), image=image, again=True)
    own = [check for check in report.checks if check.id.startswith("own.")]
    assert [(check.id, check.title, check.outcome) for check in own] == [
        ("own.1", commands[0], "passed"),
        ("own.2", commands[1], "failed"),
        ("own.3", commands[2], "failed"),
    ]
    assert own[1].actual.startswith("it ended with 2: ls: cannot access '/absent'")
    assert own[2].actual == "it was stopped: it did nothing for 3 s"
    assert report.failed
    assert 'name="own.2"' in (report_folder(ref, image) / "report.xml").read_text()


def test_nothing_of_the_image_reaches_out_or_stays() -> None:
    client = engines.client(validated.engine())
    try:
        about = read_image_config(client, validated.good_image())
        with container.sealed_container(client, about.digest) as box:
            with container.scratch_container(client, about.digest, box, command=["true"]) as entered:
                for started in (box.container, entered):
                    inspected = client.api.inspect_container(str(started.id))
                    host = inspected["HostConfig"]
                    assert host["NetworkMode"] == "none"
                    assert not host["Binds"]
                    assert not inspected["Mounts"]
                    assert host["CapDrop"] == ["ALL"]
                    assert host["ReadonlyRootfs"]
            code, _ = box.container.exec_run(["sh", "-c", "echo > /etc/planted"])
            assert code != 0
            _, out = box.container.exec_run(["cat", "/proc/net/dev"])
            assert isinstance(out, bytes)
            assert [line.split(":")[0].strip() for line in out.decode().splitlines()[2:]] == ["lo"]
        ids = [c.id for c in client.containers.list(all=True, filters={"label": f"{container.LABEL}={about.digest}"})]
        assert not {box.container.id, entered.id} & set(ids)
    finally:
        client.close()


def test_a_volume_hides_nothing_takes_nothing_and_does_not_stay() -> None:
    nccl = "/opt/venv/site-packages/nvidia/nccl/lib/libnccl.so.2"
    steps = f"FROM {validated.good_image()}\nRUN mkdir -p /srv/v && cp {nccl} /srv/v/\nVOLUME /srv/v\n"
    client = engines.client(validated.engine())
    try:
        with volumes.none_stays(client), validated.derived(steps, "volume") as ref:
            report = validated.measure(ref)
            with container.sealed_container(client, read_image_config(client, ref).digest) as box:
                code, output = box.container.exec_run(["sh", "-c", "echo > /srv/v/planted"])
    finally:
        client.close()
    assert validated.failed(report) == {"nccl.single"}
    assert "/srv/v/libnccl.so.2" in next(c.actual for c in report.checks if c.outcome == "failed")
    assert code != 0
    assert b"Read-only" in output


def test_the_report_is_of_what_was_measured(context: Path) -> None:
    base = "FROM scratch AS base\nADD base.tar /\nFROM base\n"
    client = engines.client(validated.engine())
    try:
        with (
            validated.derived(base + "RUN echo built\n", "built", context) as ref,
            validated.derived(base + "RUN mkdir -m 777 /open\n", "other", context) as other_image,
        ):
            digest = read_image_config(client, ref).digest
            built = BuildRecord("built", ref, digest, "sha256:0", (), "2026-11-21T09:00:00+00:00", 1.0)
            measured = validate(ref, validated.engine(), build=built)
            assert measured.digest == digest
            assert (report_folder(ref) / "report.xml").exists()
            assert validate(ref, validated.engine(), build=built) == replace(measured, reused=True)
            client.images.get(other_image).tag(*ref.split(":"))
            for again in (False, True):
                assert validate(ref, validated.engine(), build=built, again=again).digest == digest
            assert validate(ref, validated.engine()).digest == read_image_config(client, other_image).digest != digest
            client.images.remove(digest)  # which has lost its name, by which the others are removed
    finally:
        client.close()


def test_layers_saved_by_an_engine_are_read_like_those_that_lie_there(
    context: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = "RUN echo 'machine example.org login a password b' > /root/.netrc\nRUN rm /root/.netrc\n"
    engine = validated.engine()
    base = "FROM scratch AS base\nADD base.tar /\nFROM base\n"
    with validated.derived(base + steps, "layers", context) as ref:
        client = engines.client(engine)
        about = read_image_config(client, ref)
        monkeypatch.setattr(image_layers, "state_folder", lambda: tmp_path / "nothing-kept")
        saved = image_layers.measure_layers(client, replace(engine, kind="existing"), about)
        monkeypatch.setattr(image_layers, "state_folder", lambda: paths.state_folder())
        lying = image_layers.measure_layers(client, engine, about)
        client.close()
    assert [layer.digest for layer in saved] == [layer.digest for layer in lying] == about.layers
    assert [layer.leftovers for layer in saved] == [layer.leftovers for layer in lying]
    assert sum("/root/.netrc" in layer.leftovers.secret for layer in saved) == 1


def test_an_image_that_is_not_there() -> None:
    with pytest.raises(RefusedError, match=r"the engine \w+ \(.*\) has no image no/such:image"):
        validate("no/such:image", validated.engine())


def test_the_good_image_is_good_and_its_page_says_so_in_a_browser(tmp_path: Path) -> None:
    ref = validated.good_image()
    report = validate(ref, validated.engine())
    assert validated.failed(report) == set()
    assert sum(check.outcome == "passed" for check in report.checks) > 40
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if not browser:
        pytest.skip("no Chromium is installed")
    page = report_folder(ref) / "report.html"
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    command = [browser, *flags.split(), "--disable-component-update", f"--user-data-dir={tmp_path}"]
    picture = tmp_path / "page.png"
    subprocess.run(
        [*command, f"--screenshot={picture}", "--window-size=1200,1600", page.as_uri()], check=True, timeout=60
    )
    assert picture.stat().st_size > 50_000
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.count("<button") == len(report.checks)
    assert "A rehearsal, not an image to ship" in done.stdout


def test_a_name_and_what_a_tool_prints_may_be_any_bytes() -> None:
    code = (
        r"import os; p = b'/opt/caf\xe9\x1b[2J'; os.mkdir(p); os.chmod(p, 0o777); open(p + b'/.netrc', 'w').write('x')"
    )
    steps = f'FROM {validated.good_image()}\nRUN ["python3", "-c", {json.dumps(code)}]\n'
    steps += f"RUN printf '{SH}head -c 300 /dev/urandom; exit 3' > /usr/bin/ibv_devinfo\n"
    with validated.derived(steps, "bytes") as ref:
        report = validated.measure(ref)
    assert validated.failed(report) == {"layers.secret-names", "verbs.ibv-devinfo"}
    failures = {c.id: c.actual for c in report.checks if c.outcome == "failed"}
    assert r"\x1b[2J/.netrc" in failures["layers.secret-names"]
    assert "ended with 3" in failures["verbs.ibv-devinfo"]


def test_an_image_with_python_and_no_shell(context: Path) -> None:
    ref = validated.good_image()
    shells = "import os; [os.remove(f'/bin/{name}') for name in ('sh', 'bash', 'dash', 'rbash')]"
    steps = f'FROM {ref}\nRUN ["python3", "-c", "{shells}"]\n'
    report = checked("", context, base=steps)
    assert inspection(report).measured.torch
    assert validated.failed(report) - {"libfabric.device"} == set()
