from pathlib import Path

from milabench.pack import Package

URL, COMMIT = (Path(__file__).parent / "upstream.txt").read_text().split()


class Cloning(Package):
    base_requirements = "requirements.in"
    prepare_script = None
    main_script = "src/train.py"

    async def install(self):
        await super().install()

        source = self.dirs.code / "src"
        if not source.exists():
            source.clone_subtree(URL, COMMIT)


__pack__ = Cloning
