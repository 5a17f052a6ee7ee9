/* nvcudart_hybrid64.dll: the part of CUDA 13's run-time that Windows' display driver brings and
 * Linux' does not. All of it is NVIDIA's own cudart_static.lib, linked as a DLL, which then exports
 * the entry point; here is only what a linker without Visual Studio lacks. */
#include <windows.h>

/* Thread-local variables, as Microsoft's tlssup.c declares them to the loader. */
#pragma section(".tls", long, read, write)
#pragma section(".tls$ZZZ", long, read, write)
__declspec(allocate(".tls")) char _tls_start = 0;
__declspec(allocate(".tls$ZZZ")) char _tls_end = 0;
ULONG _tls_index = 0;
static PIMAGE_TLS_CALLBACK no_callbacks[1];
const IMAGE_TLS_DIRECTORY64 _tls_used = {(ULONGLONG)&_tls_start,
                                         (ULONGLONG)&_tls_end,
                                         (ULONGLONG)&_tls_index,
                                         (ULONGLONG)no_callbacks,
                                         0,
                                         0};
#pragma comment(linker, "/include:_tls_used")
