// What Wine's <math.h> lacks of the standard's, and its macros as the functions that libc++ expects
// of Microsoft's; fpclassify and signbit are libc++'s own.
// long double is double in Microsoft's ABI, so that its functions are those of double.
#pragma once
#define atan2l wine_atan2l // hands its arguments on in the other order
#include_next <math.h>
#undef atan2l
#ifdef __cplusplus

#undef fpclassify
#undef isfinite
#undef isinf
#undef isnan
#undef isnormal
#undef signbit
#undef isgreater
#undef isgreaterequal
#undef isless
#undef islessequal
#undef islessgreater
#undef isunordered
#define _Classify(T)                                                                             \
    inline bool isfinite(T x) noexcept { return __builtin_isfinite(x); }                         \
    inline bool isinf(T x) noexcept { return __builtin_isinf(x); }                               \
    inline bool isnan(T x) noexcept { return __builtin_isnan(x); }                               \
    inline bool isnormal(T x) noexcept { return __builtin_isnormal(x); }                         \
    inline bool isgreater(T x, T y) noexcept { return __builtin_isgreater(x, y); }               \
    inline bool isgreaterequal(T x, T y) noexcept { return __builtin_isgreaterequal(x, y); }     \
    inline bool isless(T x, T y) noexcept { return __builtin_isless(x, y); }                     \
    inline bool islessequal(T x, T y) noexcept { return __builtin_islessequal(x, y); }           \
    inline bool islessgreater(T x, T y) noexcept { return __builtin_islessgreater(x, y); }       \
    inline bool isunordered(T x, T y) noexcept { return __builtin_isunordered(x, y); }
_Classify(float) _Classify(double) _Classify(long double)
#undef _Classify

extern "C" {
double __cdecl nan(const char *);
float __cdecl nanf(const char *);
double __cdecl erfc(double);
float __cdecl erfcf(float);
double __cdecl fma(double, double, double);
float __cdecl fmaf(float, float, float);
double __cdecl nexttoward(double, long double);
float __cdecl nexttowardf(float, long double);

#define _Long1(R, name) inline R name##l(long double x) noexcept { return name((double)x); }
#define _Long2(R, name, T)                                                                       \
    inline R name##l(long double x, T y) noexcept { return name((double)x, y); }
_Long1(long double, acos) _Long1(long double, acosh) _Long1(long double, asin)
_Long1(long double, asinh) _Long1(long double, atan) _Long1(long double, atanh)
_Long1(long double, cbrt) _Long1(long double, ceil) _Long1(long double, cos)
_Long1(long double, cosh) _Long1(long double, erf) _Long1(long double, erfc)
_Long1(long double, exp) _Long1(long double, exp2) _Long1(long double, expm1)
_Long1(long double, fabs) _Long1(long double, floor) _Long1(long double, lgamma)
_Long1(long double, log) _Long1(long double, log10) _Long1(long double, log1p)
_Long1(long double, log2) _Long1(long double, logb) _Long1(long double, nearbyint)
_Long1(long double, rint) _Long1(long double, round) _Long1(long double, sin)
_Long1(long double, sinh) _Long1(long double, sqrt) _Long1(long double, tan)
_Long1(long double, tanh) _Long1(long double, tgamma) _Long1(long double, trunc)
_Long1(int, ilogb) _Long1(long, lrint) _Long1(long, lround) _Long1(long long, llrint)
_Long1(long long, llround)
_Long2(long double, atan2, long double) _Long2(long double, copysign, long double)
_Long2(long double, fdim, long double) _Long2(long double, fmax, long double)
_Long2(long double, fmin, long double) _Long2(long double, fmod, long double)
_Long2(long double, hypot, long double) _Long2(long double, nextafter, long double)
_Long2(long double, nexttoward, long double) _Long2(long double, pow, long double)
_Long2(long double, remainder, long double) _Long2(long double, ldexp, int)
_Long2(long double, scalbln, long) _Long2(long double, scalbn, int)
_Long2(long double, frexp, int *)
inline long double fmal(long double x, long double y, long double z) noexcept
{
    return fma((double)x, (double)y, (double)z);
}
inline long double modfl(long double x, long double *whole) noexcept
{
    return modf((double)x, (double *)whole);
}
inline long double remquol(long double x, long double y, int *quotient) noexcept
{
    return remquo((double)x, (double)y, quotient);
}
inline long double nanl(const char *text) noexcept { return nan(text); }
#undef _Long1
#undef _Long2
}
#endif
