"""What must hold in an image: validators compare what the probes measured."""
