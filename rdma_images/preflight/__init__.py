"""The program `rdma-preflight`, which every image carries: it checks a job's nodes and then runs the job's command.

Plain Python 3.8 without dependencies. In an image these files lie in one flat folder beside those of `nccl_logs`.
"""
