/* Linux refuses tile registers to a process whose stack for signals is too small for them. An
   instance is refused in turn; without the stack there is one, also in a child of fork. */
#define _DEFAULT_SOURCE
#include "net.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char small[8192];
static uint16_t x[NET_INPUT_X_COUNT];
static float y[NET_OUTPUT_RESULT_0_COUNT], expected[NET_OUTPUT_RESULT_0_COUNT];

int main(void) {
  net_instance *instance = NULL;
  net_inputs in;
  net_outputs out;
  stack_t stack;
  int i, status = 1;
  pid_t child;
  memset(&stack, 0, sizeof stack);
  stack.ss_sp = small;
  stack.ss_size = sizeof small;
  if (sigaltstack(&stack, NULL)) return 2;
  status = net_create(&instance, NULL);
  if (status != NET_WRONG_PROCESSOR || instance) return 3;
  puts(net_message(status));
  stack.ss_flags = SS_DISABLE;
  if (sigaltstack(&stack, NULL)) return 4;
  for (i = 0; i < NET_INPUT_X_COUNT; i++) x[i] = 0x3f80; /* 1 */
  in.x = x;
  out.result_0 = y;
  if (net_create(&instance, NULL) || net_run(instance, &in, &out)) return 5;
  memcpy(expected, y, sizeof y);
  memset(y, 255, sizeof y);
  child = fork();
  if (child < 0) return 6;
  if (net_run(instance, &in, &out) || memcmp(expected, y, sizeof y)) return 7;
  net_destroy(instance);
  if (child == 0) return 0;
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 8;
}
