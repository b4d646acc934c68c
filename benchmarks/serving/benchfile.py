"""vLLM's OpenAI server, unmodified, or the server that the suite names; what asks it is benchmate's driver of several clients."""

from __future__ import annotations

from milabench import Benchmark

benchmark = Benchmark(
    module="vllm.entrypoints.openai.api_server",
    voirfile=None,
    requirements="../_environments/serving",
    env={
        # Nothing is asked of the hub: prepare.py makes configuration and tokenizer, the server makes the weights.
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        # On a processor; accelerators do not look at them.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    },
    options={
        "model": {},  # its config.json, which prepare.py writes into the folder `--model`; none: that folder is yours
        "conversations": {},  # those of `serve.trace`: how many sessions, turns, words and output_tokens
    },
)
