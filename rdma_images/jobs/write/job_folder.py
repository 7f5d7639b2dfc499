"""Write and read the folder of a job. A folder is written whole or not at all."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from rdma_images.core import files, paths
from rdma_images.core.errors import RdmaImagesError, RefusedError, first_line
from rdma_images.core.step_files import step_file
from rdma_images.jobs.write.job import Job

JOB = step_file("job.json", "job", Job)  # written by `job_text`, which says more
JOB_FILE = JOB.name
WIDTH = 190  # characters of a line of job.json


def output_folder(name: str, out: str) -> Path:
    """Return the folder of a job. Raises RefusedError if others' files are in it."""
    folder = Path(out) if out else paths.BUILD / "jobs" / name
    if folder.exists() and not folder.is_dir():
        raise RefusedError(f"--out {folder}: this is a file\nname a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / JOB_FILE).is_file():
        raise RefusedError(f"{folder} has files that no job wrote\nname another folder with --out, or empty it")
    return folder


def write(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    """Replace the files of the job in `folder` by these, by their paths below it; scripts are executable.

    Nothing is replaced before all are written. Files that the earlier job did not write, such as its runs, stay; raises
    RefusedError where one of them has the name of a file to write.
    """
    foreign = _other_files(folder)
    if replaced := sorted(foreign & {Path(name).parts[0] for name in contents}):
        raise RefusedError(f"{folder / replaced[0]} is not of the job in this folder, and would be replaced\nrename it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        for name, written in contents.items():
            path, content = Path(temporary, name), written.encode() if isinstance(written, str) else written
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755 if content.startswith(b"#!") else 0o644)
        folder.mkdir(exist_ok=True)
        for entry in folder.iterdir():
            if entry.name not in foreign:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for entry in Path(temporary).iterdir():
            entry.rename(folder / entry.name)


def _other_files(folder: Path) -> set[str]:
    """Return the names in a folder that the job or cluster there did not write."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return names - written_files(folder)


def written_files(folder: Path) -> set[str]:
    """Return the names of the files that a job wrote into the folder, by its job.json."""
    try:
        return {JOB_FILE, *json.loads((folder / JOB_FILE).read_text(encoding="utf-8"))["files"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {JOB_FILE}


def container_files(job: Job, path: Path) -> dict[str, bytes]:
    """Return the files in the folder of a job that its containers see, by their paths below it."""
    names = [f"{folder.name}/{name}" for folder in job.folders for name in folder.files]
    return {name: files.read_bytes(path / name) for name in names}


def load(path: Path) -> Job:
    """Return the job of a job.json, or of its folder. Raises RefusedError for none, and for a broken one."""
    job_file = path if path.is_file() else path / JOB_FILE
    try:
        job = JOB.read_file(job_file)
    except RdmaImagesError as error:
        fix = f"name the {JOB_FILE} that `{paths.COMMAND} job` wrote; if that is broken, run the command again"
        raise RefusedError(f"{first_line(error)}\n{fix}") from None
    if job is None:
        raise RefusedError(
            f"{job_file.parent} is not the folder of a job: it has no {job_file.name}\n"
            f"name a folder that `{paths.COMMAND} job` wrote, as build/jobs/<name>"
        )
    return job


def job_text(job: Job, texts: Mapping[str, str]) -> str:
    """Return the text of job.json: the fields that differ from their default, each value with its reason and source."""
    names = sorted([*texts, *(folder.name for folder in job.folders)])
    fields = TypeAdapter(Job).dump_python(job, mode="json", exclude_defaults=True)
    return json_text({"schema": 1, **fields, "digest": job.digest, "ranks": job.ranks, "files": names})


def json_text(document: Mapping[str, object]) -> str:
    """Return a document as JSON that people read: what fits into a line has one."""
    return _indented(document, "") + "\n"


def _indented(value: object, indent: str, key: str = "") -> str:
    """Return an entry of a document after its `indent`, with its key where it has one."""
    line = f"{key}{json.dumps(value, ensure_ascii=False)}"
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list | tuple):
        return line
    inner = f"{indent}  "
    if isinstance(value, dict):
        parts, ends = [_indented(part, inner, f"{json.dumps(name)}: ") for name, part in value.items()], "{}"
    else:
        parts, ends = [_indented(part, inner) for part in value], "[]"
    body = ",\n".join(f"{inner}{part}" for part in parts)
    return f"{key}{ends[0]}\n{body}\n{indent}{ends[1]}"
