"""Read NCCL logs: their lines, and the network that their channels use."""
