// What Wine's <wchar.h> lacks of the standard's.
#pragma once
#include_next <wchar.h>
#ifdef __cplusplus
static_assert(sizeof(mbstate_t) == 8, "not as ucrtbase.dll has it");
extern "C" {
#endif
float __cdecl wcstof(const wchar_t *, wchar_t **);
errno_t __cdecl wcrtomb_s(size_t *, char *, size_t, wchar_t, mbstate_t *);
#ifdef __cplusplus
inline int mbsinit(const mbstate_t *state) { return !state || !state->_Wchar; }
}
#endif
