"""The result of a job by its logs: the fabric, the adapters of each node, and the bus bandwidth."""
