"""The report of a validation: report.json for programs, a table for terminals, a page for people."""

from rdma_images.report.checks_table import report_table
from rdma_images.report.report_files import REPORT, as_json, publish_cached, write, write_page

__all__ = ["REPORT", "as_json", "publish_cached", "report_table", "write", "write_page"]
