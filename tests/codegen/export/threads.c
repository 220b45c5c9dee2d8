/* Instances in several threads at once; an instance in memory of the caller; refusals. */
#define _POSIX_C_SOURCE 200809L
#include "net.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);        \
      exit(1);                                                       \
    }                                                                \
  } while (0)

static float x[NET_INPUT_X_COUNT];
static float y[NET_OUTPUT_RESULT_0_COUNT], s[NET_OUTPUT_RESULT_1_COUNT];
static unsigned char block[NET_MEMORY_BYTES + NET_ALIGNMENT];

static void *work(void *argument) {
  int threads = *(int *)argument, round;
  float *y1 = malloc(sizeof y), *s1 = malloc(sizeof s);
  for (round = 0; round < 5; round++) {
    net_options options;
    net_instance *instance = NULL;
    net_inputs in;
    net_outputs out;
    int times;
    in.x = x;
    out.result_0 = y1;
    out.result_1 = s1;
    memset(&options, 0, sizeof options);
    options.threads = threads;
    CHECK(net_create(&instance, &options) == NET_OK);
    for (times = 0; times < 20; times++) {
      memset(y1, 255, sizeof y);
      memset(s1, 255, sizeof s);
      CHECK(net_run(instance, &in, &out) == NET_OK);
      CHECK(memcmp(y1, y, sizeof y) == 0 && memcmp(s1, s, sizeof s) == 0);
    }
    net_destroy(instance);
  }
  free(y1);
  free(s1);
  return NULL;
}

/* Runs one instance while others are inside it, until one of them is refused: each call succeeds or
   is refused. */
static net_instance *shared;
static volatile int met;

static void *contend(void *argument) {
  int times;
  float *y1 = malloc(sizeof y), *s1 = malloc(sizeof s);
  (void)argument;
  for (times = 0; times < 200 || (!met && times < 100000); times++) {
    net_inputs in;
    net_outputs out;
    int status;
    in.x = x;
    out.result_0 = y1;
    out.result_1 = s1;
    status = net_run(shared, &in, &out);
    CHECK(status == NET_OK || status == NET_BUSY);
    if (status == NET_OK) CHECK(memcmp(y1, y, sizeof y) == 0);
    if (status == NET_BUSY) met = 1;
  }
  free(y1);
  free(s1);
  return NULL;
}

/* True if every thread but the first has the signals of terminals and timers blocked. */
static int workers_are_deaf(void) {
  char path[320], line[256];
  int threads = 0;
  DIR *tasks = opendir("/proc/self/task");
  struct dirent *one;
  CHECK(tasks != NULL);
  while ((one = readdir(tasks)) != NULL) {
    FILE *status;
    if (one->d_name[0] == '.' || atol(one->d_name) == (long)getpid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", one->d_name);
    status = fopen(path, "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
      if (strncmp(line, "SigBlk:", 7) == 0) {
        unsigned long blocked = strtoul(line + 7, NULL, 16);
        CHECK(blocked >> (SIGINT - 1) & blocked >> (SIGALRM - 1) & 1);
        threads++;
      }
    fclose(status);
  }
  closedir(tasks);
  return threads > 0;
}

int main(void) {
  int counts[4] = {1, 2, 3, 4}, i;
  size_t aligned = NET_ALIGNMENT - (size_t)block % NET_ALIGNMENT;
  pthread_t threads[4];
  net_options options;
  net_inputs in;
  net_outputs out;

  for (i = 0; i < NET_INPUT_X_COUNT; i++) x[i] = (float)(i % 17) - 8;
  in.x = x;
  out.result_0 = y;
  out.result_1 = s;
  CHECK(net_init(&shared, block + aligned, NET_MEMORY_BYTES, NULL) == NET_OK);
  CHECK(net_run(shared, &in, &out) == NET_OK);
  CHECK(workers_are_deaf());
  for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, &counts[i]) == 0);
  for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, contend, NULL) == 0);
  for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(met);

  CHECK(net_run(NULL, &in, &out) == NET_BAD_ARGUMENT);
  CHECK(net_run(shared, NULL, &out) == NET_BAD_ARGUMENT);
  CHECK(net_run(shared, &in, NULL) == NET_BAD_ARGUMENT);
  in.x = NULL;
  CHECK(net_run(shared, &in, &out) == NET_BAD_ARGUMENT);
  in.x = x;
  out.result_1 = NULL;
  CHECK(net_run(shared, &in, &out) == NET_BAD_ARGUMENT);
  net_destroy(shared);
  net_destroy(NULL);

  CHECK(net_create(NULL, NULL) == NET_BAD_ARGUMENT);
  CHECK(net_init(NULL, block + aligned, NET_MEMORY_BYTES, NULL) == NET_BAD_ARGUMENT);
  CHECK(net_init(&shared, NULL, NET_MEMORY_BYTES, NULL) == NET_BAD_ARGUMENT);
  CHECK(net_init(&shared, block + aligned + 4, NET_MEMORY_BYTES, NULL) == NET_MISALIGNED);
  CHECK(net_init(&shared, block + aligned, NET_MEMORY_BYTES - 1, NULL) == NET_TOO_SMALL);
  CHECK(shared == NULL);
  memset(&options, 0, sizeof options);
  options.threads = -1;
  CHECK(net_create(&shared, &options) == NET_BAD_THREADS);
  options.threads = NET_MOST_THREADS + 1;
  CHECK(net_create(&shared, &options) == NET_BAD_THREADS);
  options.threads = NET_MOST_THREADS;
  CHECK(net_create(&shared, &options) == NET_OK);
  net_destroy(shared);

  CHECK(net_input(0) != NULL && strcmp(net_input(0)->name, "x") == 0 && net_input(1) == NULL);
  CHECK(net_input(0)->rank == 2 && net_input(0)->shape[1] == 70 && net_input(0)->strides[0] == 70);
  CHECK(strcmp(net_output(1)->dtype, "f32") == 0 && net_output(2) == NULL);
  CHECK(strcmp(net_message(NET_OK), "success") == 0);
  CHECK(strcmp(net_message(99), "unknown status") == 0);
  CHECK(strcmp(net_message(-1), "unknown status") == 0);
  printf("good\n");
  return 0;
}
