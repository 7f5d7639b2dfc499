"""The mark of tests for which a private engine must run here."""

import pytest

from rdma_images.engine import private

obstacle = private.obstacle()
needs = pytest.mark.skipif(obstacle is not None, reason=str(obstacle))
