from milabench.commands import AccelerateAllNodes, AccelerateLaunchCommand, DockerRunCommand, SSHCommand  # noqa: F401
from milabench.pack import Package
from milabench.utils import select_nodes  # noqa: F401


class Accelerate(Package):
    def build_run_plan(self):
        from milabench.commands import PackCommand

        return AccelerateAllNodes(PackCommand(self, *self.argv, lazy=True)).use_stdout()


__pack__ = Accelerate
