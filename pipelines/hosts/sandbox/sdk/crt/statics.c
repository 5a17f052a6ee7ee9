/* Initialisation of function-local statics, once whatever the number of threads: what compilers
 * call for /Zc:threadSafeInit. A static's guard is 0 before, -1 meanwhile, and then the number of
 * its initialisation. A thread that knows a later number than that need not ask. */

#define NEVER (-0x7fffffff - 1)
#define BUSY (-1)
#define FOREVER 0xFFFFFFFFul

__declspec(dllimport) void __stdcall AcquireSRWLockExclusive(void **);
__declspec(dllimport) void __stdcall ReleaseSRWLockExclusive(void **);
__declspec(dllimport) int __stdcall SleepConditionVariableSRW(void **, void **, unsigned long,
                                                              unsigned long);
__declspec(dllimport) void __stdcall WakeAllConditionVariable(void **);

__declspec(thread) int _Init_thread_epoch = NEVER;
static int epoch = NEVER;
static void *lock, *changed;

/* Afterwards the caller initialises the static if its guard is BUSY. */
void _Init_thread_header(volatile int *guard)
{
    AcquireSRWLockExclusive(&lock);
    while (*guard == BUSY) SleepConditionVariableSRW(&changed, &lock, FOREVER, 0);
    if (*guard == 0)
        *guard = BUSY;
    else
        _Init_thread_epoch = epoch;
    ReleaseSRWLockExclusive(&lock);
}

void _Init_thread_footer(volatile int *guard)
{
    AcquireSRWLockExclusive(&lock);
    *guard = ++epoch;
    _Init_thread_epoch = epoch;
    ReleaseSRWLockExclusive(&lock);
    WakeAllConditionVariable(&changed);
}

/* The initialiser threw: the next caller tries again. */
void _Init_thread_abort(volatile int *guard)
{
    AcquireSRWLockExclusive(&lock);
    *guard = 0;
    ReleaseSRWLockExclusive(&lock);
    WakeAllConditionVariable(&changed);
}
