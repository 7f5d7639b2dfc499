"""Start `rdma-preflight` from the flat folder that this file lies in, whose modules keep their names of the project."""

import os
import sys
import types

FOLDER = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("rdma_images", "rdma_images.nccl_logs", "rdma_images.preflight")


if __name__ == "__main__":
    # Python finds the modules of these packages in this folder, and nothing else there.
    sys.path[:] = [folder for folder in sys.path if folder not in ("", FOLDER)]
    for name in PACKAGES:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [FOLDER]
    from rdma_images.preflight import preflight

    sys.exit(preflight.main(sys.argv[1:]))
