// What Wine's <stdio.h> lacks of the standard's.
#pragma once
#include_next <stdio.h>
#ifdef __cplusplus
extern "C" {
inline int vfscanf(FILE *file, const char *format, va_list values)
{
    return __stdio_common_vfscanf(_CRT_INTERNAL_LOCAL_SCANF_OPTIONS, file, format, 0, values);
}
inline int vscanf(const char *format, va_list values) { return vfscanf(stdin, format, values); }
inline int vsscanf(const char *text, const char *format, va_list values)
{
    return __stdio_common_vsscanf(_CRT_INTERNAL_LOCAL_SCANF_OPTIONS, text, (size_t)-1, format, 0,
                                  values);
}
}
#endif
