/* A child of fork runs and destroys an instance that its parent has used, and so does the parent. */
#define _POSIX_C_SOURCE 200809L
#include "net.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static float x[NET_INPUT_X_COUNT], y[NET_OUTPUT_RESULT_0_COUNT], s[NET_OUTPUT_RESULT_1_COUNT];
static float expected[NET_OUTPUT_RESULT_0_COUNT];

int main(void) {
  net_instance *instance = NULL;
  net_options options;
  net_inputs in;
  net_outputs out;
  int i, status = 1, again;
  pid_t child;
  for (i = 0; i < NET_INPUT_X_COUNT; i++) x[i] = (float)(i % 13) - 6;
  in.x = x;
  out.result_0 = y;
  out.result_1 = s;
  memset(&options, 0, sizeof options);
  options.threads = 3;
  if (net_create(&instance, &options) || net_run(instance, &in, &out)) return 2;
  memcpy(expected, y, sizeof y);
  memset(y, 255, sizeof y);
  child = fork();
  if (child < 0) return 3;
  for (again = 0; again < 3; again++)
    if (net_run(instance, &in, &out) || memcmp(expected, y, sizeof y)) return 4;
  net_destroy(instance);
  if (child == 0) return 0;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 5;
}
