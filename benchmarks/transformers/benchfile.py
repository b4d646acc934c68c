"""Models of transformers with random weights, trained by its own Trainer and run by its own generate, with drivers of ours."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="{program}.py",
    requirements="../_environments/trl",
    packages=("accelerate", "datasets", "numpy", "sentence-transformers", "torch", "transformers"),
    env={
        # Nothing is asked of the hub: configurations and data are made by prepare.py, weights by seed in the program.
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
    },
    options={
        "program": "train",  # train, classify, generate, embed or encode
        "model": {},  # the configuration, as transformers names its fields; prepare.py writes it
        "samples": {},  # what prepare.py makes: the kind, and its sizes
        "units": "tokens/s",
        "counted": [],  # the inputs whose elements are the items of a step; none: its samples
    },
)
