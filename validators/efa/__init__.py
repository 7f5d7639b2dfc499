"""Checks of images for EFA."""

from validators.support.applies import for_fabric

reason = for_fabric("efa")
