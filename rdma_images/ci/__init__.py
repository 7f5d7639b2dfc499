"""The matrix for CI: which jobs, on which machines, with what in common."""
