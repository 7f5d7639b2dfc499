"""References of images: with a registry, with docker's defaults, and what is none."""

import pytest

from rdma_images.core.errors import RefusedError
from rdma_images.registry.reference import ImageReference, parse_reference, with_registry


@pytest.mark.parametrize(
    ("text", "host", "repository", "selector"),
    [
        ("h.example/a/b:v1", "h.example", "a/b", "v1"),
        ("127.0.0.1:5000/a", "127.0.0.1:5000", "a", "latest"),
        ("[::1]:5000/a:v1", "[::1]:5000", "a", "v1"),
        ("localhost/a@sha256:1", "localhost", "a", "sha256:1"),
        ("h.example/a:v1@sha256:1", "h.example", "a", "sha256:1"),
    ],
)
def test_a_reference_has_three_parts(text: str, host: str, repository: str, selector: str) -> None:
    assert parse_reference(text) == ImageReference(host, repository, selector)


@pytest.mark.parametrize("text", ["h.example/a/b:v1", "localhost:5000/a@sha256:1"])
def test_a_reference_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize("text", ["efa-pytorch:latest", "training/efa-pytorch", "x", "-h.example/a", "a..b/c"])
def test_a_reference_without_a_registry_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="names no registry\nwrite host/repository"):
        parse_reference(text)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("nvidia/cuda:13.0", "docker.io/nvidia/cuda:13.0"),
        ("nvcr.io/nvidia/cuda:13.0", "nvcr.io/nvidia/cuda:13.0"),
        ("localhost/x", "localhost/x"),
        ("registry:5000/x", "registry:5000/x"),
    ],
)
def test_the_registry_that_docker_means(short: str, full: str) -> None:
    assert with_registry(short) == full
