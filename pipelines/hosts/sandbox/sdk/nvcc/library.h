/* Before everything that nvcc has the stand-in preprocess where libc++ is used: what cudafe++ does
 * not know of clang. It reads C++ as Microsoft's compiler does, but for the traits below, which
 * libc++ takes from clang; what clang answers about itself must not reach it. NVIDIA's headers take
 * libc++ with _ALLOW_UNSUPPORTED_LIBCPP (crt/host_defines.h). */
#if defined(__CUDACC__) && defined(__cplusplus)
#pragma once
#define _ALLOW_UNSUPPORTED_LIBCPP
#define _LIBCPP_REMOVE_TRANSITIVE_INCLUDES
#define _LIBCPP_DISABLE_DEPRECATION_WARNINGS
/* An error in a system's header ends cudafe++ without a word. */
#define _LIBCPP_HAS_NO_PRAGMA_SYSTEM_HEADER
#define __attribute__(x)
/* __has_builtin(__is_same) becomes WCW_HAS___is_same: nothing, but for these. */
#undef __has_builtin
#define __has_builtin(name) WCW_HAS_##name
#define WCW_HAS___remove_reference_t 1
#define WCW_HAS___make_integer_seq 1
#define WCW_HAS___is_trivially_destructible 1
#define WCW_HAS___atomic_load_n 1
#define WCW_HAS___atomic_add_fetch 1
#undef __has_feature
#define __has_feature(name) WCW_FEATURE_##name
#undef __has_extension
#define __has_extension(name) WCW_FEATURE_##name
#define WCW_FEATURE_cxx_exceptions 1
#define WCW_FEATURE_cxx_rtti 1
#undef __has_attribute
#define __has_attribute(name) WCW_ATTRIBUTE_##name
#undef __has_declspec_attribute
#define __has_declspec_attribute(name) 0
#undef __has_warning
#define __has_warning(name) 0
#undef __is_identifier
#define __is_identifier(name) 1
/* Wine's stdarg.h has these for clang and GCC alone. */
#define _crt_va_start(list, last) __va_start(&list, last)
#define _crt_va_end(list) ((void)0)

extern "C" {
void __cdecl __va_start(char **, ...);
long long _InterlockedExchangeAdd64(long long volatile *, long long);
long _InterlockedExchangeAdd(long volatile *, long);
typedef struct {
    long long integer;
    double number;
} max_align_t;
/* libc++ names these of the C library where they are; there they are not. */
void vwscanf(void);
void vswscanf(void);
void vfwscanf(void);
void fwide(void);
void quick_exit(int);
void at_quick_exit(void);
void aligned_alloc(void);
void timespec_get(void);
}

namespace wcw {
template <class A, class B> struct same { static constexpr bool value = false; };
template <class A> struct same<A, A> { static constexpr bool value = true; };
template <class A> struct reference { static constexpr bool value = false; };
template <class A> struct reference<A &> { static constexpr bool value = true; };
template <class A> struct reference<A &&> { static constexpr bool value = true; };
template <class A> struct member { static constexpr bool value = false, function = false; };
template <class T, class C> struct member<T C::*> {
    static constexpr bool value = true, function = __is_function(T);
};
template <unsigned long long N, class T, class... Rest> struct nth {
    typedef typename nth<N - 1, Rest...>::type type;
};
template <class T, class... Rest> struct nth<0, T, Rest...> { typedef T type; };
template <unsigned long long N, class... All> using nth_t = typename nth<N, All...>::type;
template <class T> inline T load(const T *place) { return *(const volatile T *)place; }
template <class T, class V> inline T add(T *place, V value)
{
    if (sizeof(T) == 8)
        return (T)(_InterlockedExchangeAdd64((long long volatile *)place, (long long)value) + value);
    return (T)(_InterlockedExchangeAdd((long volatile *)place, (long)value) + value);
}
}
#define __type_pack_element ::wcw::nth_t
#define __is_same(...) (::wcw::same<__VA_ARGS__>::value)
#define __is_convertible(...) __is_convertible_to(__VA_ARGS__)
#define __is_reference(...) (::wcw::reference<__VA_ARGS__>::value)
#define __is_member_pointer(...) (::wcw::member<__remove_cv(__VA_ARGS__)>::value)
#define __is_member_function_pointer(...) (::wcw::member<__remove_cv(__VA_ARGS__)>::function)
#define __is_member_object_pointer(...) \
    (__is_member_pointer(__VA_ARGS__) && !__is_member_function_pointer(__VA_ARGS__))
#define __is_object(...)                                                    \
    (!__is_function(__VA_ARGS__) && !__is_reference(__VA_ARGS__) &&         \
     !__is_same(__remove_cv(__VA_ARGS__), void))
#define __atomic_load_n(place, order) (::wcw::load(place))
#define __atomic_add_fetch(place, value, order) (::wcw::add(place, value))
#define __builtin_fabsf(x) ((x) < 0 ? -(x) : (x))
#define __builtin_fabs(x) ((x) < 0 ? -(x) : (x))
#define __builtin_fabsl(x) ((x) < 0 ? -(x) : (x))
#define __builtin_memmove memmove
#define __builtin_memcpy memcpy
#define __builtin_constant_p(x) 0
#endif
