/* What the files of the Linux half share, and the C library's functions that they use: the sandbox
 * has a compiler, but no headers of Linux. */
#ifndef LINUX_H
#define LINUX_H

#include "bridge.h"

#define HIDDEN __attribute__((visibility("hidden")))
#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef unsigned long size_t;

extern void *dlopen(const char *, int), *dlsym(void *, const char *);
extern char *dlerror(void), *getenv(const char *);
extern int setenv(const char *, const char *, int), unsetenv(const char *);
extern int open(const char *, int, ...), close(int);
extern long read(int, void *, size_t), write(int, const void *, size_t), lseek(int, long, int);
extern int vsnprintf(char *, size_t, const char *, __builtin_va_list);
extern int snprintf(char *, size_t, const char *, ...);
extern void *mmap(void *, size_t, int, int, int, long), *malloc(size_t);
extern void free(void *);
extern void *memcpy(void *, const void *, size_t);
extern char *strchr(const char *, int);
extern int strcmp(const char *, const char *), strncmp(const char *, const char *, size_t);
extern size_t strlen(const char *);
extern u64 strtoull(const char *, char **, int);
extern int sched_yield(void);
extern long syscall(long, ...);

/* -- connect.c ------------------------------------------------------------------------------- */

extern struct bridge *bridge HIDDEN;
extern void *library HIDDEN;

/* -- log.c ----------------------------------------------------------------------------------- */

/* One line in the file that WCW_BRIDGE_LOG names; there is an end to how many are written. */
void warn(const char *format, ...) HIDDEN __attribute__((format(printf, 1, 2)));

/* -- special.c ------------------------------------------------------------------------------- */

/* What has to be known of a function; calls.def explains each. */
enum kind {
    CALLBACK = 1,
    HOST_PARAMS,
    HOST_RESULT,
    NODE_PARAMS,
    NODE_RESULT,
    PATH,
    COREDUMP_PATH,
    PROC_ADDRESS,
    EXPORT_TABLE,
    IPC_HANDLE,
    FLOATS,
    LONG_RESULT,
    VA_LIST,
    REFUSED,
    HANDLE_BITS,
    HANDLE_TYPE,
    MISSING,
    WATCHED,
};

struct special {
    const char *name;
    enum kind kind;
    int argument, offset; /* the argument, from 0, that is meant; a place in what it points to */
    unsigned values;      /* of handles: those that are refused, a bit each */
};

/* What `name`, which the driver has at `real`, needs; null: nothing. */
const struct special *special_of(const char *name, void *real) HIDDEN;

/* -- thunks.c -------------------------------------------------------------------------------- */

/* A function that is callable from the other side, and how it is called. */
struct entry {
    void *code; /* bridge_plain, bridge_special or bridge_callback: thunks jump there */
    void *real;
    const struct special *special;
    char name[64];
    int warned; /* once is enough */
};

int make_room_for_thunks(void) HIDDEN; /* 0: there is none */

/* A Windows function that calls the driver's; the same one for the same `real` and `special`. Null,
 * and a warning, when there is no room left. */
void *for_windows(void *real, const struct special *special, const char *name) HIDDEN;

/* A Linux function that calls the application's; likewise, and kept for ever: the driver may call
 * it long after it was told of it. */
void *for_driver(void *target) HIDDEN;

void call_it_plainly(struct entry *) HIDDEN; /* from its next call on */

void *windows_function(void *thunk) HIDDEN; /* the inverse; other addresses are left as they are */

/* -- callbacks.c ----------------------------------------------------------------------------- */

extern __thread int windows_thread HIDDEN; /* not 0: it has called us, hence it has a TEB */
int have_workers(void) HIDDEN;             /* 0: none can be started */
void WINDOWS serve(void) HIDDEN;
void WINDOWS end_callbacks(void) HIDDEN;

/* -- export_tables.c ------------------------------------------------------------------------- */

/* The driver's table with functions for Windows; null and a warning where that cannot be. */
u64 *table_for_windows(const u64 *real, const unsigned char *id) HIDDEN;

/* -- small things ---------------------------------------------------------------------------- */

static inline void acquire(char *lock)
{
    while (__atomic_test_and_set(lock, __ATOMIC_ACQUIRE)) sched_yield();
}

static inline void release(char *lock) { __atomic_clear(lock, __ATOMIC_RELEASE); }

#endif
