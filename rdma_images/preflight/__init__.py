"""The program `rdma-preflight` of every image: plain Python 3.8, in one flat folder beside `nccl_logs` there."""
