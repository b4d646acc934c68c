"""Proximal policy optimisation on CartPole by CleanRL's single-file script, unmodified, from its wheel."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "cleanrl",
        "1.2.0",
        file="cleanrl-1.2.0-py3-none-any.whl",
        sha256="002f6dac6cd0efb5889cd9096a252da1b4bc98a8f52ccb1f47a7215c18b30369",
    ),
    module="cleanrl.ppo",
)
