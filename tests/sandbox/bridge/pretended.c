/* A stand-in for libcuda.so.1 with one GPU, as much of it as the self-test and the suite's facts ask:
 * it "compiles" one kernel, the self-test's, and computes what that one would. No headers of Linux: the
 * sandbox's own compiler makes it. -DWRONG: the kernel is wrong, but only under Wine. A copy from address 0
 * loses the context, as reading what is not there does on a GPU. */
typedef unsigned long long u64;
typedef unsigned long size_t;
typedef int CUresult;

extern char *strncpy(char *, const char *, size_t), *strstr(const char *, const char *);
extern char *getenv(const char *);
extern int strcmp(const char *, const char *);
extern void *malloc(size_t), *memcpy(void *, const void *, size_t);
extern int pthread_create(u64 *, void *, void *(*)(void *), void *), pthread_join(u64, void **);

#define API __attribute__((visibility("default")))
#define PLACE "0000:01:00.0"

enum {
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    ILLEGAL_ADDRESS = 700
};

static int begun, lost;
API CUresult cuInit(unsigned flags) { return begun = !flags, flags ? INVALID_VALUE : 0; }
API CUresult cuDriverGetVersion(int *version) { return *version = 13000, 0; }
API CUresult cuDeviceGetCount(int *count) { return *count = 1, 0; }
API CUresult cuDeviceGet(int *device, int index)
{
    return *device = index, index ? INVALID_DEVICE : 0;
}
API CUresult cuDeviceGetByPCIBusId(int *device, const char *place)
{
    return *device = 0, strcmp(place, PLACE) ? INVALID_DEVICE : 0;
}
API CUresult cuDeviceGetPCIBusId(char *place, int size, int device)
{
    return (void)device, strncpy(place, PLACE, size), 0;
}
API CUresult cuDeviceGetName(char *name, int size, int device)
{
    return (void)device, strncpy(name, "NVIDIA Pretended", size), 0;
}
API CUresult cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    return (void)device, *bytes = (size_t)24 << 30, 0;
}
API CUresult cuDeviceGetUuid(unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++) uuid[i] = i + device;
    return 0;
}
API CUresult cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    return *value = attribute == 75 ? 8 : attribute == 76 ? 9 : attribute == 16 ? 42 : 0, 0;
}
API CUresult cuModuleGetLoadingMode(int *mode) { return *mode = 2, 0; }
API CUresult cuGetErrorName(int error, const char **text)
{
    return *text = error == INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE" : "?", 0;
}
API CUresult cuGetErrorString(int error, const char **text)
{
    return *text = error == INVALID_DEVICE ? "invalid device ordinal" : "?", 0;
}

static int active; /* how often it is held */
static __thread void *current, *below;
API CUresult cuDevicePrimaryCtxRetain(void **context, int device)
{
    return *context = &active, active++, device;
}
API CUresult cuDevicePrimaryCtxRelease_v2(int device) { return active--, device; }
API CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is)
{
    return *flags = 0, *is = active > 0, device;
}
API CUresult cuCtxGetCurrent(void **context)
{
    return *context = current, begun ? 0 : NOT_INITIALIZED;
}
API CUresult cuCtxSetCurrent(void *context) { return current = context, 0; }
API CUresult cuCtxPushCurrent_v2(void *context) { return below = current, current = context, 0; }
API CUresult cuCtxPopCurrent_v2(void **context) { return *context = current, current = below, 0; }
API CUresult cuCtxSynchronize(void)
{
    return lost ? ILLEGAL_ADDRESS : current ? 0 : INVALID_CONTEXT;
}
API CUresult cuModuleLoadData(void **module, const char *text)
{
    return *module = (void *)32, strstr(text, ".entry fill(") ? 0 : INVALID_PTX;
}
API CUresult cuModuleGetFunction(void **function, void *module, const char *name)
{
    return *function = module, strcmp(name, "fill") ? INVALID_VALUE : 0;
}
API CUresult cuMemAlloc_v2(u64 *memory, size_t bytes) { return *memory = (u64)malloc(bytes), 0; }
API CUresult cuMemFree_v2(u64 memory) { return memory ? 0 : INVALID_VALUE; }
API CUresult cuMemcpyDtoH_v2(void *to, u64 from, size_t bytes)
{
    lost |= !from;
    return lost ? ILLEGAL_ADDRESS : (memcpy(to, (void *)from, bytes), 0);
}

#ifdef WRONG
#define OFF (getenv("WINEPREFIX") != 0) /* nobody else has that */
#else
#define OFF 0
#endif

API CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, void *stream, void **given,
                            void **extra)
{
    unsigned *out = *(unsigned **)given[0], factor = *(unsigned *)given[1];
    float scale = *(float *)given[2];
    unsigned count = *(unsigned *)given[3];
    if (!function || gy * gz * by * bz != 1 || shared || stream || extra) return INVALID_VALUE;
    for (unsigned i = 0; i < gx * bx && i < count; i++)
        out[i] = i * factor + (unsigned)(i * scale) + OFF;
    return 0;
}

struct call {
    void (*function)(void *);
    void *data;
};
static struct call pending;
static void *call(void *given)
{
    struct call *one = given;
    one->function(one->data);
    return 0;
}
API CUresult cuStreamCreate(void **stream, unsigned flags)
{
    return *stream = (void *)64, flags == 1 ? 0 : INVALID_VALUE;
}
API CUresult cuStreamDestroy_v2(void *stream) { return stream ? 0 : INVALID_VALUE; }
API CUresult cuLaunchHostFunc(void *stream, void (*function)(void *), void *data)
{
    return pending = (struct call){function, data}, stream ? 0 : INVALID_VALUE;
}
API CUresult cuStreamSynchronize(void *stream) /* the driver's own thread calls back */
{
    u64 thread;
    if (!stream || pthread_create(&thread, 0, call, &pending)) return INVALID_VALUE;
    return pthread_join(thread, 0);
}
API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function,
                                              size_t (*size)(int), size_t dynamic, int limit)
{
    if (!function || dynamic || limit) return INVALID_VALUE;
    *grid = 84;
    for (int n = 32; n <= 1024; n += 32)
        if (size(n) <= 8192) *block = n;
    return 0;
}
