"""Make image layers from wheel files, once for every image, base and engine.

- What a layer is: `recipe` names it, and `layer_store` keeps those that were made here.
- Where it is made: `layer_pool` runs `make_wheel_layer`, which writes the files of `wheel_members`
  with `blob` and `seekable_layer`.
- How it reaches the builder, in a `layer_image`: `engine_layers` loads what the engine lacks, into the private one by
  `private_engine_pull`; `registry_layers` sends what a registry lacks, where BuildKit reads it.
- For publishing, `tar_layer` gives another layer's tar a table of contents.
"""
