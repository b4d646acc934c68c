from __future__ import annotations

import pytest

from milabench.plan.environ import secret_names, without_secrets


def test_secrets_are_known_by_their_names() -> None:
    secret = (
        "HF_TOKEN",
        "OPENAI_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_PAT",
        "DB_PASSWORD",
        "PGPASSWORD",
        "WANDB_API_KEY",
    )
    plain = ("TOKENIZERS_PARALLELISM", "KEYBOARD", "PATH", "OMP_NUM_THREADS", "PASSENGERS")
    assert secret_names(dict.fromkeys((*secret, *plain), "x")) == tuple(sorted(secret))


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("bench.env.HF_TOKEN=hf_x=1", "bench.env.HF_TOKEN=(secret)"),
        ("--override=bench.env.HF_TOKEN=hf_x", "--override=bench.env.HF_TOKEN=(secret)"),
        ("bench.env.MODE=fast", "bench.env.MODE=fast"),
        ("--base=/a=b", "--base=/a=b"),
    ],
)
def test_a_command_line_keeps_all_but_the_values_of_secrets(word: str, kept: str) -> None:
    assert without_secrets(["milabench", word]) == ("milabench", kept)
