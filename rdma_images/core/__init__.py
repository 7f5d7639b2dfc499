"""Basic parts of all steps: errors, paths, versions, strict YAML, atomic files, locks, and the model."""
