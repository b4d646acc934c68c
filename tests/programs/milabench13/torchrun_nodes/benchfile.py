from milabench.commands import ListCommand, TorchrunAllGPU, TorchrunAllNodes  # noqa: F401
from milabench.pack import Package


class TorchrunNodes(Package):
    def build_run_plan(self):
        return TorchrunAllNodes(super().build_run_plan()).use_stdout()


__pack__ = TorchrunNodes
