/* Handles: made, found, and remembered when they are destroyed. */
#include "stub.h"

#include <stdlib.h>

enum { BUCKETS = 1 << 12 };
static struct handle *table[BUCKETS];
static const char *const names[] = {"?", "stream", "event", "module", "function",
                                    "graph", "executable graph", "context"};

static struct handle **bucket(const void *handle) {
    return &table[((uintptr_t)handle >> 4) % BUCKETS];
}

void *handle_make(enum kind kind, size_t size) {
    struct handle *made = calloc(1, size);
    if (made == NULL)
        abort();
    made->kind = kind;
    made->live = true;
    made->next = *bucket(made);
    *bucket(made) = made;
    return made;
}

bool handle_ok(const void *handle, enum kind kind) {
    for (struct handle *h = *bucket(handle); h; h = h->next)
        if (h == handle) {
            if (h->kind == kind && h->live)
                return true;
            report("%p is %s %s, not a live %s", handle, h->live ? "a live" : "a destroyed",
                   names[h->kind], names[kind]);
            return false;
        }
    report("%p is no %s", handle, names[kind]);
    return false;
}

void handle_end(void *handle) { ((struct handle *)handle)->live = false; }

long handle_count(enum kind kind) {
    long sum = 0;
    for (size_t n = 0; n < BUCKETS; n++)
        for (struct handle *h = table[n]; h; h = h->next)
            sum += h->kind == kind && h->live;
    return sum;
}
