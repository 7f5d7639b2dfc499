"""The matrix as jobs and shards: every image once, kin together, exactly what changed."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from rdma_images import facts
from rdma_images.ci import jobs, select
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Component, Image
from rdma_images.plan import matrix, planner
from rdma_images.selection import target_options
from rdma_images.selection.project import Project


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(matrix.load(), facts.load())


@pytest.fixture(scope="module")
def all_images(project: Project) -> tuple[Image, ...]:
    return planner.plan(project.matrix, project.facts, all_rows=True).images


def many(count: int, torches: int = 1) -> list[Image]:
    """Images of `torches` kinds of wheels, on a base each."""
    return [
        Image(
            id=f"t-{number:04}",
            target="t",
            tag=f"{number:04}",
            fabric="efa",
            platform="linux/amd64",
            axes={},
            components={"pytorch": Component("pytorch", f"2.{number % torches}", "matrix")},
        )
        for number in range(count)
    ]


def test_the_words_of_a_job_mean_its_image_and_no_other(project: Project, all_images: tuple[Image, ...]) -> None:
    for job, image in zip(jobs.jobs(all_images, all_images, project.matrix), all_images, strict=True):
        words = shlex.split(job.arguments)
        pairs = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        (meant,) = target_options.chosen_images(project, [words[1]], False, pairs)
        assert (meant.id, meant.axes) == (image.id, image.axes)


def test_githubs_matrix_is_one_line_of_flat_values(project: Project, all_images: tuple[Image, ...]) -> None:
    text = jobs.as_github(jobs.jobs(all_images, all_images, project.matrix, {"linux/amd64": "large"}))
    assert "\n" not in text
    rows = json.loads(text)["include"]
    assert len(rows) == len(all_images)
    assert all(isinstance(value, str | int) for row in rows for value in row.values())
    assert {row["runner"] for row in rows if row["platform"] == "linux/amd64"} == {"large"}


def test_more_jobs_than_github_takes_are_refused(all_images: tuple[Image, ...], project: Project) -> None:
    (job, *_) = jobs.jobs(all_images, all_images, project.matrix)
    with pytest.raises(RefusedError, match="--shard 1/2"):
        jobs.as_github([job] * 257)


def test_kin_read_each_others_caches(all_images: tuple[Image, ...], project: Project) -> None:
    for job in jobs.jobs(all_images, all_images, project.matrix):
        assert job.caches.split()[0] == job.cache
    cache_names = {image.id: jobs.cache_name(image) for image in all_images}
    assert len(set(cache_names.values())) == len(all_images)
    changed_image = all_images[0]
    (job_alone,) = jobs.jobs([changed_image], all_images, project.matrix)
    kindred = {
        cache_names[image.id] for image in all_images if jobs.wheel_group(image) == jobs.wheel_group(changed_image)
    }
    assert set(job_alone.caches.split()) == kindred, "also of kin that did not change"


@pytest.mark.parametrize(
    ("count", "torches", "shard_count"), [(1, 1, 1), (10, 3, 4), (100, 7, 8), (1000, 20, 16), (3, 1, 5)]
)
def test_shards_are_disjoint_and_complete(count: int, torches: int, shard_count: int) -> None:
    images = many(count, torches)
    parts = select.split_images(images, shard_count)
    assert len(parts) == shard_count
    assert sorted(image.id for part in parts for image in part) == sorted(image.id for image in images)
    assert parts == select.split_images(list(reversed(images)), shard_count)


def test_kin_stay_together_where_there_are_kinds_enough() -> None:
    parts = select.split_images(many(100, torches=10), 5)
    of_kind = [{jobs.wheel_group(image) for image in part} for part in parts]
    assert sum(map(len, of_kind)) == 10


def test_shards_weigh_alike() -> None:
    parts = select.split_images(many(1000, torches=40), 8)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 25


def test_every_machine_gets_something_where_there_are_images_enough() -> None:
    assert all(select.split_images(many(10, torches=1), 4))


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="--shard"):
        select.parse_shard(text)


def test_what_changed_is_new_or_made_of_something_else() -> None:
    images = many(3)
    now = {image.id: f"sha256:{image.id}" for image in images}
    before = {images[0].id: now[images[0].id], images[1].id: "sha256:other"}
    assert select.changed_images(images, now, before) == tuple(images[1:])


def test_a_commit_that_is_not_here_is_reported() -> None:
    with pytest.raises(RefusedError, match="fetch the commit"):
        select.digests_of_commit("0" * 40)


def test_a_commit_that_cannot_tell_builds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run([*git, *arguments], check=True)
    monkeypatch.setattr("rdma_images.core.paths.PROJECT", tmp_path)
    monkeypatch.setattr("rdma_images.core.paths.PYTHON", ("/bin/false",))
    lines: list[str] = []
    assert select.digests_of_commit("HEAD", lines.append) == {}
    assert "every image counts as changed" in lines[0]
    worktrees = subprocess.run([*git, "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(worktrees.splitlines()) == 1


@pytest.mark.parametrize("text", ["1/1000000000", "1/" + "9" * 5000, "\u0661/\u0662", "1/2\n", ""])
def test_a_shard_that_nobody_has(text: str, all_images: tuple[Image, ...]) -> None:
    with pytest.raises(RefusedError, match="write i/n with i from 1 to n, and n at most 2000") as error:
        select.select_images(all_images, text, None)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("commit", ["--output=x", "-x", "no-such-commit", "HEAD\0", ""])
def test_a_commit_that_is_none_is_no_option_of_git(commit: str, all_images: tuple[Image, ...]) -> None:
    with pytest.raises(RefusedError, match="name a"):
        select.select_images(all_images, None, commit)


def test_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="git: No such file or directory\ninstall it"):
        select.digests_of_commit("HEAD")


def test_a_runner_for_a_platform_that_no_image_is_for(project: Project, all_images: tuple[Image, ...]) -> None:
    with pytest.raises(RefusedError, match=r"--runner: no platform 'linux/ppc64'\ndid you mean"):
        jobs.jobs(all_images, all_images, project.matrix, {"linux/ppc64": "x"})
