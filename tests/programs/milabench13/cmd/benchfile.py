from milabench.commands import CmdCommand
from milabench.pack import Package


class Cmd(Package):
    def words(self, *more):
        return ["python", str(self.dirs.code / "main.py"), *self.argv, *more, "--cache", str(self.dirs.cache)]

    def build_prepare_plan(self):
        return CmdCommand(self, *self.words("--prepare"))

    def build_run_plan(self):
        return CmdCommand(self, *self.words(), use_stdout=True)


__pack__ = Cmd
