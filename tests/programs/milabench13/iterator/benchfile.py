from milabench.pack import Package


class Iterator(Package):
    base_requirements = "requirements.in"
    prepare_script = None

    def build_run_plan(self):
        import milabench.commands as cmd

        return cmd.PackCommand(self, *self.argv, lazy=True).use_stdout()


__pack__ = Iterator
