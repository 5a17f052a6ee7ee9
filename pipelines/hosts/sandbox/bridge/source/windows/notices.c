/* Notices of a thread's end: Windows' driver gives them from its DllMain, Linux' has no such table.
 * A notice that was removed is used again, never freed: a thread that ends may be looking at it. */
#include "nvcuda.h"

struct notice {
    void(WINAPI *callback)(unsigned reason, void *data); /* null: removed */
    void *data;
    struct notice *next;
};

static SRWLOCK lock = SRWLOCK_INIT;
static struct notice *notices;

static result add_notice(struct notice **handle, void *callback, void *data)
{
    if (!handle || !callback) return INVALID_VALUE;
    AcquireSRWLockExclusive(&lock);
    struct notice *notice = notices;
    while (notice && notice->callback) notice = notice->next;
    if (!notice && (notice = HeapAlloc(GetProcessHeap(), 0, sizeof *notice))) {
        notice->next = notices;
        notices = notice;
    }
    if (notice) {
        notice->callback = callback;
        notice->data = data;
    }
    ReleaseSRWLockExclusive(&lock);
    *handle = notice;
    return notice ? 0 : OUT_OF_MEMORY;
}

static result remove_notice(struct notice *handle, void *unused)
{
    (void)unused;
    AcquireSRWLockExclusive(&lock);
    struct notice *notice = notices;
    while (notice && notice != handle) notice = notice->next;
    if (notice) notice->callback = NULL;
    ReleaseSRWLockExclusive(&lock);
    return notice ? 0 : INVALID_VALUE;
}

void thread_ends(void)
{
    AcquireSRWLockShared(&lock);
    struct notice *notice = notices, here;
    for (; notice; notice = here.next) {
        here = *notice;
        ReleaseSRWLockShared(&lock); /* it may add or remove one */
        if (here.callback) here.callback(0, here.data);
        AcquireSRWLockShared(&lock);
    }
    ReleaseSRWLockShared(&lock);
}

const void *const notices_table[3] = {(void *)24, add_notice, remove_notice};
