// What CCCL and CUTLASS call of MSVC's intrinsics. clang has definitions in headers that cudafe++
// cannot read, and knows these by name when it compiles what cudafe++ has written.
#pragma once
extern "C" {
unsigned char _BitScanForward(unsigned long *, unsigned long);
unsigned char _BitScanReverse(unsigned long *, unsigned long);
unsigned char _BitScanForward64(unsigned long *, unsigned long long);
unsigned char _BitScanReverse64(unsigned long *, unsigned long long);
unsigned __popcnt(unsigned);
unsigned long long __popcnt64(unsigned long long);
unsigned short _byteswap_ushort(unsigned short);
unsigned long _byteswap_ulong(unsigned long);
unsigned long long _byteswap_uint64(unsigned long long);
unsigned long long _umul128(unsigned long long, unsigned long long, unsigned long long *);
unsigned long long __umulh(unsigned long long, unsigned long long);
unsigned long long _udiv128(
    unsigned long long, unsigned long long, unsigned long long, unsigned long long *);
void __cpuid(int *, int);
void _ReadWriteBarrier(void);
void __faststorefence(void);
int __iso_volatile_load32(const volatile int *);
long long __iso_volatile_load64(const volatile long long *);
void __iso_volatile_store32(volatile int *, int);
void __iso_volatile_store64(volatile long long *, long long);
#define WCW_INTERLOCKED(name)                                                                    \
    char _Interlocked##name##8(char volatile *, char);                                           \
    short _Interlocked##name##16(short volatile *, short);                                       \
    long _Interlocked##name(long volatile *, long);                                              \
    long long _Interlocked##name##64(long long volatile *, long long);
WCW_INTERLOCKED(Exchange) WCW_INTERLOCKED(ExchangeAdd) WCW_INTERLOCKED(And) WCW_INTERLOCKED(Or)
WCW_INTERLOCKED(Xor)
#undef WCW_INTERLOCKED
char _InterlockedCompareExchange8(char volatile *, char, char);
short _InterlockedCompareExchange16(short volatile *, short, short);
long _InterlockedCompareExchange(long volatile *, long, long);
long long _InterlockedCompareExchange64(long long volatile *, long long, long long);
}
