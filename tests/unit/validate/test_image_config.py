"""Reading the configuration of an image from an engine."""

from unittest import mock

import pytest
from docker.errors import ImageNotFound

from rdma_images.core.errors import RefusedError
from rdma_images.validate.image_config import read_image_config


def test_an_image_that_the_engine_has_not_is_a_wrong_use() -> None:
    client = mock.Mock()
    client.api.inspect_image.side_effect = ImageNotFound("404 Client Error")
    with pytest.raises(RefusedError, match="the engine has no image 'nonsense'"):
        read_image_config(client, "nonsense")
