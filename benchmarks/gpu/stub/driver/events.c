/* Events: marks in streams that can be asked, waited for and told the time between. */
#include "stub.h"

enum { NO_TIMING = 2 };

API(cuEventCreate, cuEventCreate, CONTEXT, (void **event, unsigned flags), (event, flags)) {
    detail("%u", flags);
    if (flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *e = handle_make(EVENT, sizeof *e);
    e->timed = !(flags & NO_TIMING);
    *event = e;
    return 0;
}

/* One that was recorded and is not done yet still marks its place. */
API(cuEventDestroy, cuEventDestroy_v2, CONTEXT, (void *event), (event)) {
    if (!handle_ok(event, EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    handle_end(event);
    return 0;
}

API(cuEventRecord, cuEventRecord, CONTEXT, (void *event, void *stream), (event, stream)) {
    struct stream *s = stream_of(stream);
    if (s == NULL || !handle_ok(event, EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = capture_legacy(s);
    if (status)
        return status;
    struct event *e = event;
    if (s->capture)
        return capture_record(s, e);
    struct op *op = op_new(RECORD);
    op->event = e;
    op->ticket = ++e->ticket;
    stream_queue(s, op);
    e->stream = s;
    e->seq = op->seq;
    e->asked = 0;
    e->capture = 0;
    return 0;
}

static bool is_done(const struct event *e) { return e->done == e->ticket; }

static CUresult waitable(void *event) {
    if (!handle_ok(event, EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    return ((struct event *)event)->capture ? CUDA_ERROR_CAPTURED_EVENT : 0;
}

API(cuEventQuery, cuEventQuery, CONTEXT, (void *event), (event)) {
    CUresult status = waitable(event);
    struct event *e = event;
    if (status || is_done(e))
        return status;
    if (!stream_ready(&e->asked))
        return CUDA_ERROR_NOT_READY;
    perform(e->stream, e->seq);
    return fault;
}

API(cuEventSynchronize, cuEventSynchronize, CONTEXT, (void *event), (event)) {
    CUresult status = waitable(event);
    struct event *e = event;
    if (status || is_done(e))
        return status;
    perform(e->stream, e->seq);
    return fault;
}

static CUresult elapsed(float *ms, void *start, void *end) {
    if (!handle_ok(start, EVENT) || !handle_ok(end, EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    const struct event *a = start, *b = end;
    if (!a->timed || !b->timed || !a->ticket || !b->ticket)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_done(a) || !is_done(b))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((b->at - a->at) * 1e-3);
    return 0;
}

API(cuEventElapsedTime, cuEventElapsedTime, CONTEXT, (float *ms, void *start, void *end),
    (ms, start, end)) {
    return elapsed(ms, start, end);
}

API_SINCE(12080, cuEventElapsedTime, cuEventElapsedTime_v2, CONTEXT,
          (float *ms, void *start, void *end), (ms, start, end)) {
    return elapsed(ms, start, end);
}

API(cuStreamWaitEvent, cuStreamWaitEvent, CONTEXT, (void *stream, void *event, unsigned flags),
    (stream, event, flags)) {
    struct stream *s = stream_of(stream);
    if (s == NULL || !handle_ok(event, EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct event *e = event;
    CUresult status = capture_legacy(s);
    if (status)
        return status;
    if (s->capture || e->capture)
        return capture_wait(s, e);
    if (is_done(e))
        return 0;
    struct op *op = op_new(WAIT);
    op->stream = e->stream;
    op->wait_seq = e->seq;
    stream_queue(s, op);
    return 0;
}
