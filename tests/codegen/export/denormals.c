/* Two builds of one model, of which one flushes denormals; the program's own arithmetic keeps them. */
#include "flush.h"
#include "keep.h"

#include <stdio.h>

static volatile float least = 1e-40f;

static int keeps(void) { return least * 1.0f != 0.0f; }

static float x[KEEP_INPUT_X_COUNT];
static float y[KEEP_OUTPUT_RESULT_0_COUNT], z[FLUSH_OUTPUT_RESULT_0_COUNT];

int main(void) {
  keep_instance *keep = NULL;
  flush_instance *flush = NULL;
  keep_inputs in0 = {x};
  flush_inputs in1 = {x};
  keep_outputs out0 = {y};
  flush_outputs out1 = {z};
  int i, round, zeros = 0, kept = 0, rounds = 0;
  for (i = 0; i < KEEP_INPUT_X_COUNT; i++) x[i] = least;
  if (keep_create(&keep, NULL) || flush_create(&flush, NULL)) return 1;
  for (round = 0; round < 3; round++) {
    if (flush_run(flush, &in1, &out1) || !keeps()) return 2;
    if (keep_run(keep, &in0, &out0) || !keeps()) return 3;
    for (i = 0; i < KEEP_INPUT_X_COUNT; i++) {
      union { float value; unsigned bits; } a, b;
      a.value = y[i];
      b.value = z[i];
      kept += a.bits != 0;
      zeros += b.bits == 0;
    }
    rounds++;
  }
  flush_destroy(flush);
  keep_destroy(keep);
  printf("%d %d %d\n", rounds, kept, zeros);
  return 0;
}
