from milabench.commands import AccelerateAllNodes, PackCommand
from milabench.pack import Package


class Accelerated(Package):
    base_requirements = "requirements.in"

    def build_run_plan(self):
        return AccelerateAllNodes(PackCommand(self, *self.argv, lazy=True)).use_stdout()


__pack__ = Accelerated
