"""Dockerfiles: what they say word by word, what must be in them, and what must not."""

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RdmaImagesError, RefusedError
from rdma_images.core.image import ExistingImage, Image
from rdma_images.inputs import lock
from rdma_images.inputs.wheels import Lock, Wheel
from rdma_images.plan import matrix, planner
from rdma_images.plan.matrix import Matrix
from rdma_images.render import dockerfiles, labels
from tests.support import hadolint, locks, own_target
from tests.support.existing_images import DIGEST, existing, ngc, planned_onto

pytestmark = pytest.mark.usefixtures("state")
FACTS = facts.load()
OURS = matrix.load()
GOLDEN = paths.PROJECT / "tests" / "data" / "golden"

# Rows that stay what they are when matrix.yaml goes on to newer versions.
EFA = {"efa-installer": "1.50.0"}
TORCH = {"pytorch": "2.15.0"}
TESTS = {"nccl-tests": "2.20.0", "cuda": "13.0", "nccl": "2.30.7"}
DEBIAN, JAMMY = {"base": "debian13"}, {"base": "ubuntu22.04"}
CUDA = {"base": "cuda13.1.2-runtime-ubuntu22.04", "pytorch": "2.14.1"}
USER_PLUGIN = {"aws-ofi-nccl": "1.20.0"}
CASES = {
    "efa-pytorch": ("efa-pytorch", DEBIAN | TORCH | EFA),
    "efa-pytorch-arm64": ("efa-pytorch", DEBIAN | TORCH | EFA | USER_PLUGIN | {"platform": "linux/arm64"}),
    "efa-pytorch-cuda": ("efa-pytorch", CUDA | EFA),
    "efa-pytorch-cuda-devel": ("efa-pytorch", CUDA | EFA | {"variant": "devel"}),
    "efa-pytorch-devel": ("efa-pytorch", DEBIAN | TORCH | EFA | {"variant": "devel", "fallback": "allow"}),
    "efa-pytorch-own-plugin": ("efa-pytorch", DEBIAN | TORCH | EFA | USER_PLUGIN),
    "efa-nccl-tests": ("efa-nccl-tests", DEBIAN | TESTS | EFA),
    "erdma-nccl-tests": ("erdma-nccl-tests", JAMMY | TESTS),
    "erdma-pytorch": ("erdma-pytorch", JAMMY | {"pytorch": "2.14.1"}),
    "efa-train": ("efa-train", {}),
    "sagemaker-efa-pytorch": ("sagemaker-efa-pytorch", DEBIAN | TORCH | EFA),
}
TMUX = "    debian-packages: [tmux]\n"


def planned_image(target: str, changes: dict[str, str]) -> Image:
    (image,) = planner.plan(OURS, FACTS, [target], changes=changes).images
    return image


def dockerfile(case: str) -> str:
    image = planned_image(*CASES[case])
    return dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)


def matched(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert match, pattern
    return match


def stage(text: str, name: str) -> str:
    """Return one stage of a Dockerfile, from its FROM to the next."""
    return matched(rf"^FROM [^\n]* AS {name}\n.*?(?=^FROM |\Z)", text)[0]


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, request: pytest.FixtureRequest) -> None:
    file, text = GOLDEN / f"{case}.Dockerfile", dockerfile(case)
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "read the change with: pytest --update-golden && git diff"


def test_hadolint_finds_nothing() -> None:
    assert hadolint.findings(*sorted(GOLDEN.glob("*.Dockerfile"))) == ""


def test_hadolint_can_fail(tmp_path: Path) -> None:
    text = (GOLDEN / "efa-pytorch.Dockerfile").read_text(encoding="utf-8")
    (tmp_path / "Dockerfile").write_text(text.replace("apt-get update -qq\n", "apt-get update -qq\ncp $first /\n", 1))
    assert "SC2086" in hadolint.findings(tmp_path / "Dockerfile")


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.Dockerfile")} == set(CASES)


def test_every_template_has_a_golden_file() -> None:
    templates = {target.template or name for name, target in OURS.targets.items()}
    assert {OURS.target(name).template or name for name, _ in CASES.values()} == templates


