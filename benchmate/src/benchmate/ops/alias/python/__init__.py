"""The name that the package has when its commands are started in its own folder: `python -m python.pytorch.run_benchmark`."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[1] / "param_bench/train/compute/python")]
