"""The real tests: an engine, wheels, a registry, virtual machines."""