def test_parts_have_their_stages_after_the_fabric_and_the_wheels() -> None:
    image = planned_image("efa-train", {"nccl-tests": "newest"})
    text = dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)
    order = re.findall(r"^FROM (\S+) AS (with-\S+|image)$", text, re.MULTILINE)
    names = [name for _, name in order]
    assert names.index("with-efa-installer") < names.index("with-ssh") < names.index("with-gdrcopy")
    assert names.index("with-gdrcopy") < names.index("with-wheels") < names.index("with-nccl-tests")
    assert "nccl-tests" in image.tag.split("2.20.0")[0]


@pytest.mark.parametrize("case", CASES)
def test_no_address_and_no_loader_path(case: str) -> None:
    text = dockerfile(case)
    assert "://" not in text
    assert not re.search(r"^ENV.*LD_(LIBRARY_PATH|PRELOAD)=(?!\"\"(?: |$))", text, re.MULTILINE)
    assert "apt-key" not in text


@pytest.mark.parametrize("case", CASES)
def test_every_stage_is_made_before_it_is_used(case: str) -> None:
    text = dockerfile(case)
    stages = {"base", "builder", "scratch", "efa-installer", "aws-ofi-nccl", "erdma-apt", "nccl-tests", "gdrcopy"}
    for line in text.splitlines():
        if match := re.match(r"FROM (?:--platform=\S+ )?(\S+) AS (\S+)", line):
            assert match[1] in stages, line
            stages.add(match[2])
        for used in re.findall(r"[-,]-?from=([^\s,]+)", line):
            assert used in stages, line
    assert "image" in stages


@pytest.mark.parametrize("case", CASES)
def test_what_is_installed_is_checked_by_its_hash(case: str) -> None:
    text = dockerfile(case)
    for line in re.findall(r"^[a-z0-9-]+==\S+.*$", text, re.MULTILINE):
        assert re.search(r" --hash=sha256:[0-9a-f]{64}", line), line


@pytest.mark.parametrize(
    ("expected", "refused"),
    [  # the last lines of the real configure, with the switch and without
        ("* Enabled Platforms: Default, AWS", None),
        ("* Enabled Platforms: Default", 'configure says "* Enabled Platforms: Default"'),
        ("* Platform-specific optimizations: AWS", None),
        ("* Platform-specific optimizations: none", 'configure says "* Platform-specific optimizations: none"'),
        ("*", 'configure says "nothing of platforms"'),
    ],
)
def test_a_plugin_without_the_aws_platform_is_not_built(tmp_path: Path, expected: str, refused: str | None) -> None:
    text = stage(dockerfile("efa-pytorch-own-plugin"), "build-aws-ofi-nccl")
    check = text[text.index("platforms=$(") : text.index("make --jobs")]
    (tmp_path / "configure.out").write_text(f"*\n{expected}\n*\n")
    completed = subprocess.run(["sh", "-euc", check], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == (1 if refused else 0)
    assert (refused or "") in completed.stderr
    assert ("fix: " in completed.stderr) is bool(refused)


def test_the_toolkit_of_a_devel_image_takes_the_place_of_the_bases(tmp_path: Path) -> None:
    """/usr/local/cuda is a link to a folder: a new link would be made inside that folder."""
    (command,) = re.findall(
        r'^ln .* "\$cuda" \S+$', stage(dockerfile("efa-pytorch-cuda-devel"), "with-devel"), re.MULTILINE
    )
    job_folder, base, ours = tmp_path / "cuda", tmp_path / "cuda-13.1", tmp_path / "cu13"
    for folder in (base, ours):
        folder.mkdir()
    for exists in (True, False):
        if exists:
            job_folder.symlink_to(base)
        subprocess.run(
            ["sh", "-euc", f"cuda={ours}; {command.replace('/usr/local/cuda', str(job_folder))}"], check=True
        )
        assert job_folder.resolve() == ours
        assert list(base.iterdir()) == []
        job_folder.unlink()


def test_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OURS.targets, "mine", OURS.target("efa-pytorch").model_copy(update={"template": "nothing"}))
    image = planned_image("mine", {})
    with pytest.raises(RefusedError, match=r"targets/nothing\.j2: no such template, for target mine"):
        dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        # BuildKit would miss the stage "system-layer" in the middle of the build.
        ('stages("base", "python")', "has no stage wheels, which installs the Python packages\nadd "),
        (
            'stages("base", "python", "wheels", "erdma-apt")',
            "use a name that is not defined: 'erdma-apt'\ncorrect the ",
        ),
    ],
)
def test_a_template_that_does_not_fit_is_refused(
    template: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "data_folders", lambda part: (tmp_path, paths.DATA / part))
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "short.j2").write_text(f"{{{{ {template} }}}}\n")
    dockerfiles.template_environment.cache_clear()
    image = dataclasses.replace(planned_image("efa-pytorch", {}), template="short")
    with pytest.raises(RdmaImagesError, match=sentence):
        dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)
    dockerfiles.template_environment.cache_clear()


