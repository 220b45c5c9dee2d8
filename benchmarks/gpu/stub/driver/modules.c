/* Modules and their functions: loaded from machine code or PTX, launched as a driver checks it. */
#include "images.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*kernel_t)(const struct launch *);

struct module {
    struct handle head;
    struct facts *kernels;
};

struct function {
    struct handle head;
    struct module *module;
    const struct facts *facts;
    unsigned dynamic; /* bytes of dynamic shared memory that a launch may ask for */
};

struct behind {
    struct behind *next;
    char name[512];
    kernel_t run;
    uint64_t pointers; /* parameters that are addresses of the device */
};

struct planted_fault {
    struct planted_fault *next;
    char name[512];
    long nth;
    CUresult status;
};

static struct behind *behind;
static struct planted_fault *planted;
static char jit_log[2048];

enum { INFO_LOG = 3, INFO_SIZE = 4, ERROR_LOG = 5, ERROR_SIZE = 6 };

/* The text into the buffer for errors that the options name, and its size into the size's. */
static void tell(const char *text, unsigned count, const int *options, void **values) {
    char *buffer = NULL;
    void **size = NULL;
    for (unsigned n = 0; n < count; n++) {
        if (options[n] == ERROR_LOG)
            buffer = values[n];
        if (options[n] == ERROR_SIZE)
            size = &values[n];
    }
    size_t room = size ? (size_t)*size : 0;
    if (buffer && room) {
        snprintf(buffer, room, "%s", text);
        *size = (void *)(strlen(buffer) + 1);
    }
}

static CUresult load(void **made, const void *image, unsigned count, const int *options,
                     void **values) {
    struct facts *kernels = NULL;
    char told[2048] = "";
    *made = NULL;
    if (image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    bool binary = memcmp(image, ELFMAG, SELFMAG) == 0;
    bool text = !binary && strstr(image, ".version") != NULL;
    detail(binary ? "cubin" : text ? "PTX" : "neither cubin nor PTX");
    CUresult status = CUDA_ERROR_INVALID_IMAGE;
    if (binary)
        status = images_cubin(image, &kernels);
    else if (text)
        status = images_ptx(image, &kernels, told, sizeof told);
    if (status) {
        tell(told, count, options, values);
        return status;
    }
    struct module *m = handle_make(MODULE, sizeof *m);
    m->kernels = kernels;
    for (const struct facts *f = kernels; f; f = f->next)
        detail("%s(%u) shared %u registers %u", f->name, f->count, f->shared, f->registers);
    *made = m;
    return 0;
}

API(cuModuleLoadData, cuModuleLoadData, CONTEXT | UNSAFE, (void **module, const void *image),
    (module, image)) {
    return load(module, image, 0, NULL, NULL);
}

/* A planted failure fills the log, too: see stub_jit_log. */
static CUresult load_with_options(void **module, const void *image, unsigned count,
                                  const int *options, void **values);
EXPORT CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count,
                                   const int *options, void **values);
static struct entry load_entry = {.name = "cuModuleLoadDataEx",
                                  .function = (void (*)(void))cuModuleLoadDataEx,
                                  .needs = CONTEXT | UNSAFE};
__attribute__((constructor)) static void load_add(void) { entry_add(&load_entry); }

CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *options,
                            void **values) {
    CUresult status = entry_enter(&load_entry);
    if (status)
        tell(jit_log, count, options, values);
    else
        status = load_with_options(module, image, count, options, values);
    return entry_leave(&load_entry, status);
}

static CUresult load_with_options(void **module, const void *image, unsigned count,
                                  const int *options, void **values) {
    for (unsigned n = 0; n < count; n++)
        if (options[n] < 0 || options[n] > 64)
            return CUDA_ERROR_INVALID_VALUE;
    return load(module, image, count, options, values);
}

/* What a planted failure of cuModuleLoadDataEx writes into the log. */
EXPORT void stub_jit_log(const char *text) { snprintf(jit_log, sizeof jit_log, "%s", text); }

