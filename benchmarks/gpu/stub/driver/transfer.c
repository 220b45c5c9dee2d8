/* Copies and fills: refused where a driver would refuse them, else work for a stream. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

static bool host_ok(const void *address, const char *what) {
    if (address && !memory_on_device(address))
        return true;
    report("%s: %p is no memory of the host", what, address);
    return false;
}

/* A copy as its arguments say it, or NULL; what lies in pageable memory is taken along at once. */
static struct op *copy(uint64_t target, uint64_t source, size_t bytes, bool up, bool down) {
    const char *what = up ? "a copy to the device" : down ? "a copy from the device" : "a copy";
    bool fine = down ? host_ok((void *)target, what) : memory_holds(target, bytes, what);
    fine = fine && (up ? host_ok((void *)source, what) : memory_holds(source, bytes, what));
    if (!fine)
        return NULL;
    struct op *op = op_new(COPY);
    op->target = target;
    op->source = source;
    op->bytes = bytes;
    op->target_on_device = !down;
    op->source_on_device = !up;
    if (up && !memory_pinned((void *)source, bytes)) {
        op->staged = malloc(bytes);
        if (op->staged == NULL)
            abort();
        memcpy(op->staged, (void *)source, bytes);
    }
    return op;
}

/* A copy from or to pageable memory cannot be captured here; one to it is done at the return. */
static CUresult transfer(uint64_t target, uint64_t source, size_t bytes, void *stream, bool up,
                         bool down) {
    detail("%#llx %#llx %zu", (unsigned long long)target, (unsigned long long)source, bytes);
    struct stream *s = stream_of(stream);
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (bytes == 0)
        return 0;
    struct op *op = copy(target, source, bytes, up, down);
    if (op == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    bool pageable = op->staged || (down && !memory_pinned((void *)target, bytes));
    if (pageable && s->capture) {
        op_free(op);
        return capture_refuse(s);
    }
    CUresult status = stream_put(s, op);
    if (status || !down || !pageable)
        return status;
    perform(s, last_seq);
    return fault;
}

API(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, CONTEXT,
    (CUdeviceptr target, const void *source, size_t bytes, void *stream),
    (target, source, bytes, stream)) {
    return transfer(target, (uint64_t)source, bytes, stream, true, false);
}

API(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, CONTEXT,
    (void *target, CUdeviceptr source, size_t bytes, void *stream),
    (target, source, bytes, stream)) {
    return transfer((uint64_t)target, source, bytes, stream, false, true);
}

API(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, CONTEXT,
    (CUdeviceptr target, CUdeviceptr source, size_t bytes, void *stream),
    (target, source, bytes, stream)) {
    return transfer(target, source, bytes, stream, false, false);
}

/* Those that wait work in the legacy stream. */
static CUresult waited(CUresult status) {
    if (status)
        return status;
    perform(&legacy, last_seq);
    return fault;
}

API(cuMemcpyHtoD, cuMemcpyHtoD_v2, CONTEXT | UNSAFE,
    (CUdeviceptr target, const void *source, size_t bytes), (target, source, bytes)) {
    return waited(transfer(target, (uint64_t)source, bytes, NULL, true, false));
}

API(cuMemcpyDtoH, cuMemcpyDtoH_v2, CONTEXT | UNSAFE,
    (void *target, CUdeviceptr source, size_t bytes), (target, source, bytes)) {
    return waited(transfer((uint64_t)target, source, bytes, NULL, false, true));
}

API(cuMemcpyDtoD, cuMemcpyDtoD_v2, CONTEXT | UNSAFE,
    (CUdeviceptr target, CUdeviceptr source, size_t bytes), (target, source, bytes)) {
    return waited(transfer(target, source, bytes, NULL, false, false));
}

static CUresult fill(CUdeviceptr target, unsigned value, unsigned width, size_t count,
                     void *stream) {
    detail("%#llx %u %zu", (unsigned long long)target, value, count);
    struct stream *s = stream_of(stream);
    if (s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (count == 0)
        return 0;
    if (target % width || !memory_holds(target, count * width, "a fill"))
        return CUDA_ERROR_INVALID_VALUE;
    struct op *op = op_new(FILL);
    op->target = target;
    op->bytes = count * width;
    op->value = value;
    op->width = width;
    return stream_put(s, op);
}

API(cuMemsetD8Async, cuMemsetD8Async, CONTEXT,
    (CUdeviceptr target, unsigned char value, size_t count, void *stream),
    (target, value, count, stream)) {
    return fill(target, value, 1, count, stream);
}

API(cuMemsetD16Async, cuMemsetD16Async, CONTEXT,
    (CUdeviceptr target, unsigned short value, size_t count, void *stream),
    (target, value, count, stream)) {
    return fill(target, value, 2, count, stream);
}

API(cuMemsetD32Async, cuMemsetD32Async, CONTEXT,
    (CUdeviceptr target, unsigned value, size_t count, void *stream),
    (target, value, count, stream)) {
    return fill(target, value, 4, count, stream);
}

API(cuMemsetD8, cuMemsetD8_v2, CONTEXT | UNSAFE,
    (CUdeviceptr target, unsigned char value, size_t count), (target, value, count)) {
    return waited(fill(target, value, 1, count, NULL));
}
