"""Call vLLM's throughput benchmark, which its package has as a module that starts nothing."""

from __future__ import annotations

from vllm.benchmarks import throughput
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    parser = FlexibleArgumentParser()
    throughput.add_cli_args(parser)
    throughput.main(parser.parse_args())
