"""The chain that must hold for NCCL to use a fabric, link by link, and the answer that it leads to."""

from typing import Literal

from pydantic import Field

from rdma_images.inspection.values import MeasuredValue

Evidence = Literal["executed", "read", "facts"]
Outcome = Literal["fabric", "tcp", "end", "unknown"]
EVIDENCE_CLAUSES: dict[Evidence, str] = {
    "executed": "what was run to find out",
    "read": "only read, not run",
    "facts": "known from the tool's own facts",
}
EVIDENCE_TITLES: dict[Evidence, str] = {"executed": "run", "read": "read, not run", "facts": "from facts"}


class Link(MeasuredValue):
    """One link of the chain: what it is, what was found, and how that is known.

    `fault` is why the chain breaks here, `unknown` why nothing can be said from here on, `note` how far it was run;
    `words` are the part's own. `leads_to` is what NCCL then does, where that is not what NCCL_NET alone decides.
    """

    name: str
    value: str = ""
    how: Evidence = "read"
    fault: str = ""
    unknown: str = ""
    note: str = ""
    words: list[str] = Field(default_factory=list)
    leads_to: Literal["", "tcp", "end"] = Field(default="", exclude=True)

    @property
    def text(self) -> str:
        """Return the link's fault, else its value, with the evidence in brackets."""
        note = f"; {self.note}" if self.note else ""
        return f"{self.fault or self.unknown or self.value} ({EVIDENCE_TITLES[self.how]}{note})"


class Chain(MeasuredValue):
    """The start of NCCL on a fabric, and what it leads to.

    `outcome` "tcp" is TCP sockets, "end" a job that ends, "unknown" neither. `fabric` is "none" where neither the
    request nor the image names one, and where "none" is requested: TCP sockets are then no fault.
    """

    fabric: Literal["efa", "erdma", "ib", "none"]
    instance: str
    outcome: Outcome
    answer: str
    links: list[Link]

    @property
    def state(self) -> Literal["passed", "failed", "warned"]:
        """Return "failed" where a link breaks, "warned" where something is not known."""
        if any(link.fault for link in self.links):
            return "failed"
        return "warned" if self.outcome == "unknown" else "passed"

    @property
    def evidence(self) -> str:
        """Return the links by their evidence: which were run, and which only read."""
        parts = []
        for how, clause in EVIDENCE_CLAUSES.items():
            names = [f"{link.name} ({link.note})" if link.note else link.name for link in self.links if link.how == how]
            parts += [f"{clause}: {', '.join(names)}"] if names else []
        return "; ".join(parts)
