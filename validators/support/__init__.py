"""What validators share: it holds no checks."""
