"""What runs on a job's nodes beside the user's command: plain Python 3.8, each module alone, without dependencies."""
