/* Streams that work late: what they are given waits until something waits for it. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

struct stream legacy = {.head = {STREAM, true, NULL}, .blocking = true, .last = &legacy.first};
struct stream per_thread = {
    .head = {STREAM, true, NULL}, .blocking = true, .last = &per_thread.first, .next = &legacy};
struct stream *streams = &per_thread; /* all that ever were: a destroyed one still works */
uint64_t last_seq;
double clock_us;
unsigned patience = 2;

struct op *op_new(enum what what) {
    struct op *op = calloc(1, sizeof *op);
    if (op == NULL)
        abort();
    op->what = what;
    return op;
}

static void *twin(const void *data, size_t bytes) {
    void *made = bytes ? malloc(bytes) : NULL;
    if (bytes && made == NULL)
        abort();
    if (bytes)
        memcpy(made, data, bytes);
    return made;
}

struct op *op_copy(const struct op *op) {
    struct op *made = twin(op, sizeof *op);
    made->next = NULL;
    made->before = (struct before){0};
    made->staged = op->staged ? twin(op->staged, op->bytes) : NULL;
    made->values = twin(op->values, op->values_bytes);
    made->offsets = twin(op->offsets, op->launch.count * sizeof *op->offsets);
    return made;
}

void op_free(struct op *op) {
    free(op->staged);
    free(op->values);
    free(op->offsets);
    before_free(&op->before);
    free(op);
}

struct stream *stream_of(void *handle) {
    if (handle == NULL || handle == (void *)1)
        return &legacy;
    if (handle == (void *)2)
        return &per_thread;
    return handle_ok(handle, STREAM) ? handle : NULL;
}

void stream_queue(struct stream *stream, struct op *op) {
    op->seq = ++last_seq;
    op->next = NULL;
    *stream->last = op;
    stream->last = &op->next;
    stream->asked = 0;
}

CUresult stream_put(struct stream *stream, struct op *op) {
    CUresult status = capture_legacy(stream);
    if (status) {
        op_free(op);
        return status;
    }
    if (stream->capture)
        return capture_put(stream, op);
    stream_queue(stream, op);
    return 0;
}

bool stream_ready(unsigned *asked) {
    if (++*asked < patience)
        return false;
    *asked = 0;
    return true;
}

static bool touchable(const struct op *op) {
    return (!op->target_on_device || memory_holds(op->target, op->bytes, "late, a copy to")) &&
           (!op->source_on_device || memory_holds(op->source, op->bytes, "late, a copy from"));
}

static void fill(const struct op *op) {
    if (!memory_holds(op->target, op->bytes, "late, a fill")) {
        fault_now(CUDA_ERROR_ILLEGAL_ADDRESS, "a fill");
        return;
    }
    for (size_t n = 0; n < op->bytes; n += op->width)
        memcpy((char *)op->target + n, &op->value, op->width); /* the low bytes come first */
}

static void execute(struct op *op) {
    CUresult status;
    switch (op->what) {
    case COPY:
        clock_us += 1 + (double)op->bytes * 1e-6;
        if (!touchable(op))
            fault_now(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy");
        else
            memmove((void *)op->target, op->staged ? op->staged : (void *)op->source, op->bytes);
        break;
    case FILL:
        clock_us += 1;
        fill(op);
        break;
    case LAUNCH:
        clock_us += 2;
        status = launch_run(op);
        if (status)
            fault_now(status, op->launch.name);
        break;
    case RECORD:
        op->event->at = clock_us;
        op->event->done = op->ticket;
        break;
    case RELEASE:
        memory_end(op->target, false, "cuMemFreeAsync");
        break;
    case WAIT:
        break;
    }
}

/* What must be done before the first work of a stream. */
static void before(struct stream *stream, const struct op *op) {
    if (op->what == WAIT && op->stream)
        perform(op->stream, op->wait_seq);
    if (stream == &legacy) {
        for (struct stream *s = streams; s; s = s->next)
            if (s->blocking && s != &legacy)
                perform(s, op->seq);
    } else if (stream->blocking) {
        perform(&legacy, op->seq);
    }
}

/* Do what a stream was given up to a number, and what that waits for: work with lower numbers. */
void perform(struct stream *stream, uint64_t seq) {
    while (stream->first && stream->first->seq <= seq && !fault) {
        struct op *op = stream->first;
        before(stream, op);
        if (fault)
            return;
        if (stream->first != op)
            continue;
        stream->first = op->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        execute(op);
        op_free(op);
    }
}

void perform_all(void) {
    for (struct stream *s = streams; s; s = s->next)
        perform(s, last_seq);
}

static CUresult make(void **stream, unsigned flags) {
    detail("%u", flags);
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct stream *s = handle_make(STREAM, sizeof *s);
    s->blocking = !flags;
    s->last = &s->first;
    s->next = streams;
    streams = s;
    *stream = s;
    return 0;
}

API(cuStreamCreate, cuStreamCreate, CONTEXT, (void **stream, unsigned flags), (stream, flags)) {
    return make(stream, flags);
}

API(cuStreamCreateWithPriority, cuStreamCreateWithPriority, CONTEXT,
    (void **stream, unsigned flags, int priority), (stream, flags, priority)) {
    (void)priority;
    return make(stream, flags);
}

API(cuStreamDestroy, cuStreamDestroy_v2, CONTEXT, (void *stream), (stream)) {
    if (!handle_ok(stream, STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    handle_end(stream);
    return 0;
}

API(cuStreamGetFlags, cuStreamGetFlags, CONTEXT, (void *stream, unsigned *flags), (stream, flags)) {
    const struct stream *s = stream_of(stream);
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *flags = !s->blocking;
    return 0;
}

/* A stream that may be asked or waited for now: a status where it may not. */
static CUresult waitable(struct stream *stream) {
    if (stream == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return stream->capture ? capture_refuse(stream) : capture_legacy(stream);
}

API(cuStreamQuery, cuStreamQuery, CONTEXT, (void *stream), (stream)) {
    struct stream *s = stream_of(stream);
    CUresult status = waitable(s);
    if (status)
        return status;
    if (s->first && !stream_ready(&s->asked))
        return CUDA_ERROR_NOT_READY;
    perform(s, last_seq);
    return fault;
}

API(cuStreamSynchronize, cuStreamSynchronize, CONTEXT, (void *stream), (stream)) {
    struct stream *s = stream_of(stream);
    CUresult status = waitable(s);
    if (status)
        return status;
    perform(s, last_seq);
    return fault;
}
