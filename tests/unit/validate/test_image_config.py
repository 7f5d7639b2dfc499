"""Reading the configuration of an image from an engine."""

from unittest import mock

import pytest
from docker.errors import ImageNotFound, NotFound

from rdma_images.core.errors import RefusedError
from rdma_images.validate.image_config import UNPACK_SECONDS, read_image_config


def test_an_image_that_the_engine_has_not_is_a_wrong_use() -> None:
    client = mock.Mock()
    client.api.inspect_image.side_effect = ImageNotFound("404 Client Error")
    with pytest.raises(RefusedError, match=r"has no image nonsense\n.*docker pull nonsense"):
        read_image_config(client, "nonsense")


def test_an_engine_has_time_to_unpack_a_large_image() -> None:
    client = mock.Mock()
    waited: list[int] = []

    def create(*_: object, **__: object) -> mock.Mock:
        waited.append(client.api.timeout)
        return mock.Mock()

    client.api.timeout, client.api.inspect_image.return_value = 60, {"Id": "sha256:1"}
    client.api.history.side_effect = [NotFound("no snapshot"), []]
    client.containers.create.side_effect = create
    read_image_config(client, "large")
    assert (waited, client.api.timeout) == ([UNPACK_SECONDS], 60)
