/* winrshost.exe: start the command line that a WinRS client sent, exactly as it was sent.
 *
 * It comes in a variable, because an argument list of Linux becomes a Windows command line by
 * Wine's quoting, which is not what the client wrote. WSMAN_SKIP_CMD tells whether cmd.exe is
 * left out, as the client's option WINRS_SKIP_CMD_SHELL asks. */
#include "process.h"

static wchar_t sent[LINE_MAX];

void start(void)
{
    wchar_t skip[2];
    DWORD length = GetEnvironmentVariableW(L"WSMAN_COMMAND_LINE", sent, LINE_MAX);
    if (!length || length >= LINE_MAX) ExitProcess(126);
    if (GetEnvironmentVariableW(L"WSMAN_SKIP_CMD", skip, 2))
        append(line, sent);
    else
        append(append(line, L"C:\\windows\\system32\\cmd.exe /c "), sent);
    SetEnvironmentVariableW(L"WSMAN_COMMAND_LINE", NULL);
    SetEnvironmentVariableW(L"WSMAN_SKIP_CMD", NULL);
    run_and_exit();
}
