/* The functions that are offered: looked up by name, counted, logged, and made to fail on demand. */
#define _GNU_SOURCE
#include "stub.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct entry *entries;
static char pending[1024]; /* the details of the call under way */

struct text {
    char *start;
    size_t used, room;
};
static struct text calls, reports;

static void append(struct text *text, const char *format, va_list args) {
    char line[1024];
    int n = vsnprintf(line, sizeof line - 1, format, args);
    if (n < 0)
        return;
    size_t size = strlen(line);
    line[size++] = '\n';
    if (text->used + size + 1 > text->room) {
        text->room = 2 * text->room + sizeof line;
        text->start = realloc(text->start, text->room);
        if (text->start == NULL)
            abort();
    }
    memcpy(text->start + text->used, line, size);
    text->used += size;
    text->start[text->used] = 0;
}

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    append(&calls, format, args);
    va_end(args);
}

void report(const char *format, ...) {
    va_list args;
    va_start(args, format);
    append(&reports, format, args);
    va_end(args);
    va_start(args, format);
    append(&calls, format, args);
    va_end(args);
}

void detail(const char *format, ...) {
    size_t used = strlen(pending);
    if (used + 2 >= sizeof pending)
        return;
    pending[used] = ' ';
    va_list args;
    va_start(args, format);
    vsnprintf(pending + used + 1, sizeof pending - used - 1, format, args);
    va_end(args);
}

void entry_add(struct entry *entry) {
    entry->next = entries;
    entries = entry;
}

/* The newest form that an interface of that version knows. */
struct entry *entry_find(const char *name, int version) {
    struct entry *best = NULL;
    for (struct entry *e = entries; e; e = e->next)
        if (strcmp(e->name, name) == 0 && e->since <= version && (!best || best->since < e->since))
            best = e;
    return best;
}

static CUresult planted(struct entry *entry) {
    for (struct failure *f = entry->failures; f; f = f->next)
        if (f->first <= entry->calls && entry->calls <= f->last) {
            detail("(planted)");
            if (is_sticky(f->status))
                fault_now(f->status, entry->name);
            return f->status;
        }
    return 0;
}

CUresult entry_enter(struct entry *entry) {
    pthread_mutex_lock(&lock);
    control_once();
    pending[0] = 0;
    entry->calls++;
    CUresult status = planted(entry);
    if (status)
        return status;
    if (!initialized && !(entry->needs & ANYTIME))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (entry->needs & CONTEXT) {
        if (!context_current())
            return CUDA_ERROR_INVALID_CONTEXT;
        if (fault)
            return fault;
    }
    return entry->needs & UNSAFE ? capture_unsafe() : 0;
}

CUresult entry_leave(struct entry *entry, CUresult status) {
    if (!(entry->needs & QUIET))
        say("%s%s = %d", entry->name, pending, status);
    pending[0] = 0;
    pthread_mutex_unlock(&lock);
    return status;
}

static CUresult look_up(const char *name, void **function, int version, int *found) {
    struct entry *entry = entry_find(name, version);
    if (entry == NULL || entry->missing) {
        *function = NULL;
        if (found)
            *found = 1; /* no such symbol */
        return CUDA_ERROR_NOT_FOUND;
    }
    memcpy(function, &entry->function, sizeof *function);
    if (found)
        *found = 0;
    return 0;
}

API(cuGetProcAddress, cuGetProcAddress, ANYTIME | QUIET,
    (const char *name, void **function, int version, uint64_t flags),
    (name, function, version, flags)) {
    (void)flags;
    return name && function ? look_up(name, function, version, NULL) : CUDA_ERROR_INVALID_VALUE;
}

API_SINCE(12000, cuGetProcAddress, cuGetProcAddress_v2, ANYTIME | QUIET,
          (const char *name, void **function, int version, uint64_t flags, int *found),
          (name, function, version, flags, found)) {
    (void)flags;
    return name && function ? look_up(name, function, version, found) : CUDA_ERROR_INVALID_VALUE;
}

/* Control. */

/* The calls number `nth` to `nth + times - 1` from now on give `status`. */
EXPORT int stub_fail(const char *name, long nth, long times, CUresult status) {
    int found = -1;
    pthread_mutex_lock(&lock);
    for (struct entry *e = entries; e; e = e->next)
        if (strcmp(e->name, name) == 0) {
            struct failure *f = malloc(sizeof *f);
            if (f == NULL)
                abort();
            *f = (struct failure){e->failures, e->calls + nth, e->calls + nth + times - 1, status};
            e->failures = f;
            found = 0;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

EXPORT void stub_heal(void) {
    pthread_mutex_lock(&lock);
    for (struct entry *e = entries; e; e = e->next)
        while (e->failures) {
            struct failure *f = e->failures;
            e->failures = f->next;
            free(f);
        }
    pthread_mutex_unlock(&lock);
}

EXPORT int stub_hide(const char *name) {
    int found = -1;
    for (struct entry *e = entries; e; e = e->next)
        if (strcmp(e->name, name) == 0) {
            e->missing = true;
            found = 0;
        }
    return found;
}

EXPORT long stub_calls(const char *name) {
    long sum = 0;
    for (struct entry *e = entries; e; e = e->next)
        if (strcmp(e->name, name) == 0)
            sum += e->calls;
    return sum;
}

/* The names of all functions, one a line, into `text`; the bytes that this takes. */
EXPORT size_t stub_functions(char *text, size_t room) {
    size_t size = 0;
    for (struct entry *e = entries; e; e = e->next) {
        size_t n = strlen(e->name) + 1;
        if (size + n < room) {
            memcpy(text + size, e->name, n - 1);
            text[size + n - 1] = '\n';
            text[size + n] = 0;
        }
        size += n;
    }
    return size + 1;
}

EXPORT const char *stub_log(void) { return calls.start ? calls.start : ""; }

EXPORT const char *stub_reports(void) { return reports.start ? reports.start : ""; }

EXPORT void stub_clear(void) {
    pthread_mutex_lock(&lock);
    free(calls.start);
    free(reports.start);
    calls = reports = (struct text){NULL, 0, 0};
    pthread_mutex_unlock(&lock);
}

EXPORT void stub_check(void) {
    pthread_mutex_lock(&lock);
    memory_check();
    pthread_mutex_unlock(&lock);
}
