"""Validators: the requirements of an image, compared with what the probes measured."""
