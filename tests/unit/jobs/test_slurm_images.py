"""What Slurm's script calls the image."""

import pytest

from tests.support import job_parts as jobs


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("docker.io/team/image", "registry-1.docker.io/team/image"),
        ("docker.io/image", "registry-1.docker.io/library/image"),
        ("team/image:1.0", "registry-1.docker.io/team/image:1.0"),
        ("localhost:5000/team/image", "localhost:5000/team/image"),
    ],
)
def test_an_image_of_docker_hub_has_the_host_that_answers(image: str, name: str) -> None:
    """enroot up to 4.1.2 asks the host docker.io itself, which is no registry."""
    digest = "@sha256:" + "5e" * 32
    script = jobs.files(jobs.job("slurm", "efa", "torchrun", image=image + digest))["job.sbatch"]
    assert f"--container-image=docker://{name}{digest}\n" in script
