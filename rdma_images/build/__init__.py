"""From a Dockerfile and its inputs to an image in an engine.

`build_images` is the whole way, a line for each step. `build_spec` holds all that decides an image's bytes;
`bake_targets`, `project_files`, `stand_ins`, `source_wheels` and `wheel_contexts` make what its Dockerfile reads;
`run_bake` starts BuildKit, and `build_record` writes down what came of it.
"""
