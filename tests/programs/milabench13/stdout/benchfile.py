import milabench.commands as cmd
from milabench.pack import Package


class Stdout(Package):
    base_requirements = ["requirements-pre.in", "requirements.in"]
    prepare_script = None

    def build_run_plan(self):
        return cmd.PackCommand(self, *self.argv, lazy=True).use_stdout()


__pack__ = Stdout
