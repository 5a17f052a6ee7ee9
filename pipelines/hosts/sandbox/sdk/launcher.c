/* cl.exe, link.exe and lib.exe: hand the untouched rest of the command line to zig, so that
 * quoting, response files and the variables CL and LINK work as with Microsoft's tools. */
#include "process.h"

#if defined(TOOL_CL)
/* nvcc and CUDA's headers must take this for MSVC 19.40, not for clang. */
#define TOOL                                                                                     \
    L"clang --driver-mode=cl -fms-compatibility-version=19.40 -U__clang__ -U__clang_major__ "     \
    L"-U__clang_minor__ -U__clang_patchlevel__ -U__clang_version__ -Wno-unused-command-line-argument"
static const char banner[] =
    "Microsoft (R) C/C++ Optimizing Compiler Version 19.40.33811 for x64\r\n"
    "(the sandbox's stand-in: clang in MSVC mode, not Microsoft's compiler)\r\n";
#elif defined(TOOL_LINK)
#define TOOL L"lld-link"
#elif defined(TOOL_LIB)
#define TOOL L"lib"
#endif

void start(void)
{
    const wchar_t *rest = GetCommandLineW();
    for (int quoted = 0; *rest && (quoted || (*rest != ' ' && *rest != '\t')); rest++)
        if (*rest == '"') quoted = !quoted;
    while (*rest == ' ' || *rest == '\t') rest++;
#ifdef TOOL_CL
    if (!*rest) { /* a bare "cl" prints its banner: how setuptools and nvcc ask for the version */
        DWORD written;
        WriteFile(GetStdHandle(STD_ERROR_HANDLE), banner, sizeof banner - 1, &written, NULL);
        ExitProcess(0);
    }
#endif
    append(append(line, L"C:\\zig\\zig.exe " TOOL L" "), rest);
    run_and_exit();
}
