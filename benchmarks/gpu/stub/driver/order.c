/* What comes before what in a capture, and the order in which its graph does the work. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

enum { BITS = 64 };

static void reserve(struct before *set, size_t count) {
    if (count <= set->count)
        return;
    set->words = realloc(set->words, count * sizeof *set->words);
    if (set->words == NULL)
        abort();
    memset(set->words + set->count, 0, (count - set->count) * sizeof *set->words);
    set->count = count;
}

void before_add(struct before *set, size_t number) {
    reserve(set, number / BITS + 1);
    set->words[number / BITS] |= UINT64_C(1) << number % BITS;
}

void before_join(struct before *set, const struct before *other) {
    reserve(set, other->count);
    for (size_t n = 0; n < other->count; n++)
        set->words[n] |= other->words[n];
}

bool before_covers(const struct before *set, const struct before *other) {
    for (size_t n = 0; n < other->count; n++)
        if (other->words[n] & ~(n < set->count ? set->words[n] : 0))
            return false;
    return true;
}

void before_free(struct before *set) {
    free(set->words);
    *set = (struct before){0};
}

/* Of what may come next, always the last that was captured: an edge that is missing shows. */
struct op *in_late_order(struct op *first, size_t count) {
    struct op **ops = calloc(count + 1, sizeof *ops), *made = NULL, **last = &made;
    struct before done = {0};
    if (ops == NULL)
        abort();
    for (struct op *op = first; op; op = op->next)
        ops[op->number] = op;
    for (size_t left = count; left; left--) {
        size_t n = count;
        while (n-- > 0)
            if (ops[n] && before_covers(&done, &ops[n]->before))
                break;
        before_add(&done, n);
        before_free(&ops[n]->before);
        ops[n]->next = NULL;
        *last = ops[n];
        last = &ops[n]->next;
        ops[n] = NULL;
    }
    before_free(&done);
    free(ops);
    return made;
}
