"""The report under build/images/ of the image that a job names by its digest."""

import re
from collections.abc import Mapping

from rdma_images.core import files, paths
from rdma_images.inspection.report import Report
from rdma_images.publish import publication
from rdma_images.report.report_files import REPORT

DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")


def component_versions(reference: str) -> Mapping[str, str]:
    """Return the versions of the image's components by its report; empty without one."""
    image_report = find_report(reference)
    return image_report.inspection.expected.components if image_report and image_report.inspection else {}


def find_report(reference: str) -> Report | None:
    """Return the report of the image "host/repository@sha256:…"; None where none is here."""
    match = DIGEST.search(reference)
    for folder in files.list_folder(paths.IMAGES) if match and paths.IMAGES.is_dir() else ():
        if (measured := REPORT.read(folder.name)) is None:
            continue
        published = publication.PUBLICATION.read_if_valid(folder.name)
        copies = published.copies.values() if published else ()
        if match and match[1] in {measured.digest, *(copy.ref.rpartition("@")[2] for copy in copies)}:
            return measured
    return None
