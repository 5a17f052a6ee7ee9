// In C++ char16_t and char32_t are types of the language, which Wine's <uchar.h> does not know.
#pragma once
#include <wchar.h>
