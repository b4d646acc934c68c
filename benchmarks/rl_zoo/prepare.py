"""Check that the environment can be made and played; nothing is downloaded."""

from __future__ import annotations

import playable

if __name__ == "__main__":
    playable.check("--env")
