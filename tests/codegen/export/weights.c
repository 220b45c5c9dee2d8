/* Weights in memory of the caller: as they are in their file, misaligned, cut off, damaged, and in
   another order; and files of weights, of which no descriptor and no mapping is left. */
#define _POSIX_C_SOURCE 200809L
#include "net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two words of 64 bits that are not the same change places. */
static void swap(unsigned char *words) {
  unsigned char first[8];
  if (memcmp(words, words + 8, 8) == 0) exit(12);
  memcpy(first, words, 8);
  memcpy(words, words + 8, 8);
  memcpy(words + 8, first, 8);
}

/* The descriptor that the next file gets. */
static int next_file(void) {
  FILE *file = fopen("/proc/self/maps", "r");
  int number = file == NULL ? -1 : fileno(file);
  if (file != NULL) fclose(file);
  return number;
}

/* How often files of weights are mapped. */
static int mappings(void) {
  char line[4352];
  int count = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    count += strstr(line, ".weights") != NULL;
  if (file != NULL) fclose(file);
  return count;
}

/* Makes an instance of a file; 0 if that is answered so, and all is given back. */
static int try_file(const char *path, int expected, int mapped) {
  net_instance *instance = NULL;
  net_options options;
  int first = next_file();
  memset(&options, 0, sizeof options);
  options.weights_path = path;
  if (net_create(&instance, &options) != expected) return 1;
  if (next_file() != first || mappings() != mapped) return 2;
  net_destroy(instance);
  return mappings() == 0 ? 0 : 3;
}

int main(int argc, char **argv) {
  FILE *file = argc > 2 ? fopen(argv[1], "rb") : NULL;
  net_instance *instance = NULL;
  net_options options;
  unsigned char *data = NULL;
  size_t size;
  if (file == NULL || posix_memalign((void **)&data, 64, 1 << 20)) return 1;
  size = fread(data, 1, 1 << 20, file);
  fclose(file);
  memset(&options, 0, sizeof options);
  options.weights = data;
  options.weights_bytes = size;
  if (net_create(&instance, &options) != NET_OK) return 2;
  net_destroy(instance);
  options.weights_bytes = size - 64;
  if (net_create(&instance, &options) != NET_DAMAGED_WEIGHTS) return 3;
  options.weights_bytes = 8;
  if (net_create(&instance, &options) != NET_NOT_WEIGHTS) return 4;
  options.weights_bytes = size;
  data[size - 1] ^= 1;
  if (net_create(&instance, &options) != NET_DAMAGED_WEIGHTS) return 5;
  data[size - 1] ^= 1;
  swap(data + 4096);
  if (net_create(&instance, &options) != NET_DAMAGED_WEIGHTS) return 11;
  swap(data + 4096);
  data[8] ^= 1;
  if (net_create(&instance, &options) != NET_WEIGHTS_VERSION) return 6;
  data[8] ^= 1;
  data[16] ^= 1;
  if (net_create(&instance, &options) != NET_OTHER_WEIGHTS) return 7;
  options.weights = data + 8;
  if (net_create(&instance, &options) != NET_MISALIGNED) return 8;
  options.weights = NULL;
  if (net_create(&instance, &options) != NET_NO_WEIGHTS) return 9;
  if (net_create(&instance, NULL) != NET_NO_WEIGHTS || instance != NULL) return 10;
  free(data);
  if (try_file(argv[1], NET_OK, 1)) return 13;
  if (try_file(argv[2], NET_DAMAGED_WEIGHTS, 0)) return 14;
  if (try_file("/dev/null", NET_NOT_WEIGHTS, 0)) return 15;
  return 0;
}
