from milabench.commands import PackCommand, VoirCommand
from milabench.pack import Package
from milabench.utils import assemble_options


class Served(Package):
    base_requirements = "requirements.in"
    prepare_script = None

    @property
    def argv(self):
        options = [assemble_options(self.config.get(part, {}).get("argv", [])) for part in ("server", "client")]
        return [*options[0], "--", *options[1]]

    def build_run_plan(self):
        plan = PackCommand(self, *self.argv, lazy=True)
        return VoirCommand(plan, cwd=(self.dirs.code / self.main_script).parent).use_stdout()


__pack__ = Served
