#!/bin/bash
# Runs the tests that run native kernels with every buffer between guard pages (guarded_memory.py),
# once at the end of each buffer, once at its start. Further arguments go to pytest.
# A kernel that reads or writes outside by one byte crashes its worker, which names the test.
set -u
cd "$(dirname "$0")/.." || exit 2
export PYTHONPATH="$PWD/tests${PYTHONPATH:+:$PYTHONPATH}"
failed=0
for side in end start; do
  echo "buffers guarded at their $side"
  NESTWRIGHT_GUARD=$side "${PYTHON:-python}" -m pytest -q -n "${JOBS:-2}" -p guarded_memory "$@" \
    tests/codegen tests/schedule tests/te || failed=1
done
exit $failed
