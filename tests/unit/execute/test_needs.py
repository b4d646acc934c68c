from __future__ import annotations

import pytest

from milabench.execute.import_probe import modules_of
from milabench.execute.import_results import is_driver_missing
from milabench.execute.needs import Need, PackageFile, files_of, total, uncached

LOCK = """
lock-version = "1.0"
[[packages]]
name = "numpy"
version = "2.4.6"
sdist = { url = "https://host/numpy-2.4.6.tar.gz", size = 9 }
wheels = [
  { url = "https://host/numpy-2.4.6-cp312-cp312-manylinux_2_17_x86_64.whl", size = 312 },
  { url = "https://host/numpy-2.4.6-cp311-cp311-linux_x86_64.whl", size = 311 },
  { url = "https://host/numpy-2.4.6-py3-none-any.whl", size = 3 },
]
[[packages]]
name = "old"
version = "1"
sdist = { url = "https://host/old-1.tar.gz" }
wheels = [{ url = "https://host/old-1-cp27-cp27mu-linux_x86_64.whl", size = 27 }]
[[packages]]
name = "torch"
version = "2.13.0+cpu"
wheels = [{ url = "file:///wheels/torch-2.13.0%2Bcpu-py3-none-any.whl" }]
"""


def test_the_file_that_fits_this_python_best_is_counted() -> None:
    files = files_of(LOCK, "3.11")
    assert [(file.name, file.size) for file in files][1:] == [("old", None), ("torch", None)]
    assert files[0].size in (311, 3)  # 3 where this machine is no Linux on x86_64
    assert [file.is_remote for file in files] == [True, True, False]


def test_what_uv_does_not_find_in_its_cache() -> None:
    output = "DEBUG Identified uncached distribution: a==1\nDEBUG Registry requirement already cached: b==2\n"
    assert uncached(output + "DEBUG Identified uncached distribution: C_d==1+cpu\n") == {("a", "1"), ("c-d", "1+cpu")}


def file(name: str, size: int | None, *, unpacked: int | None = None, url: str = "") -> PackageFile:
    return PackageFile(
        name=name, version="1", url=url or f"https://host/{name}", size=size, unpacked=unpacked, python=unpacked
    )


def test_a_file_that_two_environments_share_is_fetched_once_and_compiled_twice() -> None:
    shared, own = file("shared", 100, unpacked=1000), file("own", 10, unpacked=20)
    first = Need(files=(shared,), fetched=frozenset({shared.url}))
    second = Need(files=(shared, own), fetched=frozenset({shared.url, own.url}))
    both = total([first, second], is_linked=True)
    assert (both.packages, both.download, both.unknown, both.cache) == (2, 110, 0, 1020)
    assert both.base == pytest.approx(1.6 * (1000 + 1020))
    assert total([first, second], is_linked=False).base == both.base + 2020


def test_what_is_cached_or_a_local_file_is_no_download() -> None:
    cached, local = file("cached", 100, unpacked=1000), file("local", 50, unpacked=70, url="file:///wheels/local")
    takes = total([Need(files=(cached, local), fetched=frozenset({local.url}))], is_linked=True)
    assert (takes.download, takes.cache) == (0, 70)
    assert str(takes) == "2 packages, nothing to download, about 2 kB of disk"


def test_an_unknown_size_is_never_nothing() -> None:
    known, unknown = file("known", 2_000_000, unpacked=3_000_000), file("unknown", None)
    alone = Need(files=(unknown,), fetched=frozenset({unknown.url}))
    both = Need(files=(known, unknown), fetched=frozenset({known.url, unknown.url}))
    assert str(total([alone], is_linked=True)) == ("1 package, 1 file of unknown size to download, disk unknown")
    assert str(total([both], is_linked=True)).startswith(
        "2 packages, 2 MB to download and 1 file of unknown size to download, at least"
    )


@pytest.mark.parametrize(
    ("name", "paths", "modules"),
    [
        ("numpy", ["numpy/__init__.py", "numpy/core/__init__.py", "../../../bin/f2py"], ["numpy"]),
        ("torch", ["torch/__init__.py", "torchgen/__init__.py", "functorch/__init__.py"], ["torch"]),
        ("PyYAML", ["yaml/__init__.py", "_yaml/__init__.py", "yaml/_yaml.cpython-311-x86_64-linux-gnu.so"], ["yaml"]),
        ("scikit-learn", ["sklearn/__init__.py", "tests/__init__.py"], ["sklearn"]),
        ("typing-extensions", ["typing_extensions.py"], ["typing_extensions"]),
        ("protobuf", ["google/protobuf/__init__.py", "google/_upb/_message.abi3.so"], ["google.protobuf"]),
        ("jax-cuda12-plugin", ["jax_plugins/xla_cuda12/__init__.py"], ["jax_plugins.xla_cuda12"]),
        ("simple", ["_simple.abi3.so", "simple.cpython-311-x86_64-linux-gnu.so"], ["simple"]),
        ("x", ["x/_core.so", "x/a.py", "x/__main__.py", "x/sub/b.py"], ["x._core", "x.a"]),
        ("plugin", ["space/plugin/core.cpython-311-x86_64-linux-gnu.so"], ["space.plugin.core"]),
        ("nvidia-cublas", ["nvidia/cu13/lib/libcublas.so.13", "nvidia/cu13/lib/x.so", "nvidia/libnvblas.so"], []),
        ("types-requests", ["requests-stubs/__init__.pyi"], []),
        ("a-program", ["../../../bin/a-program", "a_program-1.dist-info/METADATA"], []),
    ],
)
def test_what_is_imported_of_a_distribution(name: str, paths: list[str], modules: list[str]) -> None:
    assert modules_of(name, paths) == modules


CANNOT = "cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        (f"ImportError: libcuda.so.1: {CANNOT}", "cuda"),
        (f"ImportError: libnvidia-ml.so.1: {CANNOT}", "cuda"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "cuda"),
        ("RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "cuda"),
        ("RuntimeError: No HIP GPUs are available", "rocm"),
        (f"OSError: libze_loader.so.1: {CANNOT}", "xpu"),
        (f"ImportError: libSynapse.so: {CANNOT}", "hpu"),
    ],
)
def test_a_driver_is_missing_only_where_there_is_no_such_device(why: str, kind: str) -> None:
    assert is_driver_missing(why, ())
    assert is_driver_missing(why, {"cuda", "rocm", "xpu", "hpu"} - {kind})
    assert not is_driver_missing(why, (kind,))


@pytest.mark.parametrize(
    "why",
    [
        f"ImportError: libcudart.so.12: {CANNOT}",
        f"ImportError: libnvidia-nvshmem.so.3: {CANNOT}",
        f"ImportError: librocblas.so.4: {CANNOT}",
        f"ImportError: libamdhip64.so.6: {CANNOT}",
        f"ImportError: libMIOpen.so.1: {CANNOT}",
        f"ImportError: libopenblas.so: {CANNOT}",
        "RuntimeError: operator torchvision::nms does not exist",
    ],
)
def test_what_a_wheel_brings_is_no_driver(why: str) -> None:
    assert not is_driver_missing(why, ())
