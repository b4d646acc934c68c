from milabench.commands import PackCommand, TorchrunAllNodes, VoirCommand
from milabench.pack import Package


class Ranks(Package):
    base_requirements = "requirements.in"

    def build_run_plan(self):
        main = self.dirs.code / self.main_script
        plan = VoirCommand(PackCommand(self, *self.argv, lazy=True), cwd=main.parent)
        return TorchrunAllNodes(plan).use_stdout()


__pack__ = Ranks
