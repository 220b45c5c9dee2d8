/* Weights in memory of the caller: as they are in their file, misaligned, cut off, damaged, and in
   another order. */
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

int main(int argc, char **argv) {
  FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
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
  return 0;
}
