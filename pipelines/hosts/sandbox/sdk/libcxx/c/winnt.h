// WCHAR is wchar_t, as in Windows' own, and clang has _InterlockedCompareExchange128 built in, which
// Wine's header would define once more.
#pragma once
#ifdef __cplusplus
#define WINE_UNICODE_NATIVE
#endif
#include <intrin.h>
#pragma push_macro("__clang__")
#undef __clang__
#include_next <winnt.h>
#pragma pop_macro("__clang__")
