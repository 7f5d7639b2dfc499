"""Checks of images for a fabric, EFA or eRDMA."""

from validators.support.applies import for_fabric

reason = for_fabric("efa", "erdma")
