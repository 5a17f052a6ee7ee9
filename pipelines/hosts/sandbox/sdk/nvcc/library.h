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
#define _LIBCPP_HAS_GCC_ATOMIC_IMP
#undef __has_feature
#define __has_feature(name) WCW_FEATURE_##name
#undef __has_extension
#define __has_extension(name) WCW_FEATURE_##name
#define WCW_FEATURE_cxx_exceptions 1
#define WCW_FEATURE_cxx_rtti 1
#undef __has_attribute
#define __has_attribute(name) 0
#undef __has_declspec_attribute
#define __has_declspec_attribute(name) 0
#undef __has_warning
#define __has_warning(name) 0
#undef __is_identifier
#define __is_identifier(name) 1

#include "intrin.h"
extern "C" {
/* libc++ names these of the C library where they are; there they are not. */
void vwscanf(void);
void vswscanf(void);
void vfwscanf(void);
void fwide(void);
void quick_exit(int);
void at_quick_exit(void);
void aligned_alloc(void);
void timespec_get(void);
void feraiseexcept(void);
void feupdateenv(void);
void imaxabs(void);
void imaxdiv(void);
void wcstoimax(void);
void wcstoumax(void);
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
/* libc++'s <atomic> by the built-in functions of GCC, and those by Microsoft's. Each of the latter
 * is a full barrier; a processor of this kind reads and writes in order. */
template <unsigned> struct word;
#define WCW_WORD(size, integer, suffix)                                                          \
    template <> struct word<size> {                                                              \
        typedef integer type;                                                                    \
        static type put(volatile void *place, type value)                                        \
        {                                                                                        \
            return _InterlockedExchange##suffix((volatile type *)place, value);                  \
        }                                                                                        \
        static type swap(volatile void *place, type value, type expected)                        \
        {                                                                                        \
            return _InterlockedCompareExchange##suffix((volatile type *)place, value, expected); \
        }                                                                                        \
    };
WCW_WORD(1, char, 8) WCW_WORD(2, short, 16) WCW_WORD(4, long, ) WCW_WORD(8, long long, 64)
#undef WCW_WORD
template <class T> struct bits {
    typedef word<sizeof(T)> of;
    typedef typename of::type type;
    static type get(const volatile T *place)
    {
        type value = *(const volatile type *)place;
        _ReadWriteBarrier();
        return value;
    }
    static void copy(void *to, type value)
    {
        for (unsigned i = 0; i < sizeof value; i++)
            ((volatile char *)to)[i] = ((char *)&value)[i];
    }
};
}
/* Their names are no macros with arguments: libc++ has members that are called so. */
template <class T> inline T wcw_atomic_load_n(const volatile T *place, int)
{
    return (T)wcw::bits<T>::get(place);
}
template <class T> inline void wcw_atomic_load(const volatile T *place, T *to, int)
{
    wcw::bits<T>::copy(to, wcw::bits<T>::get(place));
}
template <class T> inline void wcw_atomic_store(volatile T *place, T *value, int)
{
    wcw::bits<T>::of::put(place, wcw::bits<T>::get(value));
}
template <class T> inline void wcw_atomic_exchange(volatile T *place, T *value, T *to, int)
{
    wcw::bits<T>::copy(to, wcw::bits<T>::of::put(place, wcw::bits<T>::get(value)));
}
template <class T>
inline bool wcw_atomic_compare_exchange(volatile T *place, T *expected, T *value, bool, int, int)
{
    typename wcw::bits<T>::type before = wcw::bits<T>::get(expected);
    typename wcw::bits<T>::type found =
        wcw::bits<T>::of::swap(place, wcw::bits<T>::get(value), before);
    if (found != before) wcw::bits<T>::copy(expected, found);
    return found == before;
}
#define WCW_FETCH(name, sign)                                                                    \
    template <class T, class V> inline T wcw_atomic_fetch_##name(volatile T *place, V value, int)\
    {                                                                                            \
        typedef typename wcw::bits<T>::type type;                                                \
        type before = wcw::bits<T>::get(place);                                                  \
        for (;;) {                                                                               \
            type found = wcw::bits<T>::of::swap(place, (type)(before sign (type)value), before); \
            if (found == before) return (T)before;                                               \
            before = found;                                                                      \
        }                                                                                        \
    }
WCW_FETCH(add, +) WCW_FETCH(sub, -) WCW_FETCH(and, &) WCW_FETCH(or, |) WCW_FETCH(xor, ^)
#undef WCW_FETCH
template <class T, class V> inline T wcw_atomic_add_fetch(volatile T *place, V value, int order)
{
    return wcw_atomic_fetch_add(place, value, order) + value;
}
inline void wcw_atomic_thread_fence(int)
{
    long place = 0;
    _InterlockedExchange(&place, 1);
}
inline void wcw_atomic_signal_fence(int) { _ReadWriteBarrier(); }
#define __atomic_load_n wcw_atomic_load_n
#define __atomic_load wcw_atomic_load
#define __atomic_store wcw_atomic_store
#define __atomic_exchange wcw_atomic_exchange
#define __atomic_compare_exchange wcw_atomic_compare_exchange
#define __atomic_fetch_add wcw_atomic_fetch_add
#define __atomic_fetch_sub wcw_atomic_fetch_sub
#define __atomic_fetch_and wcw_atomic_fetch_and
#define __atomic_fetch_or wcw_atomic_fetch_or
#define __atomic_fetch_xor wcw_atomic_fetch_xor
#define __atomic_add_fetch wcw_atomic_add_fetch
#define __atomic_thread_fence wcw_atomic_thread_fence
#define __atomic_signal_fence wcw_atomic_signal_fence
#define __atomic_always_lock_free(size, place) ((size) <= 8)
#define __atomic_is_lock_free(size, place) ((size) <= 8)
/* One word: CCCL hands on what this becomes to __has_builtin. */
template <unsigned long long N, class... All>
using wcw_nth_t = typename wcw::nth<N, All...>::type;
#define __type_pack_element wcw_nth_t
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
#define __builtin_fabsf(x) ((x) < 0 ? -(x) : (x))
#define __builtin_fabs(x) ((x) < 0 ? -(x) : (x))
#define __builtin_fabsl(x) ((x) < 0 ? -(x) : (x))
#define __builtin_memmove memmove
#define __builtin_memcpy memcpy
#define __builtin_constant_p(x) 0
#endif
