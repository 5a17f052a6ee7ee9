/* The driver's functions called in loops, for bridge_figures.py: a DLL for Windows' Python and a
 * library for Linux' are made of this one file. Each loop ends at the first error and returns it. */
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef int version_function(int *);
typedef int launch_function(void *kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, void *stream, void **parameters, void **extra);
typedef int wait_function(void *stream);
typedef int host_function(void *stream, void (*function)(void *), void *data);

EXPORT int calls(version_function *version, int count)
{
    int value, error = 0;
    while (count-- && !error) error = version(&value);
    return error;
}

/* Waits after each `every` launches. */
EXPORT int launches(launch_function *launch, wait_function *wait, void *kernel, void *stream,
                    int count, int every)
{
    int error = 0;
    for (int done = 1; done <= count && !error; done++) {
        error = launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
        if (!error && done % every == 0) error = wait(stream);
    }
    return error;
}

static void called(void *data) { ++*(volatile int *)data; }

/* `heard` is counted up by the function that the driver calls. */
EXPORT int callbacks(host_function *enqueue, wait_function *wait, void *stream, int count, int *heard)
{
    int error = 0;
    while (count-- && !error) {
        error = enqueue(stream, called, heard);
        if (!error) error = wait(stream);
    }
    return error;
}
