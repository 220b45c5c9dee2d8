/* PTX, read as far as a launch depends on it: kernels, parameters, shared memory, threads. */
#include "images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct facts *facts_new(struct facts **kernels, const char *name) {
    struct facts *made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    snprintf(made->name, sizeof made->name, "%s", name);
    made->threads = MAX_THREADS;
    made->next = *kernels;
    *kernels = made;
    return made;
}

/* The text without comments, to be freed. */
static char *bare(const char *text) {
    char *made = malloc(strlen(text) + 1), *to = made;
    if (made == NULL)
        abort();
    while (*text) {
        if (text[0] == '/' && text[1] == '/') {
            text += strcspn(text, "\n");
        } else if (text[0] == '/' && text[1] == '*') {
            const char *end = strstr(text + 2, "*/");
            text = end ? end + 2 : text + strlen(text);
        } else {
            *to++ = *text++;
        }
    }
    *to = 0;
    return made;
}

/* Bytes of a declaration such as ".shared .align 16 .b8 name[32]", which ends at `end`. */
static unsigned declared(const char *at, const char *end) {
    unsigned size = 0, count = 1;
    for (; at < end; at++) {
        int bits = 0;
        if (*at == '.' && strchr("bufs", at[1]) && sscanf(at + 2, "%d", &bits) == 1)
            size = (unsigned)bits / 8;
        if (*at == '[' && sscanf(at + 1, "%d", &bits) == 1)
            count *= (unsigned)bits;
    }
    return size * count;
}

static void params(struct facts *f, const char *at, const char *end) {
    while ((at = strstr(at, ".param")) != NULL && at < end) {
        const char *stop = at + strcspn(at, ",)");
        if (f->count < MAX_PARAMS)
            f->sizes[f->count++] = declared(at + 6, stop);
        at = stop;
    }
}

static void directives(struct facts *f, const char *at, const char *end) {
    static const char *const names[] = {".maxntid", ".reqntid"};
    for (int n = 0; n < 2; n++) {
        const char *found = strstr(at, names[n]);
        unsigned x = 1, y = 1, z = 1;
        if (found && found < end && sscanf(found + 8, " %u , %u , %u", &x, &y, &z) > 0)
            f->threads = x * y * z;
    }
}

static void shared(struct facts *f, const char *at, const char *end) {
    while ((at = strstr(at, ".shared .align")) != NULL && at < end) {
        const char *stop = at + strcspn(at, ";");
        f->shared += declared(at + 7, stop);
        at = stop;
    }
}

static const char *closing(const char *at) {
    int depth = 0;
    for (; *at; at++) {
        depth += (*at == '{') - (*at == '}');
        if (*at == '}' && depth == 0)
            return at;
    }
    return NULL;
}

/* The kernels of a text without comments; false where it cannot be read. */
static bool kernels_of(const char *at, struct facts **kernels) {
    while ((at = strstr(at, ".entry")) != NULL) {
        char name[512];
        if (sscanf(at + 6, " %511[A-Za-z0-9_$%]", name) != 1)
            return false;
        const char *body = strchr(at, '{'), *end = body ? closing(body) : NULL;
        const char *list = strchr(at, '(');
        if (end == NULL)
            return false;
        struct facts *f = facts_new(kernels, name);
        const char *after = list && list < body ? list + strcspn(list, ")") : at;
        if (list && list < body)
            params(f, list, after);
        directives(f, after, body);
        shared(f, body, end);
        at = end;
    }
    return true;
}

CUresult images_ptx(const char *source, struct facts **kernels, char *told, size_t room) {
    char *text = bare(source);
    const char *version = strstr(text, ".version"), *target = strstr(text, ".target");
    int major = 0, minor = 0, sm = 0;
    CUresult status = CUDA_ERROR_INVALID_PTX;
    if (version == NULL || sscanf(version + 8, " %d.%d", &major, &minor) != 2) {
        snprintf(told, room, "ptxas fatal : missing .version directive at start of file");
    } else if (target == NULL || sscanf(target + 7, " sm_%d", &sm) != 1) {
        snprintf(told, room, "ptxas fatal : missing .target directive");
    } else if (10 * major + minor > ptx_version) {
        snprintf(told, room, "ptxas fatal : unsupported .version %d.%d; the newest is %d.%d", major,
                 minor, ptx_version / 10, ptx_version % 10);
        status = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    } else if (sm > capability) {
        snprintf(told, room, "ptxas fatal : code for sm_%d cannot run on an sm_%d", sm, capability);
    } else if (!kernels_of(text, kernels)) {
        snprintf(told, room, "ptxas fatal : an entry has no end");
    } else {
        status = 0;
    }
    free(text);
    return status;
}
