"""From a Dockerfile and its inputs to an image in an engine.

`build_images` decides what is built, from `build_spec`, which holds all that decides an image's
bytes. `run_build` runs it: `contexts`, `package_contexts`, `wheel_contexts` and `added_files`
make what a Dockerfile reads, and `run_bake` starts BuildKit.
"""
