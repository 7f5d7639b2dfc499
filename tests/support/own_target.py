"""The example of docs/guides/own-image.md, as it is written there."""

import re

from rdma_images.core import paths

NAME = "documented-training"  # no other test builds an image of this name
PAGE = (paths.PROJECT / "docs" / "guides" / "own-image.md").read_text(encoding="utf-8").replace("my-training", NAME)


def block(language: str) -> str:
    """Return the page's one block with this info string."""
    block: str
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return block


TEMPLATE, ROWS = block("jinja"), block("yaml target")
