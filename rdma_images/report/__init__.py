"""The report of a validation: report.json for programs, a table for terminals, a page for people."""

from rdma_images.report.files import REPORT, as_json, publish_cached, write, write_page
from rdma_images.report.table import report_table

__all__ = ["REPORT", "as_json", "publish_cached", "report_table", "write", "write_page"]
