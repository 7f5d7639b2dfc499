"""The proof in writing: report.json for programs, a table for terminals, a page for people."""

from rdma_images.report.files import load, write
from rdma_images.report.table import table

__all__ = ["load", "table", "write"]
