import milabench.commands as cmd
from milabench.pack import Package


class Activator(Package):
    def build_run_plan(self) -> "Command":
        return cmd.ActivatorCommand(cmd.PackCommand(self, *self.argv, lazy=True)).use_stdout()


__pack__ = Activator
