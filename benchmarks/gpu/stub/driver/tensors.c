/* Tensor maps: what cuTensorMapEncodeTiled refuses, and a map that says what it was made of. */
#include "stub.h"

#include <string.h>

struct map {
    uint64_t address, extents[2], pitch;
    uint32_t box[2];
    int kind, swizzle;
};

static bool fits(const struct map *m, uint64_t place, const uint32_t *steps) {
    static const uint64_t sizes[] = {1, 2, 4, 4, 8, 8};
    static const uint64_t rows[] = {256, 32, 64, 128};
    if (m->kind < 0 || m->kind >= 6 || m->swizzle < 0 || m->swizzle >= 4)
        return false;
    uint64_t size = sizes[m->kind], row = m->box[0] * size;
    bool aligned = place % 64 == 0 && m->address % 16 == 0 && m->pitch % 16 == 0 && row % 16 == 0;
    bool box = m->box[0] && m->box[0] <= 256 && m->box[1] && m->box[1] <= 256;
    bool matrix = m->extents[0] && m->extents[1] && m->pitch >= m->extents[0] * size;
    return aligned && box && matrix && row <= rows[m->swizzle] * (m->swizzle ? 1 : 8)
           && steps[0] == 1 && steps[1] == 1;
}

API_SINCE(12000, cuTensorMapEncodeTiled, cuTensorMapEncodeTiled, CONTEXT,
    (void *place, int kind, uint32_t rank, void *address, const uint64_t *extents,
     const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
     int swizzle, int promotion, int fill),
    (place, kind, rank, address, extents, strides, box, steps, interleave, swizzle, promotion,
     fill)) {
    if (rank != 2 || interleave || fill || promotion < 0 || promotion > 3)
        return CUDA_ERROR_INVALID_VALUE;
    struct map made = {(uint64_t)address, {extents[0], extents[1]}, strides[0],
                       {box[0], box[1]}, kind, swizzle};
    detail("%lu x %lu, boxes of %u x %u", (unsigned long)extents[0], (unsigned long)extents[1],
           box[0], box[1]);
    if (!fits(&made, (uint64_t)place, steps))
        return CUDA_ERROR_INVALID_VALUE;
    size_t size = extents[0] * (kind == 0 ? 1 : kind == 1 ? 2 : kind < 4 ? 4 : 8);
    if (!memory_holds(made.address, (extents[1] - 1) * strides[0] + size, "a tensor map"))
        return CUDA_ERROR_INVALID_VALUE;
    memset(place, 0, 128);
    memcpy(place, &made, sizeof made);
    return 0;
}
