/* A child of fork destroys an instance that it never ran: there is no worker to wait for. */
#define _POSIX_C_SOURCE 200809L
#include "net.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static float x[NET_INPUT_X_COUNT], y[NET_OUTPUT_RESULT_0_COUNT], s[NET_OUTPUT_RESULT_1_COUNT];

int main(void) {
  net_instance *instance = NULL;
  net_options options;
  net_inputs in;
  net_outputs out;
  int status = 1;
  pid_t child;
  memset(&options, 0, sizeof options);
  options.threads = 2;
  in.x = x;
  out.result_0 = y;
  out.result_1 = s;
  if (net_create(&instance, &options) || net_run(instance, &in, &out)) return 2;
  child = fork();
  if (child < 0) return 3;
  net_destroy(instance);
  if (child == 0) return 0;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 4;
}
