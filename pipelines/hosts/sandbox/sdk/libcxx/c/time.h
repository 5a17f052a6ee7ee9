// A function of ucrtbase.dll that Wine's <time.h> lacks.
#pragma once
#include_next <time.h>
#ifdef __cplusplus
extern "C"
#endif
size_t __cdecl _strftime_l(char *, size_t, const char *, const struct tm *, _locale_t);
