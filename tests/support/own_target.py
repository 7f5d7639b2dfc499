"""The example of docs/reference/targets.md, as it is written there."""

import re

from rdma_images.core import paths

NAME = "documented-training"  # no other test builds an image of this name
PAGE = (paths.PROJECT / "docs" / "reference" / "targets.md").read_text(encoding="utf-8").replace("my-training", NAME)


def block(language: str) -> str:
    """Return the page's one block in a language."""
    block: str
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return block


TEMPLATE, ROWS = block("jinja"), block("yaml")
