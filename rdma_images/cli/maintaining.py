"""The tasks that keep the project up to date: facts.* and matrix.*."""

from pathlib import Path

from invoke.context import Context

from rdma_images.cli.options import JSON
from rdma_images.cli.output import show
from rdma_images.cli.verb import verb
from rdma_images.core.progress import progress
from rdma_images.selection import project


@verb(
    "facts.update",
    "facts.update --all --write",
    help={
        "all": "Read every release again, not only those in the matrix; takes minutes.",
        "write": "Add a row to facts/ for each new release.",
    }
    | JSON,
)
def update(_: Context, all: bool = False, write: bool = False, json: bool = False) -> None:
    """Look for new releases and for facts that have changed.

    Reads the package index and the vendors' pages.
    """
    from rdma_images.maintain import facts_update
    from rdma_images.maintain.facts_update import update_table

    loaded_project = project.load()
    changes = facts_update.update(
        loaded_project.facts, loaded_project.matrix, loaded_project.mirrors, all, progress=progress
    )
    written = facts_update.write(changes) if write else ()
    show(update_table.as_json(changes) if json else update_table.update_table(changes, written))


@verb(
    "facts.variables --library nccl --tree ../nccl",
    help={
        "library": "The library that reads the variables: nccl, aws-ofi-nccl, libfabric or rdma-core.",
        "tree": "Its source tree.",
    },
)
def variables(_: Context, library: str, tree: str) -> None:
    """Compare facts/variables.yaml with a source tree.

    The variables that the tree reads and the file lacks, and those of other versions alone.
    """
    from rdma_images.facts import facts_file
    from rdma_images.facts.variables import Variables
    from rdma_images.maintain.variable_names import compare_variables

    difference = compare_variables(Path(tree), library, facts_file.read(Variables))
    show(f"not in facts/variables.yaml: {', '.join(difference.new) or 'none'}")
    show(f"not read by this tree: {', '.join(difference.not_read) or 'none'}")


@verb("matrix.bump --write", help={"write": "Change matrix.yaml; otherwise the edit is only shown."})
def bump(_: Context, write: bool = False) -> None:
    """Propose newer default rows for matrix.yaml.

    The newest that pass every rule, as an edit that keeps comments.
    """
    from rdma_images.maintain import bump

    proposal = bump.propose(project.load().facts, write=write)
    show(proposal.diff or "matrix.yaml is up to date: the facts have nothing newer that passes every rule")
    for remark in proposal.remarks:
        progress(remark)


@verb("matrix.schema")
def schema(_: Context) -> None:
    """Write the JSON schemas of the files that users write.

    matrix.yaml, mirrors.yaml and registries.yaml name theirs in the first line, for editors to complete and check them.
    """
    from rdma_images.core import paths
    from rdma_images.maintain import schemas

    show(*(paths.display_path(path) for path in schemas.write(paths.PROJECT)))
