"""A docker that keeps images as files of a folder."""

from __future__ import annotations

from pathlib import Path

SCRIPT = """\
#!/bin/sh
given() {{ touch {0}/begun; while ! test -e {0}/go; do sleep 0.02; done; }}
case "$1" in
image) exec test -e "{0}/$3" ;;
load) given; exec cp "$3" {0}/mine ;;
pull) given; exec touch "{0}/$3" ;;
esac
"""


def fake_docker(folder: Path, environ: dict[str, str]) -> Path:
    """Put such a docker on the PATH of these variables; return the folder of its images.

    Before it loads or fetches one it makes `begun` there, and waits until there is a file `go`.
    """
    images, programs = folder / "docker-images", folder / "docker-bin"
    images.mkdir()
    programs.mkdir()
    (programs / "docker").write_text(SCRIPT.format(images))
    (programs / "docker").chmod(0o755)
    environ["PATH"] = f"{programs}:{environ['PATH']}"
    return images
