import os
import subprocess
import sys
import time

from milabench.pack import Package


class Misbehaving(Package):
    def build_run_plan(self):
        match self.config.get("how"):
            case "raises":
                return {}["missing"]
            case "exits":
                sys.exit(3)
            case "dies":
                os._exit(7)
            case "hangs":
                time.sleep(3600)
            case "hangs on":
                if "pid_file" in self.config:
                    (self.dirs.code / self.config["pid_file"]).write_text(str(os.getpid()))
                while True:
                    try:
                        time.sleep(3600)
                    except BaseException:
                        pass
            case "prints":
                print("not an answer")
                subprocess.run(["echo", "nor this"], check=True)
            case "fetches":
                self.dirs.code.clone_subtree("https://example.invalid/repository", "main")
            case "text":
                return "main.py"
        return super().build_run_plan()


__pack__ = Misbehaving
