/* A stand-in for libnvidia-ml.so.1. */
#define API __attribute__((visibility("default")))
extern int snprintf(char *, unsigned long, const char *, ...);

API int nvmlInit_v2(void) { return 0; }
API int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, 0; }
API int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    return snprintf(text, size, "580.0") < (int)size ? 0 : 7;
}
