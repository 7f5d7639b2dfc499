"""Read jobs that somebody wrote: from a file to the parts of jobs in it, by what is in the file."""
