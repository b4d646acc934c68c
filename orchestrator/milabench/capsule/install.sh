#!/bin/sh
# Installs milabench from the capsule that this script lies in, below a new folder. Needs tar and no network:
#     tar -xf CAPSULE install.sh && sh install.sh CAPSULE [FOLDER]
set -eu
umask 022
capsule=${1-}
folder=${2-milabench}
fail() { echo "error: $*" >&2; exit 4; }
[ -n "$capsule" ] || { echo "usage: sh install.sh CAPSULE [FOLDER]" >&2; exit 2; }
[ -f "$capsule" ] || fail "$capsule: no such file"
[ "$(uname -s)-$(uname -m)" = "@UNAME@" ] || fail "the capsule is for @UNAME@, and this machine is $(uname -s)-$(uname -m)"
[ ! -e "$folder" ] || fail "$folder exists; give another folder: sh install.sh $capsule FOLDER"
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || fail "$folder: cannot be created"
trap '[ -e "$folder/milabench.installed" ] || rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM HUP
tar -xf "$capsule" -C "$folder" SHA256SUMS @PARTS@ || fail "$capsule: cannot be unpacked: it is truncated or altered, or the disk is full"
cd "$folder"
# Only what this script uses; `milabench install --from` checks every file.
if command -v sha256sum >/dev/null 2>&1; then
    sha256sum -c SHA256SUMS >/dev/null 2>&1 || fail "the capsule was altered: a file is not what SHA256SUMS says"
else
    echo "note: no sha256sum here; the files of milabench itself are not checked" >&2
fi
python=$(ls -d "$folder"/python/cpython-@PYTHON@.*/bin/python@PYTHON@ 2>/dev/null | head -n 1)
[ -n "$python" ] || python=$(command -v python@PYTHON@) || fail "python@PYTHON@ is neither in the capsule nor on this machine; install it first"
export UV_CACHE_DIR="$folder/.cache" UV_OFFLINE=1 UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never
unset UV_FIND_LINKS UV_INDEX UV_INDEX_URL UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_CONSTRAINT VIRTUAL_ENV || true
bin/uv venv --quiet --no-project --python "$python" venv || fail "no environment can be made with $python"
bin/uv pip install --quiet --no-index --no-deps --python venv/bin/python milabench/*.whl || fail "milabench cannot be installed"
rm -rf .cache bin milabench SHA256SUMS
venv/bin/milabench --version || fail "milabench does not start"
: > milabench.installed
echo "next: $folder/venv/bin/milabench install --from $capsule"
