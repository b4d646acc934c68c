from milabench.commands import ClientServer, CmdCommand, ListCommand, NJobs, PerGPU
from milabench.pack import Package


class Several(Package):
    def build_run_plan(self):
        one = CmdCommand(self, "train", *self.argv)
        match self.config["how"]:
            case "list":
                return ListCommand(one, CmdCommand(self, "watch"))
            case "njobs":
                return NJobs(one, 2)
            case "per_gpu":
                return PerGPU(one)
            case "server":
                server = ClientServer.new_server_pack(self, has_logs=False)
                client = ClientServer.new_client_pack(self)
                return ClientServer(self, CmdCommand(client, "ask"), CmdCommand(server, "serve"))
        return None


__pack__ = Several
