"""The check of adapters against those of a neighbour."""

import socket

import pytest

from rdma_images.jobs.node import rails

RAILS = [rails.Rail("mlx5_0", "lo", "127.0.0.1"), rails.Rail("mlx5_1", "lo", "127.0.0.1")]


@pytest.mark.parametrize(
    ("reached", "cross", "sentence"),
    [
        ({(0, 0), (0, 1), (1, 0), (1, 1)}, "", ""),
        ({(0, 0), (1, 1)}, "", "mlx5_0 reaches mlx5_0 of n2 and not mlx5_1: rails are apart, set NCCL_CROSS_NIC=0"),
        ({(0, 0), (1, 1)}, "0", ""),
        ({(1, 0), (1, 1)}, "", "mlx5_0 does not reach mlx5_0 of n2 over TCP, at 192.0.2.1"),
    ],
)
def test_rails(reached: set[tuple[int, int]], cross: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_CROSS_NIC", cross)
    monkeypatch.setattr(rails, "reached_rails", lambda *_: reached)
    theirs = [["mlx5_0", "192.0.2.1", 1], ["mlx5_1", "192.0.2.2", 1]]
    sentences = [text for _, _, text in rails.check_rails(RAILS, "n2", theirs)]
    assert sentences == ([sentence] if sentence else [])


def test_which_adapters_are_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as free:
        closed = free.getsockname()[1]
        free.close()
        theirs = [["mlx5_0", "127.0.0.1", server.getsockname()[1]], ["mlx5_1", "127.0.0.1", closed]]
        assert rails.reached_rails(RAILS, theirs) == {(0, 0), (1, 0)}
