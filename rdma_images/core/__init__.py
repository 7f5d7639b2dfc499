"""What every step uses: errors, paths, versions, strict YAML, files, locks, the model."""
