"""The tasks of rdma-images: `invoke --list`, and `invoke --help TASK` for one. What they do is in rdma_images/cli/."""

from rdma_images.cli.program import namespace

ns = namespace()
