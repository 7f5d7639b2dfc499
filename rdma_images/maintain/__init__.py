"""Keep the project up to date: read facts again, propose newer rows for the matrix, lock what is downloaded."""
