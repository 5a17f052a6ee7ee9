/* msvcrt.lib stand-in: what a DLL linked with /MD takes from Microsoft's start-up library. */
#pragma comment(lib, "ucrt.lib")
#pragma comment(lib, "vcruntime.lib")
#pragma comment(lib, "kernel32.lib")

typedef int(__cdecl *c_initialiser)(void);
typedef void(__cdecl *cxx_initialiser)(void);

/* The linker sorts .CRT$X?? sections by name; initialisers land between these markers.
 * nvcc's registration of the embedded fat binary is one of them. */
#pragma section(".CRT$XIA", long, read)
#pragma section(".CRT$XIZ", long, read)
#pragma section(".CRT$XCA", long, read)
#pragma section(".CRT$XCZ", long, read)
__declspec(allocate(".CRT$XIA")) c_initialiser c_first[] = {0};
__declspec(allocate(".CRT$XIZ")) c_initialiser c_last[] = {0};
__declspec(allocate(".CRT$XCA")) cxx_initialiser cxx_first[] = {0};
__declspec(allocate(".CRT$XCZ")) cxx_initialiser cxx_last[] = {0};
#pragma comment(linker, "/merge:.CRT=.rdata")

__declspec(dllimport) void __stdcall GetSystemTimeAsFileTime(void *);
__declspec(dllimport) int _initterm_e(c_initialiser *, c_initialiser *);
__declspec(dllimport) void _initterm(cxx_initialiser *, cxx_initialiser *);
__declspec(dllimport) int _initialize_onexit_table(void *);
__declspec(dllimport) int _register_onexit_function(void *, int (*)(void));
__declspec(dllimport) int _execute_onexit_table(void *);

int _fltused = 0x9875; /* "this image uses floating point" */
unsigned long long __security_cookie = 0x00002B992DDFA232ull;
static void *at_exit[3];

/* cudart_static.lib wants it, and Wine 8 has none: memory of one node, as of any. */
__declspec(dllimport) void *__stdcall CreateFileMappingA(void *, void *, unsigned long,
                                                         unsigned long, unsigned long,
                                                         const char *);
static void *__stdcall CreateFileMappingNumaA(void *file, void *security, unsigned long protection,
                                              unsigned long high, unsigned long low,
                                              const char *name, unsigned long node)
{
    return CreateFileMappingA(file, security, protection, high, low, name);
}
void *const __imp_CreateFileMappingNumaA = CreateFileMappingNumaA;

int atexit(cxx_initialiser handler)
{
    return _register_onexit_function(at_exit, (int (*)(void))handler);
}

__attribute__((weak)) int __stdcall DllMain(void *module, unsigned long reason, void *reserved)
{
    return 1;
}

__declspec(safebuffers) int __stdcall _DllMainCRTStartup(void *module, unsigned long reason,
                                                         void *reserved)
{
    enum { DETACH = 0, ATTACH = 1 };
    int result;
    if (reason == ATTACH) {
        unsigned long long now;
        GetSystemTimeAsFileTime(&now);
        __security_cookie = ((now ^ (unsigned long long)&now) & 0x0000FFFFFFFFFFFFull) | 1;
        _initialize_onexit_table(at_exit);
        if (_initterm_e(c_first, c_last)) return 0;
        _initterm(cxx_first, cxx_last);
    }
    result = DllMain(module, reason, reserved);
    if (reason == DETACH) _execute_onexit_table(at_exit);
    return result;
}

/* Called by functions compiled with /GS; the objects in cudart.lib are. */
__declspec(safebuffers) void __security_check_cookie(unsigned long long cookie)
{
    if (cookie != __security_cookie) __builtin_trap();
}

int __GSHandlerCheck(void *record, void *frame, void *context, void *dispatch)
{
    return 1; /* ExceptionContinueSearch */
}
