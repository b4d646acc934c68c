"""vLLM's own throughput benchmark: all prompts are there from the start, and no server is between."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    script="main.py",
    prepare="prepare.py",
    requirements="../_environments/serving",
    env={
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        # The engine's loop is in this process, where its steps are observed; the workers of several devices are not.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # On a processor; accelerators do not look at them.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
    options={
        "model": {},  # its config.json, as in benchmarks/serving
        "counted": "generated",  # the items of a step: generated tokens, or those of the prompts
    },
)
