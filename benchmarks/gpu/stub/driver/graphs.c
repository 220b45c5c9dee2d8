/* Captures become graphs, graphs executables, and a launch of one gives its work to a stream. */
#define _GNU_SOURCE
#include "stub.h"

#include <pthread.h>
#include <stdlib.h>

struct graph {
    struct handle head;
    struct op *first;
    size_t count;
};

static struct capture *captures; /* under way */
static _Thread_local int thread_mode = GLOBAL;

uint64_t this_thread(void) { return (uint64_t)pthread_self(); }

/* Which captures forbid an unsafe call depends on their mode, and on who makes it. */
CUresult capture_unsafe(void) {
    CUresult status = 0;
    for (struct capture *c = captures; c; c = c->next) {
        bool mine = c->thread == this_thread();
        if (thread_mode != RELAXED && (c->mode == GLOBAL || (c->mode == THREAD_LOCAL && mine))) {
            if (thread_mode == THREAD_LOCAL && !mine)
                continue;
            c->invalid = true;
            status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return status;
}

/* The legacy stream would have to wait for blocking streams, and none can be waited for now. */
CUresult capture_legacy(const struct stream *stream) {
    CUresult status = 0;
    for (struct capture *c = captures; c; c = c->next)
        if (stream == &legacy && c->origin->blocking) {
            c->invalid = true;
            status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return status;
}

CUresult capture_refuse(struct stream *stream) {
    bool before = stream->capture->invalid;
    stream->capture->invalid = true;
    return before ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_put(struct stream *stream, struct op *op) {
    struct capture *c = stream->capture;
    if (c->invalid) {
        op_free(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    op->next = NULL;
    op->number = c->count++;
    before_join(&op->before, &stream->before);
    before_add(&stream->before, op->number);
    *c->last = op;
    c->last = &op->next;
    return 0;
}

CUresult capture_record(struct stream *stream, struct event *event) {
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture;
    event->stream = stream;
    before_free(&event->before);
    before_join(&event->before, &stream->before);
    return 0;
}

/* A stream that waits for an event of a capture joins it; the origin's wait brings it back. */
CUresult capture_wait(struct stream *stream, struct event *event) {
    if (event->capture == NULL) {
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (event->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture == NULL) {
        stream->capture = event->capture;
    } else if (stream->capture != event->capture) {
        stream->capture->invalid = event->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    before_join(&stream->before, &event->before);
    return 0;
}

static void free_all(struct op *op) {
    while (op) {
        struct op *next = op->next;
        op_free(op);
        op = next;
    }
}

static struct graph *graph_of(struct op *first, enum kind kind) {
    struct graph *g = handle_make(kind, sizeof *g);
    g->first = first;
    for (const struct op *op = first; op; op = op->next)
        g->count++;
    return g;
}

API(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, CONTEXT, (int *mode),
    (mode)) {
    int before = thread_mode;
    if (*mode < GLOBAL || *mode > RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = before;
    return 0;
}

API(cuStreamBeginCapture, cuStreamBeginCapture_v2, CONTEXT, (void *stream, int mode),
    (stream, mode)) {
    detail("mode %d", mode);
    struct stream *s = stream_of(stream);
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (mode < GLOBAL || mode > RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (s == &legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) {
        s->capture->invalid = true;
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    struct capture *c = calloc(1, sizeof *c);
    if (c == NULL)
        abort();
    c->origin = s;
    c->mode = mode;
    c->thread = this_thread();
    c->last = &c->first;
    c->next = captures;
    captures = c;
    s->capture = c;
    return 0;
}

/* Has all that was captured come back to the origin? */
static bool is_joined(const struct capture *capture) {
    for (struct stream *s = streams; s; s = s->next)
        if (s->capture == capture && !before_covers(&capture->origin->before, &s->before))
            return false;
    return true;
}

/* Captures are few and small: they are kept, as events may still name them. */
static void leave(struct capture *capture) {
    for (struct stream *s = streams; s; s = s->next)
        if (s->capture == capture) {
            s->capture = NULL;
            before_free(&s->before);
        }
    for (struct capture **at = &captures; *at; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            return;
        }
}

API(cuStreamEndCapture, cuStreamEndCapture, CONTEXT, (void *stream, void **graph),
    (stream, graph)) {
    struct stream *s = stream_of(stream);
    *graph = NULL;
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    struct capture *c = s->capture;
    if (c == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != s) {
        c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (c->mode != RELAXED && c->thread != this_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bool joined = is_joined(c);
    leave(c);
    if (c->invalid || !joined) {
        free_all(c->first);
        return c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    struct graph *g = graph_of(in_late_order(c->first, c->count), GRAPH);
    detail("%zu operations", g->count);
    *graph = g;
    return 0;
}

API(cuStreamIsCapturing, cuStreamIsCapturing, CONTEXT, (void *stream, int *state),
    (stream, state)) {
    const struct stream *s = stream_of(stream);
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *state = s->capture == NULL ? 0 : s->capture->invalid ? 2 : 1;
    return 0;
}

API(cuGraphGetNodes, cuGraphGetNodes, 0, (void *graph, void **nodes, size_t *count),
    (graph, nodes, count)) {
    if (!handle_ok(graph, GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    if (nodes)
        return CUDA_ERROR_NOT_SUPPORTED;
    *count = ((struct graph *)graph)->count;
    return 0;
}

static CUresult instantiate(void **made, void *graph, uint64_t flags) {
    *made = NULL;
    if (!handle_ok(graph, GRAPH))
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct op *first = NULL, **last = &first;
    for (const struct op *op = ((struct graph *)graph)->first; op; op = op->next) {
        *last = op_copy(op);
        last = &(*last)->next;
    }
    *made = graph_of(first, EXEC);
    return 0;
}

API(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, CONTEXT,
    (void **made, void *graph, uint64_t flags), (made, graph, flags)) {
    return instantiate(made, graph, flags);
}

API_SINCE(12000, cuGraphInstantiate, cuGraphInstantiate_flags, CONTEXT,
          (void **made, void *graph, uint64_t flags), (made, graph, flags)) {
    return instantiate(made, graph, flags);
}

API(cuGraphUpload, cuGraphUpload, CONTEXT, (void *graph, void *stream), (graph, stream)) {
    return handle_ok(graph, EXEC) && stream_of(stream) ? 0 : CUDA_ERROR_INVALID_HANDLE;
}

API(cuGraphLaunch, cuGraphLaunch, CONTEXT, (void *graph, void *stream), (graph, stream)) {
    struct stream *s = stream_of(stream);
    if (s == NULL || !handle_ok(graph, EXEC))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = capture_legacy(s);
    if (status)
        return status;
    detail("%zu operations", ((struct graph *)graph)->count);
    for (const struct op *op = ((struct graph *)graph)->first; op && !status; op = op->next)
        status = stream_put(s, op_copy(op));
    return status;
}

static CUresult destroy(void *graph, enum kind kind) {
    if (!handle_ok(graph, kind))
        return CUDA_ERROR_INVALID_HANDLE;
    free_all(((struct graph *)graph)->first);
    ((struct graph *)graph)->first = NULL;
    handle_end(graph);
    return 0;
}

API(cuGraphDestroy, cuGraphDestroy, 0, (void *graph), (graph)) { return destroy(graph, GRAPH); }

API(cuGraphExecDestroy, cuGraphExecDestroy, 0, (void *graph), (graph)) {
    return destroy(graph, EXEC);
}
