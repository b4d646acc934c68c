import os
from pathlib import Path

from milabench.fs import XPath
from milabench.pack import Package

FLAVOUR = (Path(__file__).parent / "flavour.txt").read_text().strip()


class Base(Package):
    prepare_script = "prepare.sh"

    async def install(self):
        source: XPath = self.dirs.code / "source"
        if not source.exists():
            source.clone_subtree(self.config["url"], self.config["revision"])
        await super().install()
        print("installed", self.phase)

    async def prepare(self):
        (self.dirs.data / "own").write_text(FLAVOUR)
        await super().prepare()


class Overrides(Base):
    async def install(self):
        await super().install()

    def make_env(self):
        env = super().make_env()
        env["FLAVOUR"] = FLAVOUR
        env["TRAILING "] = "nobody asks for it"
        env["NUMBER"] = 3
        return env

    def build_run_plan(self):
        os.environ["TOKEN"] = os.environ["CALLERS_TOKEN"]
        return super().build_run_plan()


__pack__ = Overrides
