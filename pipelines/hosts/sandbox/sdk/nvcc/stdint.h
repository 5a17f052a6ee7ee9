// Wine's leaves a request for <stddef.h> behind, after which libc++ takes <wchar.h> for one as well.
#pragma once
#include_next <stdint.h>
#undef __need_wint_t
#undef __need_wchar_t
