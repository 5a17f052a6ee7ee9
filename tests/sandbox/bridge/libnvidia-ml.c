/* A stand-in for libnvidia-ml.so.1. */
#define API __attribute__((visibility("default")))
extern int snprintf(char *, unsigned long, const char *, ...);

API int nvmlInit_v2(void) { return 0; }
API int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, 0; }
API int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    return snprintf(text, size, "580.0") < (int)size ? 0 : 7;
}
API int nvmlDeviceGetLastBBXFlushTime(void *device, unsigned long long *time,
                                      unsigned long *duration)
{
    return *time = 1ull << 40, *duration = device ? 1ul << 40 : 77, 0;
}
API int nvmlDeviceGetCpuAffinity(void *device, unsigned size, unsigned long *set)
{
    return (void)device, (void)size, *set = 1, 0;
}
