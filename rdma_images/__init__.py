"""Container images for distributed GPU training over AWS EFA and Alibaba eRDMA."""
