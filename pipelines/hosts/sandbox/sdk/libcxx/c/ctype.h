// Functions of ucrtbase.dll that Wine's <ctype.h> lacks.
#pragma once
#include_next <ctype.h>
#ifdef __cplusplus
extern "C" {
#endif
const unsigned short *__cdecl __pctype_func(void);
int __cdecl _islower_l(int, _locale_t);
int __cdecl _isupper_l(int, _locale_t);
int __cdecl _isdigit_l(int, _locale_t);
int __cdecl _isxdigit_l(int, _locale_t);
int __cdecl _iswcntrl_l(wint_t, _locale_t);
int __cdecl _iswxdigit_l(wint_t, _locale_t);
int __cdecl ___mb_cur_max_func(void);
int __cdecl ___mb_cur_max_l_func(_locale_t);
#ifdef __cplusplus
}
#endif
#ifndef MB_CUR_MAX
#define MB_CUR_MAX ___mb_cur_max_func()
#endif
