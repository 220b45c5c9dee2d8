/* What the images of modules say of their kernels. */
#ifndef IMAGES_H
#define IMAGES_H

#include "stub.h"

enum { MAX_PARAMS = 256 };

struct facts {
    char name[512];
    unsigned count;           /* of parameters */
    unsigned sizes[MAX_PARAMS]; /* of each in bytes */
    unsigned shared;          /* static, in bytes */
    unsigned registers;
    unsigned threads;         /* at most, in a block */
    struct facts *next;
};

/* The kernels of an image, or a status, with what a compiler would say in `told`. */
CUresult images_ptx(const char *text, struct facts **kernels, char *told, size_t room);
CUresult images_cubin(const unsigned char *image, struct facts **kernels);
struct facts *facts_new(struct facts **kernels, const char *name);
#endif
