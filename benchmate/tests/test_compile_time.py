"""Seconds of compilation that JAX reports are added up once, however its modules are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_duration_that_jax_reports_is_counted_once(tmp_path: Path) -> None:
    package = tmp_path / "jax"
    package.mkdir()
    # As in JAX: `import jax` imports jax.monitoring, so both watched modules finish one after the other.
    (package / "__init__.py").write_text("import jax.monitoring\n")
    (package / "monitoring.py").write_text(
        "listeners = []\ndef register_event_duration_secs_listener(listener): listeners.append(listener)\n"
    )
    script = (
        "from benchmate import compile_time\n"
        "compile_time.listen_for_compilations()\n"
        "import jax\n"
        "for listener in jax.monitoring.listeners:\n"
        "    listener('/jax/core/compile/backend_compile_duration', 2.0)\n"
        "    listener('/jax/compilation_cache/hit', 8.0)\n"
        "print(compile_time.compile_seconds())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{'jax': 2.0}\n", "")
