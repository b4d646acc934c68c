"""Post-training of language models by TRL's own scripts, unmodified, from its wheel: one definition for all its trainers."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "trl",
        "1.16.0",
        file="trl-1.16.0-py3-none-any.whl",
        sha256="c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
    ),
    module="trl.scripts.{trainer}",
    requirements="../_environments/trl",
    packages=("accelerate", "datasets", "jinja2", "numpy", "packaging", "peft", "torch", "transformers"),
    env={
        # Nothing is asked of the hub in a run: prepare.py makes model, tokenizer and texts, or fetches the first two.
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
    },
    options={
        "trainer": "sft",  # sft, dpo, kto, reward, grpo or rloo
        "parallelism": "",  # `ddp` or `fsdp`: the run is invalid unless the program trains so
        # What prepare.py makes; the suite gives each recipe a folder of its own. Not every key need be given.
        "model": {"hidden_size": 128, "layers": 4, "heads": 4, "vocabulary": 2048, "positions": 2048},
        "pretrained": {},  # `repository` and `revision` of weights on the hub, instead of `model`
        "documents": 1000,
        "sentences": [4, 40],  # of a document: the fewest and the most
        "prompt_words": 12,  # the beginning of a document, where its end is asked for or judged
    },
)
