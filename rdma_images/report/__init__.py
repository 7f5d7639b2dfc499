"""The report of a validation: report.json for programs, a table for terminals, a page for people."""

from rdma_images.report.checks_table import report_table
from rdma_images.report.report_files import REPORT, report_json, write, write_cached, write_page

__all__ = ["REPORT", "report_json", "report_table", "write", "write_cached", "write_page"]
