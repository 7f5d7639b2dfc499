"""Python: the base's own, and one that torch has a wheel for."""

from rdma_images.facts import Facts
from rdma_images.plan.candidate import Candidate
from rdma_images.plan.rules.plan_rule import Reason, rule


@rule("python-of-base", "python", "base")
def python_is_of_base(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require the base's own Python: no other one is installed."""
    base = facts.bases.bases[candidate["base"]]
    if candidate["python"] == base.python:
        return None
    return Reason(f"{candidate['base']} has python {base.python}, and no other is installed", facts.bases.cite(base))


@rule("wheel-python", "pytorch", "python")
def torch_has_wheel_for_python(candidate: Candidate, facts: Facts) -> Reason | None:
    """Require that torch has a wheel for the Python."""
    release = facts.torch.releases[candidate["pytorch"]]
    if candidate["python"] in release.python:
        return None
    text = (
        f"torch {candidate['pytorch']} has wheels for python {release.python[0]} to {release.python[-1]}, "
        f"none for {candidate['python']}"
    )
    return Reason(text, facts.torch.cite(release, "python"))
