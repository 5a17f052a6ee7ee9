/* The application's functions, called by the driver.
 *
 * On a Windows thread that is in a call of ours they run in place. A thread that the driver made has
 * no TEB of its own (it has its creator's %gs), nor has a Windows thread's last breath, after its
 * stack is gone: there Windows code may not run, and a worker, which is a Windows thread, runs it.
 *
 * A worker is always kept idle while others are busy: a callback may wait for what another one
 * does, on another stream, and may call the driver, which calls back again. Who was busy last is
 * taken first, so that callbacks one after another find the same thread. */
#include "linux.h"

typedef u64 WINDOWS callback(u64, u64, u64, u64, u64, u64);

struct job { /* lies on the stack of the driver's thread, which waits for it */
    callback *target;
    u64 arguments[6], result;
    int done;
    struct job *next;
};

struct worker { /* lies on the worker's stack */
    struct job *job;
    int wake;
    struct worker *next;
};

enum { FUTEX = 202, WAIT = 0, WAKE = 1 };

__thread int windows_thread __attribute__((tls_model("initial-exec")));
static char lock;
static struct job *waiting; /* the oldest first */
static struct worker *idle;
static int starting, started, ended;

struct time {
    long seconds, nanoseconds;
};

/* Until it is not 0, or the process ends, which is looked at every `interval`; null: not at all. */
static void wait_while_zero(int *word, const struct time *interval)
{
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE) && !__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
        syscall(FUTEX, word, WAIT, 0, interval);
}

static void set(int *word)
{
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    syscall(FUTEX, word, WAKE, 1); /* even if its stack is gone by now: an address, no more */
}

/* Whether this is the stack that the TEB says: between gs:0x1478, where it was allocated, and gs:8. */
static int on_its_own_stack(void)
{
    u64 bottom, top, here = (u64)__builtin_frame_address(0);
    __asm__("movq %%gs:0x1478, %0\n movq %%gs:8, %1" : "=r"(bottom), "=r"(top));
    return bottom <= here && here < top;
}

/* Called by bridge_callback. */
HIDDEN u64 call_back(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, callback *target)
{
    if (windows_thread && on_its_own_stack()) return target(a, b, c, d, e, f);
    struct job job = {target, {a, b, c, d, e, f}, 0, 0, 0}, **last = &waiting;
    acquire(&lock);
    struct worker *worker = idle;
    if (worker) {
        idle = worker->next;
        worker->job = &job;
    } else {
        while (*last) last = &(*last)->next;
        *last = &job;
    }
    release(&lock);
    if (worker) set(&worker->wake);
    wait_while_zero(&job.done, &(struct time){1, 0});
    return job.result;
}

/* Start another worker unless one is idle or on its way; 0 if there is none and none can be. */
static int keep_one_idle(void)
{
    acquire(&lock);
    int need = !idle && !starting;
    if (need) starting = 1;
    release(&lock);
    if (!need || bridge->start_worker()) return 1;
    acquire(&lock);
    starting = 0;
    release(&lock);
    warn("no thread for callbacks could be started");
    return 0;
}

int have_workers(void)
{
    if (__atomic_load_n(&started, __ATOMIC_ACQUIRE)) return 1;
    if (!keep_one_idle()) return 0;
    __atomic_store_n(&started, 1, __ATOMIC_RELEASE);
    return 1;
}

void WINDOWS serve(void)
{
    struct worker self = {0, 0, 0}, **place;
    struct job *finished = 0;

    windows_thread = 1;
    acquire(&lock);
    starting = 0;
    release(&lock);
    for (;;) {
        self.wake = 0;
        acquire(&lock);
        struct job *job = waiting;
        if (job) {
            waiting = job->next;
        } else {
            place = &idle;
            while (!finished && *place) place = &(*place)->next; /* a new one comes last */
            self.next = *place;
            *place = &self;
        }
        release(&lock);
        if (finished) set(&finished->done); /* from here on it may be gone */
        if (!job) {
            wait_while_zero(&self.wake, 0); /* who ends a process ends this thread first */
            job = self.job;
        }
        keep_one_idle();
        u64 *a = job->arguments;
        job->result = job->target(a[0], a[1], a[2], a[3], a[4], a[5]);
        finished = job;
    }
}

void WINDOWS end_callbacks(void) { __atomic_store_n(&ended, 1, __ATOMIC_RELEASE); }
