/* The device and its contexts: what it is, which context a thread is in, what ended it. */
#include "stub.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool initialized;
CUresult fault;
int capability = 90, driver_version = 13000, ptx_version = 90;
const unsigned max_grid[3] = {2147483647, 65535, 65535}, max_block[3] = {1024, 1024, 64};

enum { DEPTH = 256 };
static struct handle *primary;
static _Thread_local void *stack[DEPTH];
static _Thread_local unsigned depth;

bool context_current(void) { return depth && stack[depth - 1]; }

bool is_sticky(CUresult status) {
    switch (status) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return true;
    default:
        return false;
    }
}

void fault_now(CUresult status, const char *where) {
    if (!fault)
        say("fault %d at %s", status, where);
    fault = fault ? fault : status;
}

API(cuInit, cuInit, ANYTIME, (unsigned flags), (flags)) {
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    initialized = true;
    return 0;
}

API(cuDriverGetVersion, cuDriverGetVersion, ANYTIME, (int *version), (version)) {
    *version = driver_version;
    return 0;
}

API(cuDeviceGetCount, cuDeviceGetCount, 0, (int *count), (count)) {
    *count = 1;
    return 0;
}

API(cuDeviceGet, cuDeviceGet, 0, (int *device, int ordinal), (device, ordinal)) {
    *device = ordinal;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : 0;
}

API(cuDeviceGetName, cuDeviceGetName, 0, (char *name, int room, int device), (name, room, device)) {
    if (device || room <= 0)
        return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)room, "Stub H100");
    return 0;
}

API(cuDeviceTotalMem, cuDeviceTotalMem_v2, 0, (size_t *bytes, int device), (bytes, device)) {
    *bytes = memory_total;
    return device ? CUDA_ERROR_INVALID_DEVICE : 0;
}

API(cuDeviceGetUuid, cuDeviceGetUuid_v2, 0, (unsigned char *uuid, int device), (uuid, device)) {
    memcpy(uuid, "nestwright-stub!", 16);
    return device ? CUDA_ERROR_INVALID_DEVICE : 0;
}

/* Numbers and values of an H100; 0 says that the device lacks something. */
int attribute_of_device(int attribute) {
    static const int rows[][2] = {
        {1, MAX_THREADS}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535},
        {8, SHARED_DEFAULT}, {9, 65536}, {10, WARP}, {11, 2147483647}, {12, REGISTERS},
        {13, 1980000}, {16, PROCESSORS}, {19, 1}, {31, 1}, {32, 1}, {36, 2619000}, {37, 5120},
        {38, 50 << 20}, {39, 2048}, {40, 3}, {41, 1}, {81, SHARED_PROCESSOR}, {82, REGISTERS},
        {83, 1}, {95, 1}, {97, SHARED_OPTIN}, {106, 32}, {108, 32 << 20}, {111, SHARED_RESERVED},
        {115, 1}, {120, 1}, {127, 1},
    };
    if (attribute == 75)
        return capability / 10;
    if (attribute == 76)
        return capability % 10;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        if (rows[n][0] == attribute)
            return rows[n][1];
    return 0;
}

API(cuDeviceGetAttribute, cuDeviceGetAttribute, 0, (int *value, int attribute, int device),
    (value, attribute, device)) {
    detail("%d", attribute);
    if (device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute < 1 || attribute > 1000)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_of_device(attribute);
    return 0;
}

API(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, UNSAFE, (void **context, int device),
    (context, device)) {
    if (device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (primary == NULL)
        primary = handle_make(CONTEXT_HANDLE, sizeof *primary);
    *context = primary;
    return fault;
}

API(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, UNSAFE, (int device), (device)) {
    return device ? CUDA_ERROR_INVALID_DEVICE : 0;
}

API(cuCtxPushCurrent, cuCtxPushCurrent_v2, 0, (void *context), (context)) {
    if (!handle_ok(context, CONTEXT_HANDLE))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == DEPTH) {
        report("%d contexts are current in one thread", DEPTH);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack[depth++] = context;
    return 0;
}

API(cuCtxPopCurrent, cuCtxPopCurrent_v2, 0, (void **context), (context)) {
    if (!depth) {
        report("cuCtxPopCurrent without a current context");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    depth--;
    if (context)
        *context = stack[depth];
    return 0;
}

API(cuCtxSetCurrent, cuCtxSetCurrent, 0, (void *context), (context)) {
    if (context && !handle_ok(context, CONTEXT_HANDLE))
        return CUDA_ERROR_INVALID_CONTEXT;
    depth = depth ? depth : 1;
    stack[depth - 1] = context;
    return 0;
}

API(cuCtxGetCurrent, cuCtxGetCurrent, 0, (void **context), (context)) {
    *context = depth ? stack[depth - 1] : NULL;
    return 0;
}

API(cuCtxGetDevice, cuCtxGetDevice, CONTEXT, (int *device), (device)) {
    *device = 0;
    return 0;
}

API(cuCtxSynchronize, cuCtxSynchronize, CONTEXT | UNSAFE, (void), ()) {
    perform_all();
    return fault;
}

struct row {
    int number;
    const char *name;
};
#define STATUS(number, name) {number, "CUDA_" #name},
static const struct row statuses[] = {
#include "statuses.h"
};
#undef STATUS

static const char *name_of(CUresult status) {
    for (size_t n = 0; n < sizeof statuses / sizeof *statuses; n++)
        if (statuses[n].number == status)
            return statuses[n].name;
    return NULL;
}

API(cuGetErrorName, cuGetErrorName, ANYTIME | QUIET, (CUresult status, const char **name),
    (status, name)) {
    *name = name_of(status);
    return *name ? 0 : CUDA_ERROR_INVALID_VALUE;
}

API(cuGetErrorString, cuGetErrorString, ANYTIME | QUIET, (CUresult status, const char **text),
    (status, text)) {
    static char room[128];
    const char *name = name_of(status);
    *text = NULL;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    name += strlen(strncmp(name, "CUDA_ERROR_", 11) ? "CUDA_" : "CUDA_ERROR_");
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof room; n++)
        room[n] = name[n] == '_' ? ' ' : (char)tolower((unsigned char)name[n]);
    room[n] = 0;
    *text = room;
    return 0;
}

/* For tests: what this thread has left on its stack of contexts. */
EXPORT unsigned stub_depth(void) { return depth; }
