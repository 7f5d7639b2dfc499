"""The probes, which measure inside an image, a pod or a host.

These modules are carried into the image and run by its own Python, so they use the standard library only and stay
within Python 3.8. The same functions read a file tree that was taken out of an image without Python.
A probe is a function named after the value it returns; the value is plain data (dict, list, str, int, bool, None).
"""
