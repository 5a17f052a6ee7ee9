/* winrshost.exe: start the command line that a WinRS client sent, exactly as it was sent.
 *
 * It comes in a variable, because an argument list of Linux becomes a Windows command line by
 * Wine's quoting, which is not what the client wrote. WSMAN_SKIP_CMD tells whether cmd.exe is
 * left out, as the client's option WINRS_SKIP_CMD_SHELL asks. WSMAN_CONSOLE asks for a console
 * without a window, as WinRM's commands have: without one PowerShell prints nothing and leaves
 * with 0. It takes Wine a tenth of a second, so only sandboxes with PowerShell have it.
 *
 * As in WinRM's own, everything that is started is in a job object, which ends with this process;
 * what asks for CREATE_BREAKAWAY_FROM_JOB is not. */
#include "process.h"

static wchar_t sent[LINE_MAX];

static void confine(void)
{
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits;
    HANDLE job = CreateJobObjectW(NULL, NULL); /* never closed: it is to live as long as we do */
    volatile char *bytes = (volatile char *)&limits;
    for (unsigned i = 0; i < sizeof limits; i++) bytes[i] = 0;
    limits.BasicLimitInformation.LimitFlags =
        JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_BREAKAWAY_OK;
    if (!SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits)
        || !AssignProcessToJobObject(job, GetCurrentProcess()))
        ExitProcess(125);
}

void start(void)
{
    confine();
    wchar_t skip[2];
    DWORD length = GetEnvironmentVariableW(L"WSMAN_COMMAND_LINE", sent, LINE_MAX);
    if (!length || length >= LINE_MAX) ExitProcess(126);
    if (GetEnvironmentVariableW(L"WSMAN_SKIP_CMD", skip, 2))
        append(line, sent);
    else
        append(append(line, L"C:\\windows\\system32\\cmd.exe /c "), sent);
    SetEnvironmentVariableW(L"WSMAN_COMMAND_LINE", NULL);
    SetEnvironmentVariableW(L"WSMAN_SKIP_CMD", NULL);
    DWORD flags = GetEnvironmentVariableW(L"WSMAN_CONSOLE", skip, 2) ? CREATE_NO_WINDOW : 0;
    SetEnvironmentVariableW(L"WSMAN_CONSOLE", NULL);
    run_and_exit(flags);
}
