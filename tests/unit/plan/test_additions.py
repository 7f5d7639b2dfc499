"""A target's additions: files, variables, users, secrets, refused if they harm the fabric."""

import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.build import build_secrets, project_files
from rdma_images.core import paths, yaml_file
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.inputs import mirrors
from rdma_images.plan import additions, planner, target_files
from rdma_images.plan.additions import TargetAdditions
from rdma_images.plan.matrix import Matrix
from rdma_images.plan.refusals import Plan
from rdma_images.render import dockerfiles, labels
from tests.support import locks

FACTS = facts.load()
REPOSITORY = paths.PROJECT
TARGET = """
targets:
  mine:
    summary: mine
    fabric: efa
    template: efa-pytorch
    default: {base: debian13, pytorch: 2.15.0, efa-installer: 1.50.0}
"""


def make_plan(fields: str, **changes: str) -> Plan:
    """Return the plan of a target with these lines of YAML."""
    text = TARGET + "".join(f"    {line}\n" for line in fields.splitlines())
    return planner.plan(yaml_file.loads(text, Matrix, "matrix.yaml"), FACTS, changes=changes)


def image_with(fields: str) -> Image:
    (image,) = make_plan(fields).images
    return image


def rendered(fields: str) -> str:
    """Return the last stage of the Dockerfile of a target with these fields."""
    image = image_with(fields)
    text = dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)
    return text[text.index("# What matrix.yaml adds") :]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder with some files."""
    monkeypatch.setattr(paths, "PROJECT", tmp_path)
    monkeypatch.setattr(paths, "IMAGES", tmp_path / "build" / "images")
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "main.py").write_text("main")
    (tmp_path / "src" / "deep" / "tool.sh").write_text("tool")
    (tmp_path / "src" / "deep" / "tool.sh").chmod(0o700)
    (tmp_path / "src" / "notes.txt").write_text("private")
    (tmp_path / "src" / "link").symlink_to("main.py")
    (tmp_path / "train.py").write_text("train")
    (tmp_path / ".dockerignore").write_text("# comments\n**/*.txt\n")
    return tmp_path


def members(image: Image) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(paths.image_folder(image.id) / project_files.NAME) as archive:
        return {member.name: member for member in archive}


def test_a_target_without_additions_has_no_stage_for_them() -> None:
    image = image_with("")
    assert image.additions is None
    assert "files.tar" not in dockerfiles.render(image, locks.wheels(image), locks.toolkit(image), locks.TOOLS)


def test_everything_is_written_into_the_last_stage() -> None:
    text = rendered(
        "files: [train.py]\nenv: {NAME: 'a \"b\" $c \\ d'}\nuser: trainer\nworkdir: /work\n"
        "entrypoint: [tini, --]\ncommand: python 'my script.py'"
    )
    assert 'ENV NAME="a \\"b\\" \\$c \\\\ d"\n' in text
    assert "USER 1000:1000\nWORKDIR /work\n" in text
    assert "ADD files.tar /\n" in text
    assert 'ENTRYPOINT ["tini", "--"]\nCMD ["python", "my script.py"]' in text
    assert text.splitlines()[1] == "FROM with-preflight AS image"


def test_labels_are_beside_those_of_the_tool() -> None:
    image = image_with("labels: {team: research}")
    assert {"team": "research"}.items() <= labels.image_labels(image, "", labels.Revision("", 0, None), []).items()


def test_files_are_packed_with_owner_mode_and_no_time(folder: Path) -> None:
    image = image_with(
        "files: [train.py, {path: src, to: /opt/src, owner: 7:8}, {path: train.py, to: /bin/, mode: '0755'}]"
    )
    digest = project_files.pack(image)
    packed = members(image)
    assert sorted(packed) == [
        "bin/train.py",
        "opt/src",
        "opt/src/deep",
        "opt/src/deep/tool.sh",
        "opt/src/link",
        "opt/src/main.py",
        "workspace/train.py",
    ]
    assert (packed["opt/src/deep/tool.sh"].mode, packed["opt/src/main.py"].mode) == (0o755, 0o644)
    assert (packed["opt/src/main.py"].uid, packed["opt/src/main.py"].gid) == (7, 8)
    assert packed["bin/train.py"].mode == 0o755
    assert packed["opt/src/link"].linkname == "main.py"
    assert {member.mtime for member in packed.values()} == {0}
    (folder / "train.py").touch()
    assert project_files.pack(image) == digest
    (folder / "src" / "notes.txt").write_text("more")
    assert project_files.pack(image) == digest
    (folder / "src" / "main.py").write_text("changed")
    assert project_files.pack(image) != digest


@pytest.mark.usefixtures("folder")
def test_the_user_owns_what_names_no_owner() -> None:
    image = image_with("files: [train.py]\nuser: {name: me, uid: 1234}")
    project_files.pack(image)
    assert members(image)["workspace/train.py"].uid == 1234


@pytest.mark.usefixtures("folder")
def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(RefusedError, match=r"absent\.py: no such file or folder\ncorrect `files`"):
        project_files.pack(image_with("files: [absent.py]"))
    assert "absent.py: no such file or folder" in (target_files.file_problem(image_with("files: [absent.py]")) or "")


def test_a_requirements_file_that_is_missing_is_named_with_its_line() -> None:
    with pytest.raises(RefusedError, match=r"^matrix\.yaml:8: requirements req\.txt: no such file\n"):
        make_plan("requirements: req.txt")


def test_a_path_over_a_link_is_refused(folder: Path) -> None:
    (folder / "real" / "sub").mkdir(parents=True)
    (folder / "real" / "sub" / "b").write_text("b")
    (folder / "link").symlink_to("real")
    (folder / "etc").symlink_to("/etc")
    for path in ("link/sub", "etc/hostname"):
        with pytest.raises(RefusedError, match=rf"{path} of `files` leads over a symbolic link"):
            project_files.pack(image_with(f"files: [{path}]"))


def test_a_folder_that_is_left_out_as_a_whole_is_refused(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "a").write_text("a")
    (folder / ".dockerignore").write_text("data\n")
    with pytest.raises(RefusedError, match=r"data of `files`: \.dockerignore leaves all of it out"):
        project_files.pack(image_with("files: [data]"))


@pytest.mark.usefixtures("folder")
def test_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_files, "MAX_BYTES", 5)
    with pytest.raises(RefusedError, match=r"leave data out with \.dockerignore, and mount it"):
        project_files.pack(image_with("files: [train.py, src]"))


def test_the_folder_is_a_context_of_stages_that_take_files_of_it(folder: Path) -> None:
    assert not project_files.uses_folder("FROM x\nCOPY --from=projector / /\n")
    for line in ("COPY --from=project src /src", "RUN --mount=type=bind,from=project,target=/x true"):
        assert project_files.uses_folder(line)
    before = project_files.folder_digest(".")
    (folder / "src" / "notes.txt").write_text("x")
    assert project_files.folder_digest(".") == before
    (folder / "src" / "main.py").write_text("x")
    assert project_files.folder_digest(".") != before


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ("files: [/etc/passwd]", "outside of the folder"),
        ("files: [../x]", "outside of the folder"),
        ("files: [{path: x, to: opt}]", "write an absolute path"),
        ("files: [{path: x, owner: me}]", "'me' is no user of the image: write root, UID or UID:GID, or add `user:`"),
        ("files: [{path: x, mode: rwx}]", "write octal digits"),
        ("files: [{pth: x}]", "path"),
        ("env: {a-b: x}", "is no name of a variable"),
        ("env: {PATH: /x}", "PATH leads to the image's Python"),
        ('env: {A: "x\\ny"}', "env.A: the character U+000A is in it"),
        ("user: root", "'root' cannot be made"),
        ("labels: {io.rdma-images.fabric: none}", "is written by this tool"),
        ("secrets: {token: hunter2}", "a secret is never written here"),
        ('checks: ["one\\ntwo"]', "checks.0: the character U+000A is in it"),
        ("checks: ['']", "write one line for a shell"),
        ("secrets: {netrc: 'env:X'}", "cannot name a secret"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(fields: str, sentence: str) -> None:
    with pytest.raises(RefusedError) as caught:
        make_plan(fields)
    assert str(caught.value).startswith("matrix.yaml:8")
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("NCCL_NET: Socket", "NCCL_NET=Socket: NCCL then uses TCP alone"),
        ("NCCL_NET: Foo", "NCCL_NET=Foo: the plugin answers to Libfabric, AWS Libfabric and OFI"),
        ("FI_PROVIDER: tcp", "FI_PROVIDER=tcp: "),
        ("FI_PROVIDER: ''", "FI_PROVIDER=: an empty value is a filter that leaves libfabric no provider"),
        ("NCCL_NET_PLUGIN: none", "NCCL_NET_PLUGIN=none: NCCL then loads no plugin and uses TCP"),
    ],
)
def test_a_variable_that_takes_the_fabric_away_is_refused(variable: str, sentence: str) -> None:
    (refusal,) = make_plan(f"env: {{{variable}}}").refusals
    (broken,) = refusal.broken
    assert broken.rule == "own-environment"
    assert sentence in broken.reason
    assert "leave it out" in broken.reason
    assert broken.source


@pytest.mark.parametrize("name", ["AWS Libfabric", "OFI", "libfabric"])
def test_a_network_by_another_of_its_names(name: str) -> None:
    (image,) = make_plan(f"env: {{NCCL_NET: {name}}}").images
    assert image.additions
    assert image.additions.environment == {"NCCL_NET": name}


def test_a_name_that_an_older_plugin_has_not() -> None:
    (refusal,) = make_plan("env: {NCCL_NET: Libfabric}", **{"aws-ofi-nccl": "1.12.1"}).refusals
    reason = next(broken.reason for broken in refusal.broken if broken.rule == "own-environment")
    assert "NCCL_NET=Libfabric: this plugin answers to AWS Libfabric alone" in reason


def test_an_image_that_may_fall_back_may_name_its_network() -> None:
    assert make_plan("env: {NCCL_NET: AWS Libfabric}", fallback="allow").images


def test_the_variables_of_the_image_itself_are_no_fault() -> None:
    assert make_plan("env: {NCCL_NET: Libfabric, NCCL_DEBUG: INFO}").images


@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        ("NVSHMEM_REMOTE_TRANSPORT: ibrc", "EFA is behind its transport libfabric"),
        ("MOONCAKE_PROTOCOL: rdma", "EFA does not have"),
        ("MOONCAKE_PROTOCOL: tcp", "transfers go over TCP"),
        ("MC_FORCE_TCP: '1'", "transfers go over TCP"),
        ("SGLANG_DISAGGREGATION_NIXL_BACKEND: UCX", "emulates reads and writes"),
        ("SGLANG_DISAGGREGATION_NIXL_BACKEND: LIBFABRIC", ""),
    ],
)
def test_the_plan_says_what_takes_a_part_off_the_fabric(variable: str, reason: str) -> None:
    (image,) = make_plan(f"env: {{{variable}}}").images
    notes = [*additions.notes(image)]
    assert reason in notes[0] if reason else not notes


@pytest.fixture
def secret_texts(tmp_path: Path) -> Callable[[Image], dict[str, str]]:
    """Return a function that reads the secrets of a build of an image."""

    def read(image: Image) -> dict[str, str]:
        files = build_secrets.write_secrets(tmp_path / "secrets", (), mirrors.load(), image.secrets)
        return {name: path.read_text() for name, path in files.items() if name != "ca-bundle"}

    return read


def test_a_secret_reaches_the_build_and_no_record(
    secret_texts: Callable[[Image], dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_TOKEN", "hunter2")
    (tmp_path / "key").write_text("s3cret\n")
    image = image_with(f"secrets: {{git-token: 'env:GIT_TOKEN', key: 'file:{tmp_path}/key'}}")
    texts = secret_texts(image)
    assert (texts["git-token"], texts["key"]) == ("hunter2", "s3cret")
    assert "hunter2" not in str(planner.plan_document(image))


def test_a_secret_that_is_not_there_is_named(secret_texts: Callable[[Image], dict[str, str]]) -> None:
    with pytest.raises(RefusedError, match=r"matrix\.yaml, secret t: the environment has no ABSENT\nset it"):
        secret_texts(replace(image_with(""), secrets={"t": "env:ABSENT"}))


def test_the_example_of_the_guide_is_planned_and_its_fields_are_all_documented(folder: Path) -> None:
    (folder / "requirements.txt").write_text("transformers\n")
    (folder / "my-trainer").mkdir()
    (folder / "my-trainer" / "pyproject.toml").write_text('[project]\nname = "my-trainer"\nversion = "1"\n')
    pages = ("guides/own-image.md", "reference/targets.md")
    page = "".join((REPOSITORY / "docs" / name).read_text("utf-8") for name in pages)
    example = page.partition("```yaml\n")[2].partition("```")[0]
    (image,) = planner.plan(yaml_file.loads(example, Matrix, "own-image.md"), FACTS).images
    assert image.additions is not None
    assert [file.destination for file in image.additions.files] == [
        "/workspace/train.py",
        "/opt/app/src",
        "/usr/local/bin/start.sh",
    ]
    assert all(f"`{name}`" in page for name in TargetAdditions.model_fields)


def test_a_compiler_is_a_few_packages_and_ends_the_limit_on_torch_compile() -> None:
    image = image_with("debian-packages: [jq]\ncompiler: true")
    assert image.debian_packages == ("jq", "gcc", "libc6-dev", "libpython3-dev")
    assert "torch-compile" not in {limit.name for limit in image.limitations}
    assert "torch-compile" in {limit.name for limit in image_with("debian-packages: [jq]").limitations}
