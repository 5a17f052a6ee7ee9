/* CUDA_VISIBLE_DEVICES and the like: the driver reads Linux' environment, which a Windows program
 * neither sees nor changes. So it gets the program's CUDA_ variables before it starts, no others,
 * and files that they name by their Linux names. */
#include "nvcuda.h"

enum { NAME_SIZE = 128 };

static int is_path(const char *value)
{
    return value[0] && value[1] == ':' && (value[2] == '\\' || value[2] == '/');
}

static void set_variable(const char *entry) /* CUDA_A=b */
{
    char name[NAME_SIZE];
    int size = 0;
    while (size < NAME_SIZE - 1 && entry[size] != '=') name[size] = entry[size], size++;
    name[size] = 0;
    if (entry[size] != '=') return;
    const char *value = entry + size + 1;
    char *path = is_path(value) ? unix_path(value) : NULL;
    bridge.set_variable(name, path ? path : value);
    if (path) free_path(path);
}

static void copy_variables(void)
{
    char *all = GetEnvironmentStringsA();
    bridge.clear_variables("CUDA_");
    for (const char *entry = all; entry && *entry; entry += lstrlenA(entry) + 1)
        if (entry[0] == 'C' && entry[1] == 'U' && entry[2] == 'D' && entry[3] == 'A' &&
            entry[4] == '_')
            set_variable(entry);
    if (all) FreeEnvironmentStringsA(all);
}

/* The driver reads them once; whoever changes them while another thread is in there takes away what
 * it reads. (No lock is held meanwhile: a driver that crashes would never let go of it.) */
result init(unsigned flags)
{
    static SRWLOCK lock = SRWLOCK_INIT;
    static volatile LONG inside;
    static BOOL done;
    AcquireSRWLockExclusive(&lock);
    if (!done && !inside) copy_variables();
    InterlockedIncrement(&inside);
    ReleaseSRWLockExclusive(&lock);
    result error = ((result (*)(unsigned))replaced[INIT].bridged)(flags);
    if (!error) done = TRUE;
    InterlockedDecrement(&inside);
    return error;
}
