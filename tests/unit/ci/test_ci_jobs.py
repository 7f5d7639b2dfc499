"""The matrix as CI jobs: one for each image, which selects this image alone."""

import json
import shlex

import pytest

from rdma_images import facts
from rdma_images.ci import ci_jobs
from rdma_images.core.errors import RefusedError
from rdma_images.core.image import Image
from rdma_images.inputs import target_options
from rdma_images.inputs.project import Project
from rdma_images.plan import matrix, planner


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(matrix.load(), facts.load())


@pytest.fixture(scope="module")
def all_images(project: Project) -> tuple[Image, ...]:
    return planner.plan(project.matrix, project.facts, all_rows=True).images


def test_the_options_of_an_image_mean_it_and_no_other(project: Project, all_images: tuple[Image, ...]) -> None:
    for job, image in zip(ci_jobs.jobs(all_images, all_images), all_images, strict=True):
        words = shlex.split(job.arguments)
        assert job.arguments == image.options
        pairs = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        (meant,) = target_options.chosen_images(project, [words[1]], False, pairs)
        assert (meant.id, meant.axes) == (image.id, image.axes)


def test_githubs_matrix_is_one_line_of_flat_values(all_images: tuple[Image, ...]) -> None:
    text = ci_jobs.as_github(ci_jobs.jobs(all_images, all_images, {"linux/amd64": "large"}))
    assert "\n" not in text
    rows = json.loads(text)["include"]
    assert len(rows) == len(all_images)
    assert all(isinstance(value, str | int) for row in rows for value in row.values())
    assert {row["runner"] for row in rows if row["platform"] == "linux/amd64"} == {"large"}


def test_more_jobs_than_github_takes_are_refused(all_images: tuple[Image, ...]) -> None:
    (job, *_) = ci_jobs.jobs(all_images, all_images)
    with pytest.raises(RefusedError, match="split it with --target"):
        ci_jobs.as_github([job] * 257)


def test_kin_read_each_others_caches(all_images: tuple[Image, ...]) -> None:
    for job in ci_jobs.jobs(all_images, all_images):
        assert job.caches.split()[0] == job.cache
    cache_names = {image.id: ci_jobs.cache_name(image) for image in all_images}
    assert len(set(cache_names.values())) == len(all_images)
    changed_image = all_images[0]
    (job_alone,) = ci_jobs.jobs([changed_image], all_images)
    kindred = {
        cache_names[image.id]
        for image in all_images
        if ci_jobs.wheel_group(image) == ci_jobs.wheel_group(changed_image)
    }
    assert set(job_alone.caches.split()) == kindred, "also of kin that did not change"


def test_a_runner_for_a_platform_that_no_image_is_for(all_images: tuple[Image, ...]) -> None:
    with pytest.raises(RefusedError, match=r"--runner: no platform 'linux/ppc64'\ndid you mean"):
        ci_jobs.jobs(all_images, all_images, {"linux/ppc64": "x"})
