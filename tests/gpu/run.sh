#!/usr/bin/env bash
# Runs on a machine with an NVIDIA GPU, into the folder $1: the GPU tests (TESTS=no skips them), the
# correctness grid of the contenders in CHECK, then the demo (DEMO=no skips it).
# Works without installing the project: PYTHON (default python3) must see its dependencies.
#   LOSSBENCH_WHEEL_DIR=wheels tests/gpu/run.sh results
set -u
out=$(mkdir -p "$1" && cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
site=$(mktemp -d)
mkdir "$site/lossbench"
for room in kernels service worker web; do ln -s "$root/$room" "$site/lossbench/$room"; done
export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
export LOSSBENCH_DATA_DIR=${LOSSBENCH_DATA_DIR:-$(mktemp -d)} COLUMNS=200
[ -n "${LOSSBENCH_WHEEL_DIR:-}" ] && LOSSBENCH_WHEEL_DIR=$(cd "$LOSSBENCH_WHEEL_DIR" && pwd) && export LOSSBENCH_WHEEL_DIR
cd "$root" || exit 1
status=0
if [ "${TESTS:-yes}" = yes ]; then
  "$python" -P -m pytest tests/gpu -q -p no:cacheprovider 2>&1 | tee "$out/gpu-tests.log"
  [ "${PIPESTATUS[0]}" = 0 ] || status=1
fi
if [ -n "${CHECK:-}" ]; then
  timeout "${CHECK_S:-3600}" "$python" -P -m lossbench.service.cli.main kernels check $CHECK 2>&1 |
    tee "$out/check.log"
fi
if [ "${DEMO:-yes}" = yes ]; then
  "$python" -P -m lossbench.service.cli.main demo --exit ${DEMO_ARGS:-} 2>&1 | tee "$out/demo.log"
  [ "${PIPESTATUS[0]}" = 0 ] || status=1
fi
cp "$LOSSBENCH_DATA_DIR"/lossbench.db* "$out/" 2>/dev/null
exit $status
