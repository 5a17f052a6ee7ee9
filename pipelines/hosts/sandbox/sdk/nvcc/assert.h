// By the function that CUDA has for device code as well: crt/common_functions.h. As in the standard,
// NDEBUG counts where it is included.
#undef assert
#ifdef NDEBUG
#define assert(x) ((void)0)
#else
extern "C" void __cdecl _wassert(const wchar_t *, const wchar_t *, unsigned);
#define assert(x) ((void)(!!(x) || (_wassert(L"" #x, L"" __FILE__, __LINE__), 0)))
#endif
