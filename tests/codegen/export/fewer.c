/* A system that gives no threads: an instance does without, and does not ask at every run. */
#include "net.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static float x[NET_INPUT_X_COUNT], y[NET_OUTPUT_RESULT_0_COUNT], s[NET_OUTPUT_RESULT_1_COUNT];
static int asked;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
  (void)thread;
  (void)attributes;
  (void)start;
  (void)argument;
  asked++;
  return EAGAIN;
}

int main(void) {
  net_instance *instance = NULL;
  net_options options;
  net_inputs in;
  net_outputs out;
  int i, again;
  for (i = 0; i < NET_INPUT_X_COUNT; i++) x[i] = 1;
  in.x = x;
  out.result_0 = y;
  out.result_1 = s;
  memset(&options, 0, sizeof options);
  options.threads = 3;
  if (net_create(&instance, &options)) return 2;
  for (again = 0; again < 3; again++) {
    memset(y, 255, sizeof y);
    if (net_run(instance, &in, &out)) return 3;
    for (i = 130; i < NET_OUTPUT_RESULT_0_COUNT; i++)
      if (!(y[i] == y[i - 130])) return 4;
  }
  net_destroy(instance);
  return asked == 1 ? 0 : 5;
}
