/* Kernels that take private memory: what callers and workers hold goes with the instance. */
#include "net.h"

static float x[NET_INPUT_X_COUNT], y[NET_OUTPUT_RESULT_0_COUNT];

int main(void) {
  net_instance *instance = NULL;
  net_inputs in;
  net_outputs out;
  int i, again;
  for (i = 0; i < NET_INPUT_X_COUNT; i++) x[i] = (float)(i * 7919 % 4096);
  in.x = x;
  out.result_0 = y;
  if (net_create(&instance, NULL)) return 2;
  for (again = 0; again < 3; again++)
    if (net_run(instance, &in, &out)) return 3;
  net_destroy(instance);
  for (i = 1; i < NET_OUTPUT_RESULT_0_COUNT; i++)
    if (i % 4096 != 0 && y[i] < y[i - 1]) return 4;
  return 0;
}
