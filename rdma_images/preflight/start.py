"""Start `rdma-preflight` from the flat folder that this file lies in, whose modules keep their names of the project."""

import os
import sys
import types

FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("rdma_images", "rdma_images.nccl_logs", "rdma_images.preflight")


def register_packages() -> None:
    """Let Python find the modules of these packages in this folder, and nothing else there."""
    sys.path[:] = [folder for folder in sys.path if folder not in ("", FOLDER)]
    for name in PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [FOLDER]
        sys.modules[name] = package


if __name__ == "__main__":
    register_packages()
    from rdma_images.preflight import preflight

    sys.exit(preflight.main(sys.argv[1:]))
