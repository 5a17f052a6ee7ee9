// Wine's makes `inline` a macro, of which libc++'s `inline constexpr` variables are an error.
#pragma once
#include_next <windef.h>
#undef inline
