"""Write a small body, a cart with a pole, which compiles in seconds; the package ships the others."""

from __future__ import annotations

import os
from pathlib import Path

import benchmate

CARTPOLE = """<mujoco>
  <option timestep="0.005"><flag contact="disable"/></option>
  <worldbody>
    <body>
      <joint type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size="0.2 0.1 0.1" mass="1"/>
      <body>
        <joint type="hinge" axis="0 1 0" damping="0.01"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.03" mass="0.1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def main() -> None:
    path = Path(os.environ["MILABENCH_DIR_DATA"], "mjcf", "cartpole.xml")
    benchmate.prepare_file(path, {"text": CARTPOLE}, lambda file: file.write_text(CARTPOLE))


if __name__ == "__main__":
    main()
