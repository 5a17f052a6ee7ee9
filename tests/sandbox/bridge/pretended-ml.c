/* A stand-in for libnvidia-ml.so.1: the GPU of pretended.c, as nvidia-smi would count it. */
typedef unsigned long size_t;

extern char *strncpy(char *, const char *, size_t);
extern int strcmp(const char *, const char *);

#define API __attribute__((visibility("default")))

API int nvmlInit_v2(void) { return 0; }
API int nvmlShutdown(void) { return 0; }
API int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    return strncpy(text, "580.1", size), 0;
}
API int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, 0; }
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    return *handle = (void *)8, index ? 2 : 0;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **handle)
{
    return *handle = (void *)8, strcmp(place, "0000:01:00.0") ? 6 : 0;
}
API int nvmlDeviceGetIndex(void *handle, unsigned *index) { return *index = 0, handle ? 0 : 2; }
API int nvmlDeviceGetName(void *handle, char *name, unsigned size)
{
    return strncpy(name, "NVIDIA Pretended", size), handle ? 0 : 2;
}
API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    return *major = 8, *minor = 9, handle ? 0 : 2;
}
API int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory)
{
    return memory[0] = 24ull << 30, handle ? 0 : 2;
}
API int nvmlDeviceGetDriverModel_v2(void *handle, int *current, int *pending)
{
    return (void)handle, (void)current, (void)pending, 3; /* not supported, as on Linux */
}
