// Functions of ucrtbase.dll that Wine's <stdlib.h> lacks.
#pragma once
#include_next <stdlib.h>
#include <ctype.h> // MB_CUR_MAX
#include <malloc.h> // alloca, which Microsoft's <memory> brings; nanobind has it from there
#ifdef __cplusplus
extern "C" {
#endif
double __cdecl _strtod_l(const char *, char **, _locale_t);
float __cdecl _strtof_l(const char *, char **, _locale_t);
int *__cdecl __sys_nerr(void);
#ifdef __cplusplus
}
#endif
#ifndef _sys_nerr
#define _sys_nerr (*__sys_nerr())
#endif
