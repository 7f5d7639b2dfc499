"""Write the job of a request into its folder."""

from pathlib import Path

from rdma_images.build import preflight_folder
from rdma_images.facts.instances import INTERFACE_RESOURCES
from rdma_images.inputs.project import Project
from rdma_images.jobs.write import job_folder, model_server, render, server
from rdma_images.jobs.write.decisions import CODE_FOLDER, PREFLIGHT_FOLDER, decide_job
from rdma_images.jobs.write.job import Job, JobRequest
from rdma_images.jobs.write.job_settings import read_code


def render_job_files(job: Job, project: Project) -> dict[str, str]:
    """Return the files of a job by name, job.json among them, without the folders that its containers see."""
    launcher = project.facts.launchers.launchers[job.launcher]
    written = render.escape_for_pods(job) if launcher.kind == "kubernetes" else job
    context = {"job": written, "launcher": launcher, "resource": INTERFACE_RESOURCES[job.fabric]}
    texts = render.render_templates(job.launcher, context)
    return {**texts, job_folder.JOB_FILE: job_folder.job_text(job, texts)}


def decide_any_job(request: JobRequest, project: Project) -> Job:
    """Return the job of a request, of one part or of several. Raises RefusedError."""
    if request.model:
        return model_server.decide_model_server(request, project)
    return server.decide_server(request, project) if request.roles else decide_job(request, project)


def write_job(request: JobRequest, project: Project, out: str = "") -> tuple[Job, Path]:
    """Write the job of a request, whole or not at all; returns it with its folder.

    Raises RefusedError for what cannot work or is not known.
    """
    job = decide_any_job(request, project)
    path = job_folder.output_folder(job.name, out)
    contents = {CODE_FOLDER: read_code(request.settings.code), PREFLIGHT_FOLDER: preflight_folder.files()}
    seen = {f"{part.name}/{name}": contents[part.name][name] for part in job.folders for name in part.files}
    job_folder.write(path, {**render_job_files(job, project), **seen})
    return job, path
