"""The proof in writing: report.json for programs, a table for terminals, a page for people."""

from rdma_images.report.files import as_json, load, publish_kept, write, write_page
from rdma_images.report.page import page
from rdma_images.report.table import table

__all__ = ["as_json", "load", "page", "publish_kept", "table", "write", "write_page"]
