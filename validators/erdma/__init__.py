"""Checks of images for eRDMA."""

from validators.support.applies import for_fabric

reason = for_fabric("erdma")
