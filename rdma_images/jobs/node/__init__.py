"""Run on a job's nodes beside the user's command: plain Python 3.8, packed into the job's files."""
