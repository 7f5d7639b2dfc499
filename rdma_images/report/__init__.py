"""The report of a validation: report.json for programs, a table for terminals, a page for people."""

from rdma_images.report.files import REPORT, as_json, publish_kept, write, write_page
from rdma_images.report.table import table

__all__ = ["REPORT", "as_json", "publish_kept", "table", "write", "write_page"]
