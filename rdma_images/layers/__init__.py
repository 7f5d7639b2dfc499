"""Make image layers from wheel files, once for every image, base and engine.

- What a layer is: `recipe` names it, `locked_digests` and `layer_store` remember it.
- Where it is made: `layer_pool` runs `make_wheel_layer`, which writes the files of `wheel_tree`
  with `blob` and `seekable_layer`; `lock_layers` does so for `invoke lock --layers`.
- How it reaches an engine: `engine_layers` finds those it has, `remote_layers` those in a
  registry; `load_layers` brings the rest, to the private engine by `layer_downloads` and
  `private_engine_pull`.
"""
