/* What launcher.c and winrshost.c share: start one process, wait, leave with its exit code.
 * No C run-time: an entry point and kernel32 only. */
#include <windows.h>

#define LINE_MAX 32768 /* the limit of CreateProcess, in characters */

static wchar_t line[LINE_MAX];

/* Append text to the line; the process ends with 126 when it does not fit. */
static wchar_t *append(wchar_t *end, const wchar_t *text)
{
    for (; *text; text++) {
        if (end == line + LINE_MAX - 1) ExitProcess(126);
        *end++ = *text;
    }
    *end = 0;
    return end;
}

static void run_and_exit(DWORD flags)
{
    STARTUPINFOW startup;
    PROCESS_INFORMATION process;
    DWORD code = 1;
    volatile char *bytes = (volatile char *)&startup; /* volatile: there is no memset to call */
    for (unsigned i = 0; i < sizeof startup; i++) bytes[i] = 0;
    startup.cb = sizeof startup;
    startup.dwFlags = STARTF_USESTDHANDLES; /* also where it gets a console of its own */
    startup.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
    startup.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    startup.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, flags, NULL, NULL, &startup, &process))
        ExitProcess(127);
    WaitForSingleObject(process.hProcess, INFINITE);
    GetExitCodeProcess(process.hProcess, &code);
    ExitProcess(code);
}
