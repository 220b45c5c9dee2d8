/* What a process may ask of the stand-in: by its environment, or through these functions. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int stub_fail(const char *name, long nth, long times, CUresult status);
int stub_hide(const char *name);
const char *stub_reports(void);

/* CUDA_STUB_FAIL: "cuMemAlloc:2=2 cuGraphLaunch:1=999", call and status. */
static void read_failures(const char *text) {
    char name[128];
    long nth;
    int status, used;
    while (sscanf(text, " %127[^:]:%ld=%d%n", name, &nth, &status, &used) == 3) {
        if (stub_fail(name, nth, 1, status))
            report("CUDA_STUB_FAIL names %s, which is not modeled", name);
        text += used;
    }
}

/* CUDA_STUB_MISSING: "cuGraphLaunch cuMemAlloc", not found by cuGetProcAddress. */
static void read_missing(const char *text) {
    char name[128];
    int used;
    while (sscanf(text, " %127s%n", name, &used) == 1) {
        if (stub_hide(name))
            report("CUDA_STUB_MISSING names %s, which is not modeled", name);
        text += used;
    }
}

static void read_number(const char *name, int *value) {
    const char *text = getenv(name);
    if (text)
        *value = atoi(text);
}

void control_once(void) {
    static bool done;
    if (done)
        return;
    done = true;
    const char *text = getenv("CUDA_STUB_FAIL");
    if (text)
        read_failures(text);
    if ((text = getenv("CUDA_STUB_MISSING")) != NULL)
        read_missing(text);
    if ((text = getenv("CUDA_STUB_MEMORY")) != NULL)
        memory_total = strtoull(text, NULL, 10);
    read_number("CUDA_STUB_CAPABILITY", &capability);
    read_number("CUDA_STUB_DRIVER", &driver_version);
    read_number("CUDA_STUB_PTX", &ptx_version);
    int asked = (int)patience;
    read_number("CUDA_STUB_PATIENCE", &asked);
    patience = asked < 1 ? 1 : (unsigned)asked;
}

EXPORT void stub_patience(unsigned questions) { patience = questions ? questions : 1; }

EXPORT void stub_memory(size_t bytes) { memory_total = bytes; }

EXPORT void stub_capability(int number) { capability = number; }

EXPORT size_t stub_used(void) { return memory_used(); }

EXPORT long stub_live(int kind) { return handle_count((enum kind)kind); }

EXPORT int stub_state(void) { return fault; }

/* At the end of the process, what was found goes to stderr if anyone asked for it. */
__attribute__((destructor)) static void end(void) {
    if (getenv("CUDA_STUB_REPORT") == NULL)
        return;
    memory_check();
    const char *text = stub_reports();
    if (*text)
        fprintf(stderr, "the stand-in driver found:\n%s", text);
}
