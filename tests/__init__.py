"""The tests of every day; those in e2e/ need a container engine."""