/* Unloading waits for the device, as freeing its memory does. */
API(cuModuleUnload, cuModuleUnload, CONTEXT | UNSAFE, (void *module), (module)) {
    if (!handle_ok(module, MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    perform_all();
    handle_end(module);
    return fault;
}

API(cuModuleGetFunction, cuModuleGetFunction, CONTEXT,
    (void **function, void *module, const char *name), (function, module, name)) {
    detail("%s", name);
    *function = NULL;
    if (!handle_ok(module, MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    struct module *m = module;
    for (const struct facts *f = m->kernels; f; f = f->next)
        if (strcmp(f->name, name) == 0) {
            struct function *made = handle_make(FUNCTION, sizeof *made);
            made->module = m;
            made->facts = f;
            made->dynamic = f->shared < SHARED_DEFAULT ? SHARED_DEFAULT - f->shared : 0;
            *function = made;
            return 0;
        }
    return CUDA_ERROR_NOT_FOUND;
}

static struct function *function_of(void *handle) {
    if (!handle_ok(handle, FUNCTION))
        return NULL;
    struct function *f = handle;
    if (f->module->head.live)
        return f;
    report("kernel %s is used after its module was unloaded", f->facts->name);
    return NULL;
}

API(cuFuncSetAttribute, cuFuncSetAttribute, CONTEXT, (void *function, int attribute, int value),
    (function, attribute, value)) {
    struct function *f = function_of(function);
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    detail("%s %d = %d", f->facts->name, attribute, value);
    switch (attribute) {
    case 8: /* dynamic shared memory, which static memory leaves less of */
        if (value < 0 || (unsigned)value + f->facts->shared > SHARED_OPTIN)
            return CUDA_ERROR_INVALID_VALUE;
        f->dynamic = (unsigned)value;
        return 0;
    case 9: /* the preferred carve-out, in percent */
        return value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : 0;
    case 14: /* clusters of more than 8 blocks */
        return 0;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API(cuFuncGetAttribute, cuFuncGetAttribute, CONTEXT, (int *value, int attribute, void *function),
    (value, attribute, function)) {
    const struct function *f = function_of(function);
    if (f == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    const int values[] = {(int)f->facts->threads, (int)f->facts->shared, 0, 0,
                          (int)f->facts->registers, ptx_version, capability, 0, (int)f->dynamic};
    if (attribute < 0 || attribute > 8)
        return CUDA_ERROR_INVALID_VALUE;
    *value = values[attribute];
    return 0;
}

/* Why a launch is refused, in words, and its status. */
static CUresult refused(const struct function *f, const struct launch *l, void **params) {
    unsigned threads = l->block[0] * l->block[1] * l->block[2];
    for (int n = 0; n < 3; n++)
        if (!l->grid[n] || l->grid[n] > max_grid[n] || !l->block[n] || l->block[n] > max_block[n]) {
            detail("(extents)");
            return CUDA_ERROR_INVALID_VALUE;
        }
    if (threads > MAX_THREADS || threads > f->facts->threads) {
        detail("(threads)");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (l->shared > f->dynamic || l->shared + f->facts->shared > SHARED_OPTIN) {
        detail("(shared memory: %u static, %u dynamic allowed)", f->facts->shared, f->dynamic);
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned warps = (threads + WARP - 1) / WARP, each = (f->facts->registers + 7) / 8 * 8 * WARP;
    if (warps * each > REGISTERS) {
        detail("(registers)");
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    if (f->facts->count && params == NULL) {
        report("kernel %s is launched without its %u parameters", l->name, f->facts->count);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return 0;
}

/* The parameters' values are read at the launch. */
static struct op *launch_op(const struct function *f, const struct launch *l, void **params) {
    struct op *op = op_new(LAUNCH);
    op->launch = *l;
    for (unsigned n = 0; n < f->facts->count; n++)
        op->values_bytes += (f->facts->sizes[n] + 15u) / 16 * 16;
    op->values = calloc(op->values_bytes + 1, 1);
    op->offsets = calloc(f->facts->count + 1, sizeof *op->offsets);
    if (op->values == NULL || op->offsets == NULL)
        abort();
    size_t at = 0;
    for (unsigned n = 0; n < f->facts->count; n++) {
        op->offsets[n] = at;
        memcpy(op->values + at, params[n], f->facts->sizes[n]);
        at += (f->facts->sizes[n] + 15u) / 16 * 16;
    }
    return op;
}

static CUresult launch(void *function, struct launch *l, void *stream, void **params,
                       void **extra) {
    const struct function *f = function_of(function);
    struct stream *s = stream_of(stream);
    if (f == NULL || s == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    l->name = f->facts->name;
    l->count = f->facts->count;
    detail("%s grid %u %u %u block %u %u %u shared %u", l->name, l->grid[0], l->grid[1], l->grid[2],
           l->block[0], l->block[1], l->block[2], l->shared);
    if (extra)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult status = refused(f, l, params);
    return status ? status : stream_put(s, launch_op(f, l, params));
}

API(cuLaunchKernel, cuLaunchKernel, CONTEXT,
    (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned shared, void *stream, void **params, void **extra),
    (function, gx, gy, gz, bx, by, bz, shared, stream, params, extra)) {
    struct launch l = {NULL, {gx, gy, gz}, {bx, by, bz}, shared, 0, NULL};
    return launch(function, &l, stream, params, extra);
}

struct attribute {
    int id, pad;
    union {
        int allowed;
        char bytes[64];
    } value;
};

struct config {
    unsigned grid[3], block[3], shared;
    void *stream;
    const struct attribute *attributes;
    unsigned count;
};

/* Launches that overlap earlier ones: the only attribute that is modeled. */
static CUresult attributes_refused(const struct config *config) {
    for (unsigned n = 0; n < config->count; n++) {
        const struct attribute *a = &config->attributes[n];
        if (a->id != 6 || (a->value.allowed != 0 && a->value.allowed != 1)) {
            report("cuLaunchKernelEx: attribute %d is not modeled", a->id);
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (capability < 90)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return 0;
}

API(cuLaunchKernelEx, cuLaunchKernelEx, CONTEXT,
    (const struct config *config, void *function, void **params, void **extra),
    (config, function, params, extra)) {
    struct launch l = {.shared = config->shared};
    memcpy(l.grid, config->grid, sizeof l.grid);
    memcpy(l.block, config->block, sizeof l.block);
    CUresult status = attributes_refused(config);
    if (status)
        return status;
    return launch(function, &l, config->stream, params, extra);
}

/* What runs behind launches of a kernel, by name; "" is behind all that have nothing else. */
EXPORT void stub_kernel(const char *name, kernel_t run, uint64_t pointers) {
    struct behind *b = malloc(sizeof *b);
    if (b == NULL)
        abort();
    *b = (struct behind){.next = behind, .run = run, .pointers = pointers};
    snprintf(b->name, sizeof b->name, "%s", name);
    behind = b;
}

/* The nth run from now of a kernel ("" for any) ends with a fault. */
EXPORT void stub_fault(const char *name, long nth, CUresult status) {
    struct planted_fault *f = malloc(sizeof *f);
    if (f == NULL)
        abort();
    *f = (struct planted_fault){.next = planted, .nth = nth, .status = status};
    snprintf(f->name, sizeof f->name, "%s", name);
    planted = f;
}

static CUresult due(const char *name) {
    CUresult status = 0;
    for (struct planted_fault *f = planted; f; f = f->next)
        if ((!*f->name || strcmp(f->name, name) == 0) && --f->nth == 0)
            status = f->status;
    return status;
}

CUresult launch_run(struct op *op) {
    const struct behind *any = NULL, *b = behind;
    for (; b && strcmp(b->name, op->launch.name); b = b->next)
        any = !any && !*b->name ? b : any;
    b = b ? b : any;
    CUresult status = due(op->launch.name);
    if (status || b == NULL) {
        say("%s %s", op->launch.name, status ? "faults" : "has nothing behind it");
        return status;
    }
    void *params[MAX_PARAMS];
    for (unsigned n = 0; n < op->launch.count; n++) {
        params[n] = op->values + op->offsets[n];
        uint64_t address;
        memcpy(&address, params[n], sizeof address);
        if (n < 64 && (b->pointers >> n & 1) && address &&
            !memory_holds(address, 1, op->launch.name))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    op->launch.params = params;
    return b->run(&op->launch);
}
