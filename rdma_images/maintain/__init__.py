"""Keeping the project up to date: facts read again, newer rows for the matrix."""
