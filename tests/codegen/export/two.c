/* Two models in one program. */
#include "left.h"
#include "right.h"

#include <stdio.h>
#include <string.h>

int main(void) {
  static float x[LEFT_INPUT_X_COUNT];
  static float y0[LEFT_OUTPUT_RESULT_0_COUNT], s0[LEFT_OUTPUT_RESULT_1_COUNT];
  static float y1[RIGHT_OUTPUT_RESULT_0_COUNT], s1[RIGHT_OUTPUT_RESULT_1_COUNT];
  left_instance *left = NULL;
  right_instance *right = NULL;
  left_inputs in0;
  right_inputs in1;
  left_outputs out0;
  right_outputs out1;
  int i;
  for (i = 0; i < LEFT_INPUT_X_COUNT; i++) x[i] = (float)i / LEFT_INPUT_X_COUNT;
  in0.x = in1.x = x;
  out0.result_0 = y0;
  out0.result_1 = s0;
  out1.result_0 = y1;
  out1.result_1 = s1;
  if (left_create(&left, NULL) || right_create(&right, NULL)) return 1;
  if (left_run(left, &in0, &out0) || right_run(right, &in1, &out1)) return 2;
  left_destroy(left);
  right_destroy(right);
  return memcmp(y0, y1, sizeof y0) || memcmp(s0, s1, sizeof s0);
}
