"""Signatures by OpenSSH's `ssh-keygen -Y`: people have these keys already, and an allowed-signers file is a text file."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from milabench.errors import EnvironmentFailed, UsageError

UNKNOWN_KEY = "it was made with a key that is not among the allowed signers"
NAMESPACE = "milabench-bundle"  # of the signature: a signature made for something else is none
_PROGRAM = "ssh-keygen"
_TIMEOUT_S = 120


def sign(content: bytes, key: Path) -> bytes:
    """Return the signature of `content` with a private key, or with a public key whose private half an agent holds.

    Raises UsageError when the key cannot sign, EnvironmentFailed without ssh-keygen.
    """
    program = _program()
    if not key.is_file():
        raise UsageError(f"--sign: {key}: no such key. Create it with `ssh-keygen -t ed25519 -f FILE`")
    process = _run([program, "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key)], content)
    if process.returncode or not process.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise UsageError(f"--sign: {key}: {_last_output_line(process)}")
    return process.stdout


def signer_of(content: bytes, signature: bytes, allowed: Path | None) -> tuple[bool, str]:
    """Return whether the signature is good, and its signer or the problem.

    Without a file of allowed signers it says only that the content is as some key signed it. Raises UsageError when that
    file is not there, EnvironmentFailed without ssh-keygen.
    """
    program = _program()
    if allowed is not None and not allowed.is_file():
        raise UsageError(f"--allowed-signers: {allowed}: no such file")
    with tempfile.TemporaryDirectory(prefix="milabench-verify-") as folder:
        path = Path(folder, "signature")
        path.write_bytes(signature)
        if allowed is None:
            process = _run([program, "-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(path)], content)
            output = _last_output_line(process)
            signer = output.partition(" signature with ")[2] or output
            return (False, output) if process.returncode else (True, signer)
        # ssh-keygen verifies only for a signer that it is told, so the file is asked first who that may be.
        principals = _run([program, "-Y", "find-principals", "-f", str(allowed), "-s", str(path)], b"")
        names = principals.stdout.decode("utf-8", "replace").split("\n")
        if principals.returncode or not names[0]:
            return False, UNKNOWN_KEY
        process = _run(
            [program, "-Y", "verify", "-n", NAMESPACE, "-f", str(allowed), "-I", names[0], "-s", str(path)], content
        )
        return process.returncode == 0, names[0] if process.returncode == 0 else _last_output_line(process)


def _program() -> str:
    path = shutil.which(_PROGRAM)
    if path is None:
        raise EnvironmentFailed(f"{_PROGRAM} is not installed. Signatures need OpenSSH 8.2 or newer")
    return path


def _run(argv: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, input=content, capture_output=True, check=False, timeout=_TIMEOUT_S)


def _last_output_line(process: subprocess.CompletedProcess[bytes]) -> str:
    text = (process.stdout + b"\n" + process.stderr).decode("utf-8", "replace").strip()
    last = [line.strip() for line in text.splitlines() if line.strip()]
    return last[-1] if last else f"{_PROGRAM} ended with {process.returncode}"
