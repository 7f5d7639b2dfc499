"""What CI needs to know of the matrix: which jobs, on which machines, with what in common."""
