"""The tasks for jobs, their clusters and their logs: job and job.*, cluster, verdict."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rdma_images.cli.output import end_with, show
from rdma_images.cli.parsing import after_dashes
from rdma_images.cli.task import Json, Onto, load_project, refuse_beside, task
from rdma_images.core import exit_codes
from rdma_images.core.durations import parse_duration
from rdma_images.core.errors import RefusedError
from rdma_images.core.paths import COMMAND
from rdma_images.core.progress import progress
from rdma_images.inputs import target_options

if TYPE_CHECKING:
    from rdma_images.publish.publisher import Publisher

Out = Annotated[str, "FOLDER | The folder to write; by default build/jobs/<name>/."]
CLUSTER_EXAMPLE = (
    "cluster --launcher eksctl --instance p5.48xlarge --nodes 2 --region us-west-2 --zone us-west-2a "
    "--param second-zone=us-west-2b"
)


@task(
    "job --target efa-nccl-tests --launcher mpijob --instance p5.48xlarge --nodes 2",
    "job --target efa-pytorch --launcher slurm --instance p5.48xlarge --mount /fsx:/data --field time=4h -- train.py",
    "job --job training",
    name="job.job",
    default=True,
)
def job(
    job: Annotated[str, "NAME | A job of jobs.yaml; the options below change it."] = "",
    target: Annotated[str, "A target of matrix.yaml: what runs."] = "",
    launcher: Annotated[str, f"What starts the job; {COMMAND} job.launchers shows the choices."] = "",
    instance: Annotated[str, "TYPE | The instance type, e.g. p5.48xlarge."] = "",
    nodes: Annotated[int, "N | How many nodes; by default one, or those of jobs.yaml."] = 0,
    set: Annotated[Sequence[str], "AXIS=VALUE | The image that was built with it."] = (),
    onto: Onto = "",
    image: Annotated[str, "HOST/NAME@sha256:… | The image; by default the one that publication.json names."] = "",
    name: Annotated[str, "The job's name; by default made of target, instance type and nodes."] = "",
    mount: Annotated[Sequence[str], "SOURCE:PATH[:ro] | A node's folder, claim:NAME, nfs:…, lustre:… or s3://…."] = (),
    env: Annotated[Sequence[str], "NAME=VALUE | A variable of the ranks."] = (),
    field: Annotated[Sequence[str], "NAME=VALUE | Another field of jobs.yaml, listed below, e.g. gpus=4."] = (),
    param: Annotated[Sequence[str], "NAME=VALUE | A parameter of the launcher, see job.launchers."] = (),
    out: Out = "",
    json: Json = False,
) -> None:
    """Write the job that runs an image on an instance type.

    Writes the files to submit, job.json and a README. Each rank runs the command after --; without one, nccl-tests'
    targets measure an all-reduce.
    """
    from rdma_images.jobs.write import create, job_tables, jobs_file

    options: dict[str, object] = {"target": target, "launcher": launcher, "instance": instance, "image": image}
    options |= {"nodes": nodes or None, "mounts": mount}
    options["env"] = target_options.parse_pairs(env, "--env", "NAME=value", may_be_empty=True)
    options["param"] = target_options.parse_pairs(param, "--param", "name=value")
    entry = jobs_file.load(job) if job else jobs_file.JobEntry()
    entry = jobs_file.with_options(jobs_file.with_options(entry, options), jobs_file.parse_fields(field))
    command = tuple(after_dashes(sys.argv))
    request = jobs_file.request(entry, command, name or job, changes=target_options.parse_pairs(set))
    loaded_project = load_project([request.target] if request.target else (), onto)
    written, folder = create.write_job(request, loaded_project, out)
    show(job_tables.job_json(folder) if json else job_tables.job_table(written, folder))


@task(CLUSTER_EXAMPLE, f"{CLUSTER_EXAMPLE} --param capacity-block=cr-0123456789abcdef0")
def cluster(
    *,
    launcher: Annotated[str, "What makes the cluster: eksctl."],
    instance: Annotated[str, "TYPE | The instance type of the nodes, e.g. p5.48xlarge."],
    region: Annotated[str, "The region, e.g. us-west-2."],
    zone: Annotated[str, "The zone of the region that the nodes are in."],
    nodes: Annotated[int, "N | How many nodes; by default one."] = 1,
    name: Annotated[str, "The cluster's name; by default made of the instance type."] = "",
    param: Annotated[Sequence[str], f"NAME=VALUE | A parameter that {COMMAND} job.launchers lists."] = (),
    out: Out = "",
    json: Json = False,
) -> None:
    """Write the files that make an EKS cluster for jobs.

    Node group, network interfaces, and a README with the order of the steps.
    """
    from rdma_images.jobs.write import cluster as clusters
    from rdma_images.jobs.write import job_tables

    params = target_options.parse_pairs(param, "--param", "name=value")
    request = clusters.ClusterRequest(launcher, instance, nodes, region, zone, name, params)
    cluster, folder = clusters.write_cluster(request, load_project(), out)
    show(job_tables.job_json(folder) if json else job_tables.cluster_table(cluster.values, folder))


@task("job.launchers", name="job.launchers")
def job_launchers(json: Json = False) -> None:
    """List the launchers of jobs, with their fabrics and targets.

    Also the parameters of each launcher, and of what makes a cluster.
    """
    from rdma_images.jobs.write import job_tables

    loaded = load_project(measures=False)
    show(job_tables.launchers_json(loaded.facts.launchers) if json else job_tables.launcher_table(loaded))


@task("job.check job.yaml job.sbatch", "job.check -", name="job.check")
def job_check(
    paths: Annotated[Sequence[str], "PATH... | Files, folders, which are walked in depth, or - for standard input."],
    json: Json = False,
) -> None:
    """Check existing job files, whoever wrote them.

    Says what takes the network away from Kubernetes manifests, sbatch scripts and SkyPilot tasks. A comment
    `# rdma-images: allow RULE`, in a line or above it, allows a finding there. The exit code is 1 if it finds an error
    that none allows, else 2 if it cannot read a file that you named.
    """
    from rdma_images.jobs.check import check_files, findings_table

    files = [Path("/dev/stdin" if name == "-" else name) for name in paths]
    checked = check_files(files)
    show(findings_table.as_json(checked) if json else findings_table.findings_text(checked))
    unread_files = {row.file for row in checked.unreadable} & set(map(str, files))
    end_with(exit_codes.FAILED if checked.has_errors else exit_codes.REFUSED if unread_files else 0)


@task("job.preflight", "job.preflight --out /shared/rdma-preflight", name="job.preflight")
def job_preflight(out: Annotated[str, "FOLDER | The folder to write; by default build/preflight/."] = "") -> None:
    """Write the preflight as files, for an image that lacks it.

    A job mounts the folder at /opt/rdma-images/preflight, where images built here have it.
    """
    from rdma_images.build import preflight_folder
    from rdma_images.core import paths

    folder = Path(out) if out else paths.BUILD / "preflight"
    preflight_folder.write(folder)
    show(f"{paths.display_path(folder)}: preflight {preflight_folder.version()}, {len(preflight_folder.files())} files")
    show(f"kubectl create configmap rdma-preflight --from-file={paths.display_path(folder)}")


@task(
    "job.run build/jobs/efa-nccl-tests-p5-48xlarge-2",
    "job.run build/jobs/efa-nccl-tests-p5-48xlarge-2 --compare tcp --timeout 20m",
    "job.run build/jobs/training --attach --sign cosign.key",
    name="job.run",
)
def job_run(
    folder: Annotated[str, f"The folder that {COMMAND} job wrote; with --attach also that of a run that has ended."],
    compare: Annotated[str, "tcp | Run the same job over TCP afterwards, to compare."] = "",
    timeout: Annotated[str, "DURATION | Limit to queue and run, as 90s, 30m or 1d; by default 1h plus its time."] = "",
    follow: Annotated[bool, "Show what the job prints while it runs."] = False,
    keep: Annotated[bool, "Leave the job in its queue or cluster; its README has the command that deletes it."] = False,
    attach: Annotated[bool, "Attach the result to the image that ran, for `verify`."] = False,
    sign: Annotated[str, "KEY | With --attach: a key file, a key service's reference, or keyless."] = "",
    json: Json = False,
) -> None:
    """Run a job and say what its logs show.

    Submits and follows the job, says which network it uses as soon as its logs show it, collects them, and removes the
    job, also on Ctrl-C. If a log line shows a fatal NCCL error, the job is stopped 10 seconds later.
    """
    from rdma_images.cli.publishing import publisher
    from rdma_images.jobs.results import from_logs, result_table, run_files
    from rdma_images.jobs.run import record, run_job
    from rdma_images.jobs.write import job_folder

    path = Path(folder)
    if sign and not attach:
        raise RefusedError(f"--sign {sign}: signs what --attach attaches\nadd --attach, or leave it out")
    result_publisher = publisher(sign)  # before the job: it refuses a key that is not there
    if record.is_run(path):
        if not attach:
            raise RefusedError(f"{folder} is a run that has ended\nname the job's folder, or add --attach --sign KEY")
        others = {"--compare": compare, "--timeout": timeout, "--follow": follow, "--keep": keep, "--json": json}
        refuse_beside("the folder of a run", others)
        show(_attach(path, result_publisher))
        return
    if compare not in ("", "tcp"):
        raise RefusedError(f"--compare {compare}: a job can only be compared with itself over TCP\nuse --compare tcp")
    limit = parse_duration(timeout, "--timeout") if timeout else run_job.JobRunOptions.limit
    if not timeout:
        limit += job_folder.load(path).settings.time
    options = run_job.JobRunOptions(compare == "tcp", limit, keep, prints_log=follow)
    run_folder = run_job.run_job(path, load_project(), options, progress)
    result = from_logs.read_job_result([run_folder])
    run_files.write(result, run_folder)
    show(run_files.RESULT.text(result).rstrip() if json else result_table.result_table(result))
    failures = record.failures(run_folder)
    for why in failures:
        show(f"the job failed: {why}", file=sys.stderr)
    exit_code = exit_codes.FAILED if failures else result.exit_code
    if attach:
        note = f"not attached: only a run with exit code 0 is, and this one's is {exit_code}"
        show(note if exit_code else _attach(run_folder, result_publisher), file=sys.stderr)
    end_with(exit_code)


def _attach(folder: Path, result_publisher: "Publisher") -> str:
    """Attach the result of a run to the image that it ran, signed; return a sentence that says so."""
    from rdma_images.jobs.results import evidence, run_files
    from rdma_images.jobs.run import record

    if failures := record.failures(folder):
        raise RefusedError(f"{folder}: the job did not succeed: {failures[0]}\nrun it again, and attach that result")
    job = run_files.read_job(folder)
    image = job.image if job else ""
    attached = evidence.attach_result(run_files.load(folder), image, result_publisher)
    return f"{image}: {'attached' if attached.new else 'has it already'}: {attached.title} {attached.digest}"


@task(
    "verdict worker-0.log",
    "verdict build/jobs/efa-nccl-tests-p5-48xlarge-2/runs/20261122T060000Z",
    "verdict worker-0.log worker-1.log --instance p5.48xlarge --nodes 2 --html result.html",
)
def verdict(
    logs: Annotated[Sequence[str], "LOG... | Logs, a folder of logs, the folder of a run, or - for standard input."],
    tcp: Annotated[str, "PATH | The logs of the same job over TCP: a folder, or one file."] = "",
    job: Annotated[str, "FILE | The job.json of the job; by default the one beside the run."] = "",
    instance: Annotated[str, "TYPE | Without job.json: the instance type that it ran on."] = "",
    nodes: Annotated[int, "N | Without job.json: how many nodes it should have run on."] = 0,
    html: Annotated[str, "FILE | Write what is shown as a page into this file."] = "",
    json: Json = False,
) -> None:
    """Say which network a job's NCCL used, from its logs.

    NCCL must have run with NCCL_DEBUG=INFO. Of several logs, a folder, or a log with an option about its job, it also
    shows the adapters of each node, and the bus bandwidth that nccl-tests measured; --json then has the form of
    result.json. Exit code 0: the network is good; 1: it is not; 3: the logs do not show it.
    """
    paths = [Path("/dev/stdin" if name == "-" else name) for name in logs]
    is_about_job = bool(tcp or job or instance or nodes or html)
    from rdma_images.core import atomic
    from rdma_images.jobs.results import from_logs, result_table, run_files, run_results

    if len(paths) == 1 and not paths[0].is_dir() and paths[0].name != run_files.RESULT.name and not is_about_job:
        judged = run_results.judge_log(paths[0])
        show(dumps(asdict(judged), indent=2) if json else f"{judged.network}: {judged.sentence_with_rank_count}")
        end_with(judged.exit_code)
        return
    result = from_logs.read_job_result(
        paths, Path(tcp) if tcp else None, Path(job) if job else None, instance, nodes or None
    )
    if html:
        atomic.write(Path(html), result_table.result_html(result))
        progress(f"wrote {html}")
    show(run_files.RESULT.text(result).rstrip() if json else result_table.result_table(result))
    end_with(result.exit_code)


@task("job.compare build/jobs/before/runs/20261121T060000Z build/jobs/after/runs/20261122T060000Z", name="job.compare")
def job_compare(
    first: Annotated[str, "A result.json, or the folder of a run or of logs."],
    second: Annotated[str, "The result to compare it with."],
    json: Json = False,
) -> None:
    """Compare two results, size by size.

    Shows the bus bandwidth of both, the ratio, and what else differs: image, instance type, nodes, versions.
    """
    from rdma_images.jobs.results import compare, from_logs, result_table

    comparison = compare.compare(from_logs.read_result(Path(first)), from_logs.read_result(Path(second)))
    show(dumps(asdict(comparison), indent=2) if json else result_table.comparison_table(comparison))
