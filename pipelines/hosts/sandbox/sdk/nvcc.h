/* Which of nvcc's runs of cl.exe this is: its options are in a response file, cl /std:c++17 @"X" */

enum of_nvcc { NOT_NVCC, PREPROCESSES, COMPILES };

/* What is in the first file that the arguments name so, or NULL when none can be read. */
static char *response_file(const wchar_t *text, DWORD *length)
{
    static wchar_t path[LINE_MAX];
    unsigned n = 0;
    wchar_t before = ' ';
    for (; *text && (*text != '@' || before != ' '); text++) before = *text;
    if (!*text) return NULL;
    int quoted = *++text == '"';
    for (text += quoted; *text && *text != '"' && (quoted || *text != ' '); text++)
        if (n < LINE_MAX - 1) path[n++] = *text;
    HANDLE file = CreateFileW(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    if (file == INVALID_HANDLE_VALUE) return NULL;
    DWORD size = GetFileSize(file, NULL);
    char *options = size < 0x1000000 ? HeapAlloc(GetProcessHeap(), 0, size) : NULL;
    if (options && !ReadFile(file, options, size, length, NULL)) options = NULL;
    CloseHandle(file);
    return options;
}

static int says(const char *options, DWORD length, const char *word)
{
    for (DWORD at = 0; at < length; at++) {
        DWORD i = 0;
        while (word[i] && at + i < length && options[at + i] == word[i]) i++;
        if (!word[i]) return 1;
    }
    return 0;
}

/* nvcc hands -std=c++17 on as /std:c++17, before the response file. */
static int is_newer_than_cxx14(const wchar_t *arguments)
{
    static const wchar_t option[] = L"std:c++";
    for (; *arguments; arguments++) {
        unsigned n = 0;
        while (option[n] && arguments[n] == option[n]) n++;
        if (!option[n]) return arguments[n] != '1' || arguments[n + 1] != '4';
    }
    return 0;
}

static enum of_nvcc run_of_nvcc(const wchar_t *arguments)
{
    DWORD length = 0;
    const char *options = response_file(arguments, &length);
    if (!options) return NOT_NVCC;
    if (says(options, length, " -D__CUDACC__ ")) return PREPROCESSES;
    return says(options, length, ".cudafe1.") ? COMPILES : NOT_NVCC;
}
