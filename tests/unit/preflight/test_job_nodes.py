"""Which node of a job this is, by the variables of each launcher."""

import threading

import pytest

from rdma_images.preflight import job_nodes
from rdma_images.preflight.job_nodes import JobNode

SAGEMAKER = {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2"}
SLURM = {"SLURM_PROCID": "9", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("variables", "node"),
    [
        ({}, JobNode(1, 0, "")),
        (
            {"TORCHELASTIC_RUN_ID": "x", "GROUP_WORLD_SIZE": "4", "GROUP_RANK": "3", "MASTER_ADDR": "a"}
            | {"LOCAL_RANK": "5", "WORLD_SIZE": "32", "RANK": "29", "SLURM_PROCID": "3", "LOCAL_WORLD_SIZE": "8"},
            JobNode(4, 3, "a", 5, is_rank=True, local_ranks=8),
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_RANK": "9", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}
            | {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "MASTER_ADDR": "a"},
            JobNode(2, 1, "a", 1, is_rank=True, local_ranks=8),
        ),
        (
            {"PMI_SIZE": "4", "PMI_RANK": "3", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"},
            JobNode(2, 1, "", 1, is_rank=True, local_ranks=2),
        ),
        (SLURM | {"MASTER_ADDR": "a"}, JobNode(2, 1, "a", 1, is_rank=True)),
        (
            SLURM | {"MASTER_ADDR": "a", "SLURM_STEP_TASKS_PER_NODE": "8(x2),4"},
            JobNode(2, 1, "a", 1, is_rank=True, local_ranks=8),
        ),
        (SLURM | {"SLURM_STEP_NODELIST": "localhost,b"}, JobNode(2, 1, "localhost", 1, is_rank=True)),
        (
            SLURM | {"SLURM_JOB_NODELIST": "none[07-09,12].invalid", "SLURM_LAUNCH_NODE_IPADDR": "192.0.2.7"},
            JobNode(2, 1, "192.0.2.7", 1, is_rank=True),
        ),
        (SLURM | {"SLURM_JOB_NODELIST": "none[07-09,12].invalid"}, JobNode(2, 1, "none07.invalid", 1, is_rank=True)),
        (SLURM | {"SLURM_JOB_NODELIST": "r[1-2]n[3,5].invalid,a"}, JobNode(2, 1, "r1n3.invalid", 1, is_rank=True)),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a"}, JobNode(2, 1, "a")),
        ({"PET_NNODES": "2:4", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "a"}, JobNode(1, 0, "")),
        ({"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "a"}, JobNode(2, 1, "a")),
        (
            {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "192.0.2.1\n192.0.2.2"},
            JobNode(2, 1, "192.0.2.1"),
        ),
        (SAGEMAKER, JobNode(2, 1, "algo-1")),
        (
            SAGEMAKER
            | {"TORCHELASTIC_RUN_ID": "x", "GROUP_WORLD_SIZE": "2", "GROUP_RANK": "1", "LOCAL_RANK": "3"}
            | {"MASTER_ADDR": "algo-1", "LOCAL_WORLD_SIZE": "8"},
            JobNode(2, 1, "algo-1", 3, is_rank=True, local_ranks=8),
        ),
        ({"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "a"}, JobNode(2, 1, "a")),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "a"}, JobNode(2, 1, "a")),
    ],
)
def test_the_variables_of_launchers(variables: dict[str, str], node: JobNode) -> None:
    assert job_nodes.find_node(variables) == node


@pytest.mark.parametrize("numbers", ["4 1 2 0", "12 7 8 7"])
def test_ranks_that_mpi_did_not_place_node_by_node(numbers: str) -> None:
    """As by --map-by node, and on nodes of different sizes."""
    with pytest.raises(ValueError, match=r"rank \d is \d of \d on its node: MPI must place ranks node by node"):
        job_nodes.find_node(dict(zip(job_nodes.MPIS[0], numbers.split(), strict=True)))


def test_one_attempt_has_one_socket() -> None:
    node, variables = JobNode(2, 1, "a"), {"SLURM_JOB_ID": "7", "SLURM_LOCALID": "1"}
    name = node.socket_name(variables)
    assert name == JobNode(2, 1, "b", 3).socket_name(variables | {"SLURM_LOCALID": "2"})
    assert name != node.socket_name(variables | {"SLURM_RESTART_COUNT": "1"})
    assert name != JobNode(2, 0, "a").socket_name(variables)


@pytest.mark.parametrize("answer", ["/logs", "-", ""])
def test_the_ranks_of_a_node_get_the_answer_of_the_one_that_checks(answer: str) -> None:
    """They may come before it, and before it has an answer."""
    name = f"\0rdma-preflight-test-{answer}-{id(answer)}"
    answers: list[str | None] = []
    ranks = [
        threading.Thread(target=lambda: answers.append(job_nodes.ask_checking_rank(name)), daemon=True)
        for _ in range(3)
    ]
    ranks[0].start()
    local_ranks = job_nodes.LocalRanks(name, 3)
    for rank in ranks[1:]:
        rank.start()
    while any(rank.is_alive() for rank in ranks) and not (answer == "" and answers):
        local_ranks.answer(answer)
        ranks[0].join(0.1)
    local_ranks.listener.close()
    assert set(answers) == {answer}


def test_a_rank_without_one_that_checks_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_nodes, "START_SECONDS", 0.3)
    assert job_nodes.ask_checking_rank("\0rdma-preflight-test-nobody") is None
