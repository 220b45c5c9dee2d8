/* Memory between guard bytes: device memory is this process's, filled with patterns and watched. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 256,
    ALIGN = 256,
    FRESH = 0xFF, /* NaN in every float format */
    FREED = 0xF5,
    WALL = 0xB6,
};
static const size_t KEPT = 64 << 20; /* bytes of freed memory that are still watched */

struct block {
    unsigned char *start; /* of the guard before it; the memory is at start + GUARD */
    size_t bytes;
    bool host, freed;
    struct block *next;
};

size_t memory_total = (size_t)16 << 30;
static size_t used, kept;
static struct block *blocks; /* the newest first */

static uint64_t address_of(const struct block *b) { return (uint64_t)(b->start + GUARD); }

static const char *name_of(const struct block *b) { return b->host ? "host" : "device"; }

/* The first byte that is not `value`, or `bytes`. */
static size_t differs(const unsigned char *at, size_t bytes, int value) {
    size_t n = 0;
    while (n < bytes && at[n] == value)
        n++;
    return n;
}

static size_t room_of(size_t bytes) { return (GUARD + bytes + GUARD + ALIGN - 1) / ALIGN * ALIGN; }

void *memory_new(size_t bytes, bool host) {
    if (!host && bytes > memory_total - (used < memory_total ? used : memory_total))
        return NULL;
    struct block *b = malloc(sizeof *b);
    unsigned char *start = aligned_alloc(ALIGN, room_of(bytes));
    if (b == NULL || start == NULL) {
        free(b);
        free(start);
        return NULL;
    }
    memset(start, WALL, room_of(bytes));
    memset(start + GUARD, FRESH, bytes);
    *b = (struct block){start, bytes, host, false, blocks};
    blocks = b;
    used += host ? 0 : bytes;
    return start + GUARD;
}

static void check_walls(const struct block *b) {
    const unsigned char *end = b->start + GUARD + b->bytes;
    size_t before = differs(b->start, GUARD, WALL), behind = GUARD;
    while (behind && end[behind - 1] == WALL)
        behind--;
    if (before < GUARD)
        report("written as far as %zu bytes before %s memory %#llx of %zu bytes", GUARD - before, name_of(b),
               (unsigned long long)address_of(b), b->bytes);
    if (behind)
        report("written as far as %zu bytes behind the end of %s memory %#llx of %zu bytes", behind,
               name_of(b), (unsigned long long)address_of(b), b->bytes);
    memset(b->start, WALL, GUARD);
    memset(b->start + GUARD + b->bytes, WALL, GUARD);
}

static void check_freed(const struct block *b) {
    size_t n = differs(b->start + GUARD, b->bytes, FREED);
    if (n < b->bytes)
        report("written at byte %zu of freed %s memory %#llx of %zu bytes", n, name_of(b),
               (unsigned long long)address_of(b), b->bytes);
    memset(b->start + GUARD, FREED, b->bytes);
}

/* Give the oldest freed blocks back while too many are kept. */
static void trim(void) {
    while (kept > KEPT) {
        struct block **oldest = NULL;
        for (struct block **at = &blocks; *at; at = &(*at)->next)
            if ((*at)->freed)
                oldest = at;
        if (oldest == NULL)
            return;
        struct block *b = *oldest;
        check_walls(b);
        check_freed(b);
        kept -= b->bytes;
        *oldest = b->next;
        free(b->start);
        free(b);
    }
}

static struct block *holding(uint64_t address) {
    for (struct block *b = blocks; b; b = b->next)
        if (address >= address_of(b) && address < address_of(b) + b->bytes)
            return b;
    return NULL;
}

