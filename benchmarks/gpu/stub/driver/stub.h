/* What the parts of the stand-in driver share: handles, entries, the device's state. */
#ifndef STUB_H
#define STUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;

#define STATUS(number, name) CUDA_##name = number,
enum {
#include "statuses.h"
};
#undef STATUS

#define EXPORT __attribute__((visibility("default")))
#define PRINTF(n) __attribute__((format(printf, n, n + 1)))

/* Entries: every function that is offered lists itself, counts its calls and can be made to fail. */

enum {
    ANYTIME = 1, /* before cuInit, too */
    CONTEXT = 2, /* in a context, and not after a fault */
    UNSAFE = 4,  /* not while a capture forbids it */
    QUIET = 8,   /* not written into the log */
};

struct failure {
    struct failure *next;
    long first, last; /* numbers of calls */
    CUresult status;
};

struct entry {
    const char *name;
    void (*function)(void);
    unsigned needs;
    int since; /* the version of the driver's interface that brought this form */
    bool missing;
    long calls;
    struct failure *failures;
    struct entry *next;
};

void entry_add(struct entry *entry);
struct entry *entry_find(const char *name, int version);
CUresult entry_enter(struct entry *entry);
CUresult entry_leave(struct entry *entry, CUresult status);

#define API_SINCE(version, symbol, exported, flags, params, args)                                  \
    static CUresult exported##_body params;                                                        \
    EXPORT CUresult exported params;                                                               \
    static struct entry exported##_entry = {.name = #symbol,                                       \
                                            .function = (void (*)(void))exported,                  \
                                            .needs = (flags),                                      \
                                            .since = (version)};                                   \
    __attribute__((constructor)) static void exported##_add(void) { entry_add(&exported##_entry); } \
    CUresult exported params {                                                                     \
        CUresult entered = entry_enter(&exported##_entry);                                         \
        return entry_leave(&exported##_entry, entered ? entered : exported##_body args);           \
    }                                                                                              \
    static CUresult exported##_body params
#define API(symbol, exported, flags, params, args)                                                 \
    API_SINCE(0, symbol, exported, flags, params, args)

/* What is told: the log of calls, and the reports of what a correct program never does. */

void detail(const char *format, ...) PRINTF(1); /* added to the line of the call under way */
void say(const char *format, ...) PRINTF(1);    /* a line of its own */
void report(const char *format, ...) PRINTF(1);

/* Handles are never freed, so that one that was destroyed is known by its address. */

enum kind { STREAM = 1, EVENT, MODULE, FUNCTION, GRAPH, EXEC, CONTEXT_HANDLE };

struct handle {
    enum kind kind;
    bool live;
    struct handle *next;
};

void *handle_make(enum kind kind, size_t size);
bool handle_ok(const void *handle, enum kind kind); /* reports one that is of no use */
void handle_end(void *handle);
long handle_count(enum kind kind);

/* Memory. */

struct block;
void *memory_new(size_t bytes, bool host);
CUresult memory_end(uint64_t address, bool host, const char *how);
bool memory_holds(uint64_t address, size_t bytes, const char *what); /* the device may touch it */
bool memory_pinned(const void *address, size_t bytes);
bool memory_on_device(const void *address);
size_t memory_used(void);
void memory_check(void);
extern size_t memory_total;

/* Streams and what waits in them. */

struct stream;
struct event;
struct capture;
struct function;

struct launch {
    const char *name;
    unsigned grid[3], block[3], shared, count;
    void **params; /* the address of each parameter's value */
};

struct before { /* operations of a capture, by number */
    uint64_t *words;
    size_t count;
};

enum what { COPY, FILL, LAUNCH, RECORD, WAIT, RELEASE };

struct op {
    enum what what;
    uint64_t seq;
    struct op *next;
    uint64_t target, source; /* addresses; of a RELEASE the target */
    size_t bytes;
    void *staged; /* of a copy from memory that is not page-locked: its bytes */
    bool target_on_device, source_on_device;
    unsigned value, width;
    struct launch launch;
    unsigned char *values; /* of the parameters, one behind the other */
    size_t values_bytes;
    size_t *offsets;
    struct stream *stream; /* waited for, as far as wait_seq */
    uint64_t wait_seq;
    struct event *event;
    uint64_t ticket;
    size_t number; /* in its capture */
    struct before before;
};

struct stream {
    struct handle head;
    bool blocking;
    struct op *first, **last;
    struct capture *capture;
    struct before before; /* what is captured next */
    unsigned asked;
    struct stream *next;
};

struct op *op_new(enum what what);
struct op *op_copy(const struct op *op);
void op_free(struct op *op);
struct stream *stream_of(void *handle); /* NULL for none; reports */
CUresult stream_put(struct stream *stream, struct op *op); /* owns the op from then on */
void stream_queue(struct stream *stream, struct op *op);
bool stream_ready(unsigned *asked); /* one more question: is it time to work? */
void perform(struct stream *stream, uint64_t seq);
void perform_all(void);
extern struct stream legacy, per_thread;
extern struct stream *streams;
extern uint64_t last_seq;
extern double clock_us;
extern unsigned patience;

struct event {
    struct handle head;
    bool timed;
    struct stream *stream; /* of the last record */
    uint64_t seq, ticket, done;
    double at;
    unsigned asked;
    struct capture *capture;
    struct before before; /* and up to the event itself */
};

/* Captures. */

enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

struct capture {
    struct stream *origin;
    int mode;
    uint64_t thread;
    bool invalid;
    size_t count;
    struct op *first, **last;
    struct capture *next;
};

CUresult capture_unsafe(void);                     /* an unsafe call comes: refused if forbidden */
CUresult capture_legacy(const struct stream *stream); /* the legacy stream while one is captured */
CUresult capture_put(struct stream *stream, struct op *op);
CUresult capture_record(struct stream *stream, struct event *event);
CUresult capture_wait(struct stream *stream, struct event *event);
CUresult capture_refuse(struct stream *stream); /* ends the use of a capture: 900 */
uint64_t this_thread(void);
void before_add(struct before *set, size_t number);
void before_join(struct before *set, const struct before *other);
bool before_covers(const struct before *set, const struct before *other);
void before_free(struct before *set);
struct op *in_late_order(struct op *first, size_t count);

/* The device. */

extern bool initialized;
extern CUresult fault; /* sticky */
extern int capability, driver_version, ptx_version;
bool context_current(void);
bool is_sticky(CUresult status);
void fault_now(CUresult status, const char *where);
CUresult launch_run(struct op *op); /* the function behind a kernel; a fault's status */
void control_once(void);            /* reads the environment */
int attribute_of_device(int attribute);

enum {
    MAX_THREADS = 1024, WARP = 32, REGISTERS = 65536, PROCESSORS = 132,
    SHARED_DEFAULT = 48 << 10, SHARED_OPTIN = 227 << 10, SHARED_RESERVED = 1 << 10,
    SHARED_PROCESSOR = 228 << 10,
};
extern const unsigned max_grid[3], max_block[3];

#endif
