"""What must hold in an image: validators relate what the probes measured."""