CUresult memory_end(uint64_t address, bool host, const char *how) {
    struct block *b = holding(address);
    unsigned long long shown = address;
    if (b == NULL || b->host != host || address_of(b) != address) {
        report("%s of %#llx, where no %s memory begins", how, shown, host ? "host" : "device");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (b->freed) {
        report("%s of %#llx, which was freed before", how, shown);
        return CUDA_ERROR_INVALID_VALUE;
    }
    check_walls(b);
    memset(b->start + GUARD, FREED, b->bytes);
    b->freed = true;
    kept += b->bytes;
    used -= host ? 0 : b->bytes;
    trim();
    return 0;
}

bool memory_holds(uint64_t address, size_t bytes, const char *what) {
    const struct block *b = holding(address);
    unsigned long long shown = address;
    if (b == NULL)
        report("%s of %zu bytes at %#llx, where no memory of the device is", what, bytes, shown);
    else if (b->freed)
        report("%s of %zu bytes at %#llx, which was freed", what, bytes, shown);
    else if (bytes > address_of(b) + b->bytes - address)
        report("%s of %zu bytes at %#llx, byte %llu of memory of %zu bytes", what, bytes, shown,
               shown - (unsigned long long)address_of(b), b->bytes);
    else
        return true;
    return false;
}

bool memory_pinned(const void *address, size_t bytes) {
    const struct block *b = holding((uint64_t)address);
    return b && b->host && !b->freed && bytes <= address_of(b) + b->bytes - (uint64_t)address;
}

bool memory_on_device(const void *address) {
    const struct block *b = holding((uint64_t)address);
    return b && !b->host;
}

size_t memory_used(void) { return used; }

void memory_check(void) {
    for (const struct block *b = blocks; b; b = b->next) {
        check_walls(b);
        if (b->freed)
            check_freed(b);
    }
}

static CUresult give(uint64_t *address, size_t bytes, bool host) {
    detail("%zu", bytes);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *address = (uint64_t)memory_new(bytes, host);
    return *address ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuMemAlloc, cuMemAlloc_v2, CONTEXT | UNSAFE, (CUdeviceptr *address, size_t bytes),
    (address, bytes)) {
    return give(address, bytes, false);
}

API(cuMemAllocAsync, cuMemAllocAsync, CONTEXT, (CUdeviceptr *address, size_t bytes, void *stream),
    (address, bytes, stream)) {
    const struct stream *s = stream_of(stream);
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return s->capture ? CUDA_ERROR_NOT_SUPPORTED : give(address, bytes, false);
}

/* Freeing waits for the whole device. */
API(cuMemFree, cuMemFree_v2, CONTEXT | UNSAFE, (CUdeviceptr address), (address)) {
    detail("%#llx", (unsigned long long)address);
    if (address == 0)
        return 0;
    perform_all();
    return fault ? fault : memory_end(address, false, "cuMemFree");
}

API(cuMemFreeAsync, cuMemFreeAsync, CONTEXT, (CUdeviceptr address, void *stream),
    (address, stream)) {
    struct stream *s = stream_of(stream);
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!memory_holds(address, 1, "cuMemFreeAsync"))
        return CUDA_ERROR_INVALID_VALUE;
    struct op *op = op_new(RELEASE);
    op->target = address;
    return stream_put(s, op);
}

API(cuMemGetInfo, cuMemGetInfo_v2, CONTEXT, (size_t *unused, size_t *total), (unused, total)) {
    *total = memory_total;
    *unused = used < memory_total ? memory_total - used : 0;
    return 0;
}

API(cuMemHostAlloc, cuMemHostAlloc, CONTEXT | UNSAFE, (void **address, size_t bytes, unsigned flags),
    (address, bytes, flags)) {
    if (flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t made = 0;
    CUresult status = give(&made, bytes, true);
    *address = (void *)made;
    return status;
}

API(cuMemAllocHost, cuMemAllocHost_v2, CONTEXT | UNSAFE, (void **address, size_t bytes),
    (address, bytes)) {
    uint64_t made = 0;
    CUresult status = give(&made, bytes, true);
    *address = (void *)made;
    return status;
}

API(cuMemFreeHost, cuMemFreeHost, CONTEXT | UNSAFE, (void *address), (address)) {
    perform_all();
    return fault ? fault : memory_end((uint64_t)address, true, "cuMemFreeHost");
}

API(cuPointerGetAttribute, cuPointerGetAttribute, 0, (void *value, int attribute, CUdeviceptr at),
    (value, attribute, at)) {
    const struct block *b = holding(at);
    if (b == NULL || b->freed)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case 2: /* the kind of memory: 1 the host's, 2 the device's */
        *(int *)value = b->host ? 1 : 2;
        return 0;
    case 9: /* the device's number */
        *(int *)value = 0;
        return 0;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
