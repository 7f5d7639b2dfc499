#!/bin/sh
# A stand-in for NVIDIA's: says what it is, and starts what it is given.
echo "This stands on a stand-in for NVIDIA's CUDA image." >&2
exec "$@"
