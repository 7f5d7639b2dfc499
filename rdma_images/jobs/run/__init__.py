"""Submit a job with its user's own programs, follow it, keep its logs, and remove what was submitted."""
