"""Read NCCL's logs and judge the network: Python 3.8 and its standard library, since images carry this package."""
