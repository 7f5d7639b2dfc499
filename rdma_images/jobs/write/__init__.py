"""Write the job that runs an image: every count and variable decided, and the files of its launcher."""
