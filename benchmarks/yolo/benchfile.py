"""Detection and classification by Ultralytics' own command line, unmodified, from its wheel (AGPL-3.0)."""

from __future__ import annotations

from milabench import Benchmark, PyPI

benchmark = Benchmark(
    source=PyPI(
        "ultralytics-opencv-headless",
        "8.4.190",
        file="ultralytics_opencv_headless-8.4.190-py3-none-any.whl",
        sha256="2676ec64997b23e9fe352dab15b2d3c1298a036761fc0c895e418f7330ec9ea9",
    ),
    script="ultralytics/cfg/__init__.py",
    python_path=(".",),
    env={
        # Nothing is asked of the network: no weights, no fonts, no packages, no statistics of use.
        "YOLO_OFFLINE": "1",
        "YOLO_AUTOINSTALL": "false",
    },
)
