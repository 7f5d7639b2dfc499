"""Where things are: the project's own files, what a build writes, and the user's state folder."""

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
MATRIX = PROJECT / "matrix.yaml"
FACTS = PROJECT / "facts"
LOCKS = PROJECT / "locks"
DOCKERFILES = PROJECT / "dockerfiles"
VALIDATORS = PROJECT / "validators"
BUILD = PROJECT / "build"
IMAGES = BUILD / "images"


def image_folder(image_id: str) -> Path:
    """Where the steps write what they know of one image: build/images/<image id>/."""
    return IMAGES / image_id


def state_folder() -> Path:
    """Downloads, bootstrapped bases and the private engine, kept between runs and checkouts.

    RDMA_IMAGES_STATE names it; otherwise it is rdma-images under the XDG state home.
    """
    if chosen := os.environ.get("RDMA_IMAGES_STATE"):
        return Path(chosen).absolute()
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "rdma-images"
