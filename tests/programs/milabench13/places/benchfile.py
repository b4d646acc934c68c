from milabench.commands import CmdCommand, DockerRunCommand, ListCommand, SSHCommand, WorkingDir
from milabench.pack import Package
from milabench.system import DockerConfig


class Places(Package):
    @property
    def working_directory(self):
        return self.dirs.code / "source"

    def build_run_plan(self):
        main, other = self.config["system"]["nodes"]
        inside = DockerRunCommand(CmdCommand(self, "serve"), DockerConfig(**self.config["system"]["docker"]), "--init")
        return ListCommand(
            SSHCommand(inside, other["ip"], user=other["user"], port=2222),
            SSHCommand(WorkingDir(CmdCommand(self, "ask", cwd="/elsewhere")), main["ip"]),
        )


__pack__ = Places
