"""From an image to the job that runs it: generated right for a launcher and an instance type."""
