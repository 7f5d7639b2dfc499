"""What every step stands on: errors, paths, versions, strict YAML, whole files, locks, and the model."""
