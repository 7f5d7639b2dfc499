"""The network that NCCL would use in an image, link by link, from what was run and read in it."""

from rdma_images.chain.network_answer import FABRICS, compute_chain, network_request, requested_fabric

__all__ = ["FABRICS", "compute_chain", "network_request", "requested_fabric"]
