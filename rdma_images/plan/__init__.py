"""What would be built, and what is refused and why. Downloads nothing."""
