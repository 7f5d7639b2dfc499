"""Folders of an image that several components name."""

CUDA = "/usr/local/cuda"  # where NVIDIA's images, and what compiles CUDA, have the toolkit
OPEN_MPI = "/opt/amazon/openmpi"  # the EFA installer's
