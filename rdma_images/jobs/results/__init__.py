"""What a job's logs say: which fabric, on how many adapters of each node, at what bus bandwidth."""
