from milabench.commands import ForeachNode, SimpleCommand, TorchrunAllGPU, TorchrunAllNodes, WorkingDir
from milabench.pack import BasePackage, Package


class Tune(TorchrunAllGPU):
    @property
    def executable(self):
        return f"{self.binfolder}/bin/python"

    def should_wrap(self):
        return True

    def __init__(self, pack: BasePackage, *torchrun_args, **kwargs):
        super().__init__(pack, "-m", "tune", "run", *torchrun_args, module=False, **kwargs)


class TuneAllNodes(TorchrunAllNodes):
    def __init__(self, executor, *args, **kwargs):
        ForeachNode.__init__(self, TorchrunAllNodes.make_base_executor(Tune, executor, *args, **kwargs))

    def make_new_node_executor(self, rank, node, base):
        return WorkingDir(super().make_new_node_executor(rank, node, base))


class Launcher(Package):
    def build_run_plan(self):
        return TuneAllNodes(SimpleCommand(self)).use_stdout()


__pack__ = Launcher
