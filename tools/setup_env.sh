#!/usr/bin/env bash
# Makes an environment with a pinned serving stack, the soft NPU and kstep_shim: .venv for STACK=0.26,
# the default, or .venv-0.30 for STACK=0.30. Quick when repeated: each step leaves a stamp that names
# what it installed.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3.11}
STACK=${STACK:-0.26}
VENV=.venv
[ "$STACK" = 0.26 ] || VENV=.venv-$STACK
STAMPS=$VENV/.stamps
SITE=$VENV/softnpu-site

fail() {
    printf '\nset-up failed at step "%s".\n%s\n' "$1" "$2" >&2
    exit 1
}

# step NAME KEY HINT COMMAND...: run COMMAND once per KEY.
step() {
    local name=$1 key=$2 hint=$3 stamp log
    shift 3
    stamp=$STAMPS/$name
    log=$STAMPS/$name.log
    [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && return 0
    printf 'set-up: %s ...\n' "$name" >&2
    mkdir -p "$STAMPS"
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "$name" "$hint The whole log is $log."; }
    printf '%s' "$key" >"$stamp"
}

key() { cat "$@" | sha256sum | cut -c1-16; }
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }

R=requirements
S=$R/$STACK  # what differs between the stacks
[ -d "$S" ] || fail "stack" "STACK is 0.26 or 0.30, not '$STACK'."

command -v "$PYTHON" >/dev/null 2>&1 || PYTHON=python3
"$PYTHON" -c 'import sys; raise SystemExit(sys.version_info[:2] != (3, 11))' ||
    fail "python" "Python 3.11 is needed; name it with PYTHON=/path/to/python3.11."
if [ ! -x "$VENV/bin/python" ]; then
    "$PYTHON" -m venv "$VENV" || fail "venv" "The venv module is missing; on Debian: apt-get install python3.11-venv."
fi

REACH="Check that pip reaches a package index (PIP_INDEX_URL, PIP_FIND_LINKS)."
step torch "$(key $R/torch.txt)" "$REACH Any build of this release will do; a CPU build is the smallest." \
    pip -r $R/torch.txt
step build-tools "$(key $R/build.txt)" "$REACH" pip -r $R/build.txt
step run-time-needs "$(key $R/stack.txt "$S/stack.txt")" "$REACH" \
    pip --no-deps -r $R/stack.txt -r "$S/stack.txt"
step vllm "$(key "$S/vllm.txt")" "vllm is built from its source archive without kernels; it needs the build tools of $R/build.txt." \
    env VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE="$STACK.0" \
    "$VENV/bin/python" -m pip --disable-pip-version-check install --quiet \
    --no-build-isolation --no-deps --no-binary vllm -r "$S/vllm.txt"
# A vllm-ascend that is published as source only builds without its kernels, for any chip it knows.
step vllm-ascend-and-omni "$(key "$S/omni.txt")" "$REACH" \
    env COMPILE_CUSTOM_KERNELS=0 SOC_VERSION=ascend910b1 \
    "$VENV/bin/python" -m pip --disable-pip-version-check install --quiet \
    --no-build-isolation --no-deps -r "$S/omni.txt"
# vllm-omni imports torchvision, whose published build does not load beside a CPU torch. The soft
# NPU makes it loadable from a directory of its own; in site-packages it would break other imports.
step torchvision "$(key $R/torchvision.txt)" "$REACH" pip --no-deps --target "$SITE" -r $R/torchvision.txt
step developer-tools "$(key $R/dev.txt)" "$REACH" pip --no-deps -r $R/dev.txt
step this-project "$(key setup.cfg pyproject.toml softnpu/setup.cfg softnpu/pyproject.toml)" \
    "Both distributions install from this checkout." \
    pip --no-deps --no-build-isolation -e ./softnpu -e .