def test_a_version_chosen_on_the_command_line_is_the_same_image() -> None:
    default = planned_image("efa-pytorch", {})
    chosen = planned_image("efa-pytorch", {"pytorch": default.version("pytorch")})
    texts = {
        dockerfiles.render(built, locks.wheels(built), locks.toolkit(built), locks.TOOLS) for built in (default, chosen)
    }
    assert len(texts) == 1


def rendered_onto(base: ExistingImage, default: str = "", more: str = "", fabric: str = "efa") -> str:
    image = planned_onto(base, fabric=fabric, default=default, more=TMUX + more)
    request = lock.lock_request(image)
    wheels = tuple(
        Wheel(name=line, version="1.0", file=f"{line}-1.0-py3-none-any.whl", sha256="0" * 64)
        for line in request.requirements
    )
    return dockerfiles.render(image, Lock(request=request, wheels=wheels), locks.toolkit(image), locks.TOOLS)


def image_stages(text: str) -> str:
    return text[text.index("FROM base AS with-onto") :]


def test_every_stage_stands_on_the_one_before() -> None:
    text = image_stages(rendered_onto(existing(system="ubuntu24.04")))
    assert re.findall(r"^FROM (.*)$", text, re.MULTILINE) == [
        "base AS with-onto",
        "with-onto AS with-efa-installer",
        "with-efa-installer AS with-onto-image",
        "with-onto-image AS image",
    ]


def test_a_plugin_is_compiled_where_the_installer_brings_none() -> None:
    text = image_stages(rendered_onto(existing(system="debian12"), "{efa-installer: 1.50.0, aws-ofi-nccl: 1.21.1}"))
    assert "AS build-aws-ofi-nccl" in text
    assert "dpkg --purge libnccl-ofi" in text


def test_user_and_shell_of_the_image_below_come_back() -> None:
    text = image_stages(rendered_onto(existing(user="1000:100", shell=("/bin/bash", "-c"))))
    assert text.index("USER root") < text.index("RUN ")
    assert 'SHELL ["/bin/sh", "-c"]' in text
    assert 'SHELL ["/bin/bash", "-c"]\nUSER 1000:100\n\n# `rdma-preflight`' in text


def test_nothing_of_the_entry_point_or_the_folder_is_written() -> None:
    text = image_stages(rendered_onto(ngc()))
    assert not re.search(r"^(ENTRYPOINT|CMD|WORKDIR) ", text, re.MULTILINE)


def test_the_user_of_the_target_is_made_by_root() -> None:
    text = image_stages(rendered_onto(existing(user="1000"), more="    user: trainer\n"))
    assert "USER 1000\n" not in text[: text.index("AS image")]
    assert "USER 1000:1000" in text
    assert "WORKDIR /workspace" in text


def test_folders_of_other_plugins_leave_the_loaders_path() -> None:
    text = image_stages(rendered_onto(ngc()))
    assert "'\\|^/opt/hpcx/nccl_rdma_sharp_plugin/lib/*$|d'" in text
    assert "rm -f /usr/lib/x86_64-linux-gnu/libnccl-net.so" in text
    assert 'LD_LIBRARY_PATH="/usr/local/cuda/lib64"' in text


def test_the_link_of_cuda_leads_into_the_image() -> None:
    text = image_stages(rendered_onto(ngc()))
    assert 'ln -sf /usr/local/cuda/lib64/libcudart.so.13 "/usr/lib/' in text
    assert "/opt/venv" not in text


