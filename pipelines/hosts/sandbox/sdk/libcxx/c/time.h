// Wine's <time.h> lacks what C11 has added, and a function of ucrtbase.dll.
#pragma once
#include_next <time.h>
struct timespec {
    time_t tv_sec;
    long tv_nsec;
};
#ifdef __cplusplus
extern "C"
#endif
size_t __cdecl _strftime_l(char *, size_t, const char *, const struct tm *, _locale_t);
