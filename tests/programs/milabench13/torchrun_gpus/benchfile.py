from milabench.commands import TorchRunCommand
from milabench.pack import Package


class TorchrunGPUs(Package):
    main_script = "source/train.py"

    @property
    def working_directory(self):
        return self.dirs.code / "source"

    @property
    def argv(self):
        return [*super().argv, "--output", self.dirs.data, "--keep", 1]

    def build_run_plan(self):
        import milabench.commands as cmd

        main = self.dirs.code / self.main_script
        inner = cmd.VoirCommand(cmd.PackCommand(self, *self.argv, lazy=True), cwd=main.parent, module=True)
        if False:
            inner = NeverImported(inner)
        return TorchRunCommand(inner, module=True)


__pack__ = TorchrunGPUs