def test_packages_are_installed_by_the_python_of_the_image() -> None:
    text = image_stages(rendered_onto(existing(), more="    python-packages: [einops]\n    with: [nccl-tests]\n"))
    assert "FROM with-efa-installer AS with-onto-packages" in text
    assert "uv pip install --quiet --no-cache --link-mode copy --python /opt/conda/bin/python3 " in text
    assert f"einops==1.0 --hash=sha256:{'0' * 64}" in text
    assert "ln -s /opt/conda/lib/python3.12/site-packages/nvidia/nccl/include /tmp/nccl/include" in text
    assert "COPY --link --from=wheel" not in text


def test_a_wheel_of_ones_own_is_installed_into_the_image() -> None:
    image = planned_onto()
    name = "x-1.0-py3-none-any.whl"
    own = Wheel(name="x", version="1.0", file=name, sha256="1" * 64, origin=f"./{name}")
    only_own = Lock(request=lock.lock_request(image), wheels=(own,))
    text = dockerfiles.render(image, only_own, locks.toolkit(image), locks.TOOLS)
    assert "--mount=type=bind,from=package-x,target=/mnt/packages/x \\" in text
    assert "--only-binary :all: --find-links /mnt/packages/x --require-hashes" in text
    assert f"<<'LOCK'\nx==1.0 --hash=sha256:{'1' * 64}\nLOCK\n" in text


def test_erdma_onto_an_image() -> None:
    text = image_stages(rendered_onto(existing(system="ubuntu22.04"), fabric="erdma"))
    assert "from=erdma-apt" in text
    assert 'NCCL_NET="IB"' in text
    assert "libcudart" not in text


def test_labels_name_the_image_below() -> None:
    image_labels = labels.image_labels(planned_onto(), "mine", labels.Revision("c", 0, None), ())
    assert image_labels["org.opencontainers.image.base.name"] == "team/training"
    assert image_labels["org.opencontainers.image.base.digest"] == DIGEST


@pytest.fixture
def own_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    copy = tmp_path / "dockerfiles"
    shutil.copytree(paths.DATA / "dockerfiles", copy)
    (tmp_path / "facts").symlink_to(paths.FACTS)
    (copy / "targets" / f"{own_target.NAME}.j2").write_text(own_target.TEMPLATE)
    monkeypatch.setattr(paths, "DATA", tmp_path)
    dockerfiles.template_environment.cache_clear()
    yield
    dockerfiles.template_environment.cache_clear()


@pytest.fixture
def own_image() -> Image:
    extended = yaml_file.loads(paths.MATRIX.read_text() + "\n" + own_target.ROWS, Matrix, "matrix.yaml")
    (image,) = planner.plan(extended, FACTS, [own_target.NAME]).images
    return image


@pytest.mark.usefixtures("own_templates")
def test_a_target_of_ones_own_has_its_packages(own_image: Image) -> None:
    text = dockerfiles.render(own_image, locks.wheels(own_image), locks.toolkit(own_image), locks.TOOLS)
    assert re.search(r"^apt-get install .* jq$", text, re.MULTILINE)
    assert "einops==1.0 --hash=sha256:" in text
    assert "einops" in lock.lock_request(own_image).requirements


@pytest.mark.usefixtures("own_templates")
def test_a_target_of_ones_own_is_efa_pytorch_otherwise(own_image: Image) -> None:
    (theirs,) = planner.plan(matrix.load(), FACTS, ["efa-pytorch"], changes=_same_row(own_image)).images
    ours = dockerfiles.render(own_image, locks.wheels(theirs), locks.toolkit(own_image), locks.TOOLS)
    other = dockerfiles.render(theirs, locks.wheels(theirs), locks.toolkit(theirs), locks.TOOLS)
    assert _stages(ours.replace(" jq\n", "\n")) == _stages(other)


def _same_row(image: Image) -> dict[str, str]:
    return {axis: image.axes[axis] for axis in ("base", "pytorch", "efa-installer")}


def _stages(text: str) -> str:
    """Without the head, which names the target."""
    return text.split("\n\n", 1)[1]
