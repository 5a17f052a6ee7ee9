// The C library's, without what libc++ adds: CUDA declares the overloads of all these itself.
#pragma once
#define _LIBCPP_MATH_H
#include "../../../../../Windows Kits/10/Include/10.0.0.0/ucrt/math.h"
